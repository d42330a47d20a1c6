//! The store's header: what is written can be read, and anything else is
//! refused.

use atomdir_disk::{FileSystemId, Identity};
use atomdir_format::header::{
    FORMAT_VERSION, HeaderError, LENGTH, Place, StoreHeader, StoreId, UncheckedHeader,
};

fn header() -> StoreHeader {
    StoreHeader {
        format_version: FORMAT_VERSION,
        store_id: StoreId(*b"0123456789abcdef"),
        place: Place {
            control: Identity {
                inode: 0x11,
                birth: 0x22,
            },
            root: Identity {
                inode: 0x55,
                birth: 0x66,
            },
            file_system: FileSystemId(*b"fedcba9876543210"),
        },
        last_sequence: 0x33,
        transaction_high_water: 0x44,
    }
}

fn check(bytes: &[u8]) -> Result<StoreHeader, HeaderError> {
    UncheckedHeader::new(bytes)?.check()
}

#[test]
fn header_round_trips() {
    assert_eq!(check(&header().encode()), Ok(header()));
}

#[test]
fn any_flipped_bit_of_a_header_is_detected() {
    let bytes = header().encode();
    for bit in 0..LENGTH * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 64 {
            HeaderError::Magic
        } else {
            HeaderError::Checksum
        };
        assert_eq!(check(&flipped), Err(expected), "bit {bit}");
    }
}

#[test]
fn unknown_version_is_reported() {
    let newer = StoreHeader {
        format_version: 7,
        ..header()
    };
    let error = check(&newer.encode()).unwrap_err();
    assert_eq!(error, HeaderError::Version { found: 7 });
    assert!(error.to_string().contains("version 7"));
    assert_eq!(check(&[0; 12]), Err(HeaderError::Length { length: 12 }));
    assert_eq!(check(&[0; LENGTH]), Err(HeaderError::Magic));
}

/// If this fails, stores that are in use can no longer be opened.
#[test]
fn encoded_bytes_stay_the_same() {
    let bytes = header().encode();
    let mut expected = Vec::new();
    expected.extend_from_slice(b"ATOMDIR\0\x01\0\0\0\0\0\0\x000123456789abcdef");
    for number in [0x11_u64, 0x22, 0x33, 0x44, 0x55, 0x66] {
        expected.extend_from_slice(&number.to_le_bytes());
    }
    expected.extend_from_slice(b"fedcba9876543210");
    expected.resize(LENGTH - 4, 0);
    assert_eq!(bytes[..LENGTH - 4], expected);
    assert_eq!(bytes[LENGTH - 4..], crc32c::crc32c(&expected).to_le_bytes());
}
