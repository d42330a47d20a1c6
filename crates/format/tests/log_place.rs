//! The place and the head of a log outside the control directory.

use atomdir_format::header::StoreId;
use atomdir_format::log_place::{LogHead, LogId, LogPlace};

const STORE: StoreId = StoreId(*b"0123456789abcdef");
const ID: LogId = LogId(*b"fedcba9876543210");

#[test]
fn place_round_trips_and_malformed_ones_are_refused() {
    for path in ["/a", "/new\nline", "/x\nlog 5"] {
        let path = path.as_bytes().to_vec();
        let place = LogPlace { path, id: ID };
        assert_eq!(LogPlace::decode(&place.encode()), Some(place));
    }
    let digits = "0".repeat(32);
    for bad in [
        String::new(),
        "/a".to_owned(),
        "/a\nlog \n".to_owned(),
        format!("/a\nlog {digits}"),
        format!("/a\nlog {digits}0\n"),
        format!("/a\nlog +{}\n", &digits[1..]),
        format!("a\nlog {digits}\n"),
        format!("/a\0\nlog {digits}\n"),
    ] {
        assert_eq!(LogPlace::decode(bad.as_bytes()), None, "{bad:?}");
    }
}

#[test]
fn head_round_trips_and_any_flipped_bit_or_other_store_is_detected() {
    let head = LogHead {
        id: ID,
        follows: 0x11,
        follows_next: 0x22,
    };
    let bytes = head.encode(STORE);
    assert_eq!(LogHead::decode(STORE, &bytes), Some(head));
    assert_eq!(LogHead::decode(StoreId([7; 16]), &bytes), None);
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(LogHead::decode(STORE, &flipped), None, "bit {bit}");
    }
}
