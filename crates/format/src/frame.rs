//! A frame is a record in a file: a header of 40 bytes, the payload, and zeros
//! up to a multiple of 8 bytes. Frames follow one another without gaps.
//!
//! Both checksums start from the store's id, which only the store's owner can
//! read. So bytes from elsewhere, even a whole frame that someone put into an
//! extended attribute, are never taken for a frame of this store.

use crate::DecodeError;
use crate::header::StoreId;

pub const HEADER_LENGTH: usize = 40;
/// Every frame starts at a multiple of this.
pub const ALIGNMENT: usize = 8;

pub(crate) const MAGIC: [u8; 4] = *b"ADFR";
const VERSION: u16 = 1;
const CHECKSUM_OFFSET: usize = 36;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Commit,
    Summary,
    Past,
    View,
    Notice,
    Annotations,
}

/// A type that a frame can hold.
pub trait Record: Sized {
    const KIND: FrameKind;

    fn sequence(&self) -> u64;
    /// Everything but the sequence, which is in the frame's header.
    fn encode_payload(&self) -> Vec<u8>;
    fn decode_payload(sequence: u64, payload: &[u8]) -> Result<Self, DecodeError>;
}

/// A header whose checksum was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) version: u16,
    pub(crate) kind: u16,
    pub(crate) payload_length: u64,
    pub(crate) sequence: u64,
    /// Every record up to this one was durable when the frame was written.
    pub(crate) durable: u64,
    payload_checksum: u32,
}

/// Returns the bytes to append for a record. `durable` is the last sequence
/// that a completed flush is known to have made durable, or 0. It lets a reader
/// tell a torn tail from damage.
///
/// # Panics
/// If `durable` is not below the record's own sequence.
pub fn encode<R: Record>(store: StoreId, durable: u64, record: &R) -> Vec<u8> {
    assert!(
        durable < record.sequence(),
        "a record cannot be durable before it is written"
    );
    let payload = record.encode_payload();
    let padded_length = payload.len().next_multiple_of(ALIGNMENT);
    let mut frame = vec![0; HEADER_LENGTH + padded_length];
    let (header, body) = frame.split_at_mut(HEADER_LENGTH);
    body[..payload.len()].copy_from_slice(&payload);
    header[..4].copy_from_slice(&MAGIC);
    header[4..6].copy_from_slice(&VERSION.to_le_bytes());
    header[6..8].copy_from_slice(&kind_tag(R::KIND).to_le_bytes());
    header[8..16].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    header[16..24].copy_from_slice(&record.sequence().to_le_bytes());
    header[24..32].copy_from_slice(&durable.to_le_bytes());
    header[32..36].copy_from_slice(&store.checksum(body).to_le_bytes());
    let checksum = store.checksum(&header[..CHECKSUM_OFFSET]);
    header[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
    frame
}

impl FrameHeader {
    /// Returns `None` if these bytes are no frame header of this store.
    pub(crate) fn check(store: StoreId, bytes: &[u8; HEADER_LENGTH]) -> Option<FrameHeader> {
        let found = u32::from_le_bytes(array(bytes, CHECKSUM_OFFSET));
        if bytes[..4] != MAGIC || store.checksum(&bytes[..CHECKSUM_OFFSET]) != found {
            return None;
        }
        Some(FrameHeader {
            version: u16::from_le_bytes(array(bytes, 4)),
            kind: u16::from_le_bytes(array(bytes, 6)),
            payload_length: u64::from_le_bytes(array(bytes, 8)),
            sequence: u64::from_le_bytes(array(bytes, 16)),
            durable: u64::from_le_bytes(array(bytes, 24)),
            payload_checksum: u32::from_le_bytes(array(bytes, 32)),
        })
    }

    pub(crate) fn has_version(&self) -> bool {
        self.version == VERSION
    }

    pub(crate) fn has_kind(&self, kind: FrameKind) -> bool {
        self.kind == kind_tag(kind)
    }

    /// How many bytes follow the header; `None` if the number is impossible.
    pub(crate) fn body_length(&self) -> Option<u64> {
        self.payload_length
            .checked_next_multiple_of(ALIGNMENT as u64)
    }

    pub(crate) fn matches(&self, store: StoreId, body: &[u8]) -> bool {
        store.checksum(body) == self.payload_checksum
    }
}

fn kind_tag(kind: FrameKind) -> u16 {
    match kind {
        FrameKind::Commit => 1,
        FrameKind::Summary => 2,
        FrameKind::Past => 3,
        FrameKind::View => 4,
        FrameKind::Notice => 5,
        FrameKind::Annotations => 6,
    }
}

pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[offset..offset + N]);
    array
}
