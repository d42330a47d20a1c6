//! The applied mark: how far the base has come since the disk was
//! attached. It is written after each commit and never flushed, so it is valid
//! only as long as the machine does not crash.

use atomdir_disk::Attachment;

use crate::frame::array;
use crate::header::StoreId;

pub const LENGTH: usize = 36;
const CHECKSUM_OFFSET: usize = LENGTH - 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppliedMark {
    pub attachment: Attachment,
    /// Every commit up to this one is in the base, though perhaps not durably.
    pub sequence: u64,
}

impl AppliedMark {
    pub fn encode(&self, store: StoreId) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..16].copy_from_slice(&self.attachment.boot);
        bytes[16..24].copy_from_slice(&self.attachment.disk.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        let checksum = store.checksum(&bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Returns `None` unless the bytes are a whole mark of this store.
    pub fn decode(store: StoreId, bytes: &[u8; LENGTH]) -> Option<AppliedMark> {
        let checksum = u32::from_le_bytes(array(bytes, CHECKSUM_OFFSET));
        if store.checksum(&bytes[..CHECKSUM_OFFSET]) != checksum {
            return None;
        }
        Some(AppliedMark {
            attachment: Attachment {
                boot: array(bytes, 0),
                disk: u64::from_le_bytes(array(bytes, 16)),
            },
            sequence: u64::from_le_bytes(array(bytes, 24)),
        })
    }
}
