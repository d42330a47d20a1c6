use super::flags::init;
use super::reader::{Malformed, Reader};
use super::{DATA_LENGTH_MAX, MAJOR_VERSION, MINOR_VERSION_MAX, MINOR_VERSION_MIN, PAGES_MAX};

/// What the kernel offers when the connection begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Init {
    pub major: u32,
    pub minor: u32,
    pub readahead_length_max: u32,
    pub flags: u64,
}

impl Init {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Init, Malformed> {
        let (major, minor) = (reader.u32()?, reader.u32()?);
        let (readahead_length_max, flags) = (reader.u32()?, u64::from(reader.u32()?));
        let extended = flags & init::INIT_EXT != 0;
        let high = if extended {
            u64::from(reader.u32()?)
        } else {
            0
        };
        Ok(Init {
            major,
            minor,
            readahead_length_max,
            flags: flags | high << 32,
        })
    }
}

/// Our answer to INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    pub flags: u64,
    pub readahead_length_max: u32,
}

/// The result of comparing the kernel's offer with our needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    Accept(InitReply),
    /// The kernel speaks a newer major version and will ask again for ours.
    AskAgain,
    TooOld,
}

/// Features that we accept if the kernel offers them.
///
/// We leave these out on purpose: WRITEBACK_CACHE (a write that has returned must be in
/// the write set, or a commit could miss it), AUTO_INVAL_DATA (a view never changes
/// under its cache), ASYNC_DIO (after an asynchronous direct write the kernel does not
/// drop pages that were read meanwhile, and shows them for ever), ATOMIC_O_TRUNC (opens
/// carry no state), POSIX_LOCKS and FLOCK_LOCKS (without them the kernel keeps locks
/// itself, at no round trip).
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::CACHE_SYMLINKS
    | init::EXPLICIT_INVAL_DATA
    | REQUIRED;

/// Features that we need: without them our answers would mean something else.
const REQUIRED: u64 = init::NO_OPEN_SUPPORT
    | init::NO_OPENDIR_SUPPORT
    | init::MAX_PAGES
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT;

/// How many background requests (readahead, writeback of mapped pages) the kernel keeps
/// in flight before its callers wait.
const BACKGROUND_MAX: u16 = 512;
const BACKGROUND_CONGESTED: u16 = 384;

pub fn negotiate(kernel: &Init) -> Offer {
    if kernel.major > MAJOR_VERSION {
        return Offer::AskAgain;
    }
    let too_old = kernel.major < MAJOR_VERSION || kernel.minor < MINOR_VERSION_MIN;
    if too_old || kernel.flags & REQUIRED != REQUIRED {
        return Offer::TooOld;
    }
    Offer::Accept(InitReply {
        flags: kernel.flags & WANTED,
        readahead_length_max: kernel.readahead_length_max.min(DATA_LENGTH_MAX as u32),
    })
}

impl InitReply {
    /// fuse_init_out.
    pub fn encode(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &MAJOR_VERSION.to_ne_bytes());
        put(4, &MINOR_VERSION_MAX.to_ne_bytes());
        put(8, &self.readahead_length_max.to_ne_bytes());
        put(12, &(self.flags as u32).to_ne_bytes());
        put(16, &BACKGROUND_MAX.to_ne_bytes());
        put(18, &BACKGROUND_CONGESTED.to_ne_bytes());
        put(20, &(DATA_LENGTH_MAX as u32).to_ne_bytes());
        // time granularity in nanoseconds
        put(24, &1u32.to_ne_bytes());
        put(28, &PAGES_MAX.to_ne_bytes());
        put(32, &((self.flags >> 32) as u32).to_ne_bytes());
        bytes
    }
}

/// Asks the kernel to begin again with our major version.
pub fn ask_again() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..4].copy_from_slice(&MAJOR_VERSION.to_ne_bytes());
    bytes[4..8].copy_from_slice(&MINOR_VERSION_MAX.to_ne_bytes());
    bytes
}
