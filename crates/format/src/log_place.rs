//! A log outside the control directory: the file that names it, and the head by which the log itself
//! says whose it is.
//!
//! Invariants
//! 1. A head is of a log only if its checksum matches, which covers the store's id.
//! 2. A head names two commits up to which the base has everything, if a checkpoint may be moving the
//!    store's header from the first to the second. Otherwise they are the same.

use crate::frame::array;
use crate::header::StoreId;

/// The head is within one sector, so that a crash leaves the old one or the new one.
pub const HEAD_LENGTH: usize = 64;
/// Where the frames begin. No other sector, page or block holds the head.
pub const FRAMES_AT: u64 = 4096;

const MAGIC: [u8; 8] = *b"ATOMLOG\0";
const VERSION: u32 = 1;
const CHECKSUM_OFFSET: usize = HEAD_LENGTH - 4;
const ID_LINE: &[u8] = b"\nlog ";

/// Chosen at random when the file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogId(pub [u8; 16]);

/// Where a store's log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPlace {
    /// Absolute.
    pub path: Vec<u8>,
    pub id: LogId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    pub id: LogId,
    /// The last sequence of the header that the log's records follow.
    pub follows: u64,
    /// The last sequence of the header after the checkpoint that may be under way.
    pub follows_next: u64,
}

impl LogPlace {
    pub fn encode(&self) -> Vec<u8> {
        let id = u128::from_be_bytes(self.id.0);
        let id = format!("{id:032x}\n");
        [self.path.as_slice(), ID_LINE, id.as_bytes()].concat()
    }

    /// Returns `None` unless the bytes are a whole place.
    pub fn decode(bytes: &[u8]) -> Option<LogPlace> {
        let bytes = bytes.strip_suffix(b"\n")?;
        let at = bytes.len().checked_sub(ID_LINE.len() + 32)?;
        let (path, rest) = bytes.split_at(at);
        let id = std::str::from_utf8(rest.strip_prefix(ID_LINE)?).ok()?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !path.starts_with(b"/") || path.contains(&0) || !id.bytes().all(is_digit) {
            return None;
        }
        let id = u128::from_str_radix(id, 16).ok()?;
        Some(LogPlace {
            path: path.to_owned(),
            id: LogId(id.to_be_bytes()),
        })
    }
}

impl LogHead {
    pub fn encode(&self, store: StoreId) -> [u8; HEAD_LENGTH] {
        let mut bytes = [0; HEAD_LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id.0);
        bytes[32..40].copy_from_slice(&self.follows.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.follows_next.to_le_bytes());
        let checksum = store.checksum(&bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` unless the bytes are a head of a log of this store, of the version that this
    /// program knows.
    pub fn decode(store: StoreId, bytes: &[u8; HEAD_LENGTH]) -> Option<LogHead> {
        let checksum = u32::from_le_bytes(array(bytes, CHECKSUM_OFFSET));
        let version = u32::from_le_bytes(array(bytes, 8));
        let is_head = bytes[..8] == MAGIC && version == VERSION;
        if !is_head || store.checksum(&bytes[..CHECKSUM_OFFSET]) != checksum {
            return None;
        }
        Some(LogHead {
            id: LogHead::claimed_id(bytes)?,
            follows: u64::from_le_bytes(array(bytes, 32)),
            follows_next: u64::from_le_bytes(array(bytes, 40)),
        })
    }

    /// The id that a head of any store claims.
    pub fn claimed_id(bytes: &[u8; HEAD_LENGTH]) -> Option<LogId> {
        (bytes[..8] == MAGIC).then(|| LogId(array(bytes, 16)))
    }
}
