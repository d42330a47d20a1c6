//! The store's header: 128 bytes at the start of the `header` file in the
//! control directory. The whole file is written under another name and then
//! renamed.

use atomdir_disk::{FileSystemId, Identity};

use crate::frame::array;

pub const LENGTH: usize = 128;
/// The version that this program writes and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"ATOMDIR\0";
const CHECKSUM_OFFSET: usize = LENGTH - 4;

/// Chosen at random when the store is made, and kept secret from other users.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

impl StoreId {
    /// The CRC-32C of the id followed by `bytes`.
    pub(crate) fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.0), bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreHeader {
    pub format_version: u32,
    pub store_id: StoreId,
    /// Where the store was made, which a copied store does not match.
    pub place: Place,
    /// Every commit up to this one is durably in the base.
    pub last_sequence: u64,
    /// No transaction has had a higher id.
    pub transaction_high_water: u64,
}

/// The place of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The control directory.
    pub control: Identity,
    pub root: Identity,
    pub file_system: FileSystemId,
}

/// Bytes that claim to be a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UncheckedHeader([u8; LENGTH]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    #[error("the store's header is {length} bytes long instead of {LENGTH}")]
    Length { length: usize },
    #[error("this is not a store's header: it does not start with ATOMDIR")]
    Magic,
    #[error("the store's header is damaged: its checksum does not match")]
    Checksum,
    #[error(
        "the store has format version {found}, and this program knows version {FORMAT_VERSION} \
         only: use the version of atomdir that wrote it"
    )]
    Version { found: u32 },
}

impl StoreHeader {
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.format_version.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store_id.0);
        encode_identity(&mut bytes, 32, self.place.control);
        bytes[48..56].copy_from_slice(&self.last_sequence.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.transaction_high_water.to_le_bytes());
        encode_identity(&mut bytes, 64, self.place.root);
        bytes[80..96].copy_from_slice(&self.place.file_system.0);
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl UncheckedHeader {
    pub fn new(bytes: &[u8]) -> Result<UncheckedHeader, HeaderError> {
        match bytes.try_into() {
            Ok(bytes) => Ok(UncheckedHeader(bytes)),
            Err(_) => Err(HeaderError::Length {
                length: bytes.len(),
            }),
        }
    }

    /// Checks the checksum before the version: it covers the version in every
    /// version.
    pub fn check(&self) -> Result<StoreHeader, HeaderError> {
        let bytes = &self.0;
        if bytes[..8] != MAGIC {
            return Err(HeaderError::Magic);
        }
        let checksum = u32::from_le_bytes(array(bytes, CHECKSUM_OFFSET));
        if crc32c::crc32c(&bytes[..CHECKSUM_OFFSET]) != checksum {
            return Err(HeaderError::Checksum);
        }
        let format_version = u32::from_le_bytes(array(bytes, 8));
        if format_version != FORMAT_VERSION {
            return Err(HeaderError::Version {
                found: format_version,
            });
        }
        Ok(StoreHeader {
            format_version,
            store_id: StoreId(array(bytes, 16)),
            place: Place {
                control: decode_identity(bytes, 32),
                root: decode_identity(bytes, 64),
                file_system: FileSystemId(array(bytes, 80)),
            },
            last_sequence: u64::from_le_bytes(array(bytes, 48)),
            transaction_high_water: u64::from_le_bytes(array(bytes, 56)),
        })
    }
}

fn encode_identity(bytes: &mut [u8; LENGTH], at: usize, identity: Identity) {
    bytes[at..at + 8].copy_from_slice(&identity.inode.to_le_bytes());
    bytes[at + 8..at + 16].copy_from_slice(&identity.birth.to_le_bytes());
}

fn decode_identity(bytes: &[u8; LENGTH], at: usize) -> Identity {
    Identity {
        inode: u64::from_le_bytes(array(bytes, at)),
        birth: u64::from_le_bytes(array(bytes, at + 8)),
    }
}
