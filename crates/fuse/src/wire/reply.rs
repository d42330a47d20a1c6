use atomdir_disk::{FileSystemStatus, Timestamp};

use super::flags::{OPEN_KEEP_CACHE, OPEN_NO_FLUSH};
use crate::filesystem::{Entry, NodeAttributes, Opened, Validity};

/// The handle of an open that carries state. The node says which.
pub const STATEFUL: u64 = 1;

/// How long the kernel may cache what never changes behind its back. 2^40 seconds do
/// not overflow anywhere in its arithmetic.
const FOREVER_SECONDS: u64 = 1 << 40;

const BLOCK_SIZE: u32 = 4096;

/// fuse_out_header.
pub fn reply_header(unique: u64, error: i32, body_length: usize) -> [u8; 16] {
    let mut header = [0; 16];
    let length = (header.len() + body_length) as u32;
    header[..4].copy_from_slice(&length.to_ne_bytes());
    header[4..8].copy_from_slice(&error.to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    header
}

/// Appends a reply's fields to a buffer.
pub struct ReplyWriter<'a> {
    buffer: &'a mut Vec<u8>,
}

impl<'a> ReplyWriter<'a> {
    pub fn new(buffer: &'a mut Vec<u8>) -> ReplyWriter<'a> {
        ReplyWriter { buffer }
    }

    pub fn bytes(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }

    /// fuse_entry_out.
    pub fn entry(&mut self, entry: &Entry) {
        self.u64(entry.node);
        self.u64(entry.generation);
        self.u64(seconds(entry.valid));
        self.u64(seconds(entry.attributes_valid));
        self.u64(0);
        self.attributes(&entry.attributes);
    }

    /// A fuse_entry_out that says that there is no such name.
    pub fn missing(&mut self, valid: Validity) {
        self.u64(0);
        self.u64(0);
        self.u64(seconds(valid));
        self.bytes(&[0; 104]);
    }

    /// fuse_attr_out.
    pub fn attributes_reply(&mut self, attributes: &NodeAttributes, valid: Validity) {
        self.u64(seconds(valid));
        self.u64(0);
        self.attributes(attributes);
    }

    /// fuse_attr.
    fn attributes(&mut self, attributes: &NodeAttributes) {
        let times = [attributes.accessed, attributes.modified, attributes.changed];
        self.u64(attributes.inode);
        self.u64(attributes.length);
        self.u64(attributes.blocks);
        for Timestamp { seconds, .. } in times {
            self.u64(seconds as u64);
        }
        for Timestamp { nanoseconds, .. } in times {
            self.u32(nanoseconds);
        }
        self.u32(attributes.kind.type_bits() | attributes.mode & 0o7777);
        self.u32(attributes.links);
        self.u32(attributes.owner.user);
        self.u32(attributes.owner.group);
        self.u32(encode_device(attributes.device_number));
        self.u32(BLOCK_SIZE);
        self.u32(0);
    }

    /// fuse_open_out. The handle says at the end of the open whether it carries state.
    pub fn open(&mut self, opened: Opened) {
        let (handle, flags) = match opened {
            Opened::Plainly => (0, OPEN_KEEP_CACHE | OPEN_NO_FLUSH),
            Opened::UntilClosed => (STATEFUL, 0),
        };
        self.u64(handle);
        self.u32(flags);
        self.u32(0);
    }

    /// fuse_statfs_out.
    pub fn status(&mut self, status: &FileSystemStatus) {
        self.u64(status.blocks);
        self.u64(status.blocks_free);
        self.u64(status.blocks_available);
        self.u64(status.files);
        self.u64(status.files_free);
        self.u32(status.block_size as u32);
        self.u32(status.name_length_max);
        self.u32(status.block_size as u32);
        self.bytes(&[0; 28]);
    }
}

fn seconds(valid: Validity) -> u64 {
    match valid {
        Validity::Forever => FOREVER_SECONDS,
        Validity::No => 0,
    }
}

/// Converts `makedev`'s packing to the kernel's 32 bits (new_encode_dev).
fn encode_device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

pub fn decode_device(device: u32) -> u64 {
    let major = (device & 0xfff00) >> 8;
    let minor = (device & 0xff) | (device >> 12) & 0xfff00;
    rustix::fs::makedev(major, minor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_packings() {
        for (major, minor) in [(1, 3), (8, 1), (259, 1_000_000), (4095, 0xfffff)] {
            let number = rustix::fs::makedev(major, minor);
            assert_eq!(decode_device(encode_device(number)), number);
        }
    }
}
