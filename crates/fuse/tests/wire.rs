//! Requests with the layout of `linux/fuse.h`, and malformed ones that no kernel sends.

use atomdir_fuse::wire::{
    Header, Init, Malformed, Notification, Offer, Operation, decode_header, decode_operation,
    negotiate,
};
use proptest::prelude::*;

/// A request of which each field is a machine integer or a string.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new() -> Bytes {
        Bytes(Vec::new())
    }

    fn u32(mut self, value: u32) -> Bytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Bytes {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    fn string(mut self, value: &[u8]) -> Bytes {
        self.0.extend_from_slice(value);
        self.0.push(0);
        self
    }
}

#[test]
fn a_request_is_a_header_a_body_and_extensions() {
    let head = |length: u32, extension: u32| {
        let head = Bytes::new().u32(length).u32(1).u64(22).u64(33);
        head.u32(4).u32(5).u32(6).u32(extension)
    };
    let whole = head(40 + 5 + 8, 1).string(b"name").u64(0).0;
    let expected = Header {
        opcode: 1,
        unique: 22,
        node: 33,
        user: 4,
        group: 5,
        process: 6,
    };
    assert_eq!(decode_header(&whole), Ok((expected, &b"name\0"[..])));
    assert_eq!(decode_header(&whole[..whole.len() - 1]), Err(Malformed));
    let longer_extension = head(40 + 5 + 8, 2).string(b"name").u64(0).0;
    assert_eq!(decode_header(&longer_extension), Err(Malformed));
}

#[test]
fn fields_are_where_the_kernel_puts_them() {
    let decode = |opcode, bytes: &Bytes| format!("{:?}", decode_operation(opcode, &bytes.0));
    let write = Bytes::new()
        .u64(1)
        .u64(4096)
        .u32(5)
        .u32(4)
        .u64(0)
        .u32(0o2001)
        .u32(0);
    let mut write = write.string(b"data!");
    write.0.pop();
    let expected = Operation::Write {
        offset: 4096,
        data: b"data!",
        flags: 4,
        open_flags: 0o2001,
    };
    assert_eq!(decode_operation(16, &write.0), Ok(expected));

    let rename = Bytes::new().u64(7).u32(2).u32(0);
    let rename = rename.string(b"old").string(b"new");
    let expected = Operation::Rename {
        name: b"old",
        new_parent: 7,
        new_name: b"new",
        flags: 2,
    };
    assert_eq!(decode_operation(45, &rename.0), Ok(expected));

    let make = Bytes::new().u32(0o60600).u32(0x0801).u32(0o22).u32(0);
    let make = make.string(b"disk");
    let expected = Operation::MakeNode {
        name: b"disk",
        mode: 0o60600,
        device: 0x0801,
        umask: 0o22,
    };
    assert_eq!(decode_operation(8, &make.0), Ok(expected));

    let xattr = Bytes::new().u32(3).u32(1).u32(1).u32(0);
    let mut xattr = xattr.string(b"user.x").string(b"abc");
    xattr.0.pop();
    let expected = Operation::SetXattr {
        name: b"user.x",
        value: b"abc",
        flags: 1,
        extended_flags: 1,
    };
    assert_eq!(decode_operation(21, &xattr.0), Ok(expected));

    let set = Bytes::new().u32(0x7f).u32(0).u64(0).u64(10).u64(0);
    let set = set.u64(20).u64(30).u64(0).u32(21).u32(31).u32(0);
    let set = set.u32(0o644).u32(0).u32(1000).u32(1001).u32(0);
    let expected = "Ok(SetAttributes(SetAttributesIn { valid: 127, length: 10, \
        accessed_seconds: 20, modified_seconds: 30, accessed_nanoseconds: 21, \
        modified_nanoseconds: 31, mode: 420, user: 1000, group: 1001 }))";
    assert_eq!(decode(4, &set), expected);

    let read = Bytes::new().u64(0).u64(8).u32(9).u32(0).u64(0).u64(0);
    assert_eq!(decode(15, &read), "Ok(Read { offset: 8, length: 9 })");

    let copy = Bytes::new()
        .u64(0)
        .u64(8)
        .u64(7)
        .u64(0)
        .u64(9)
        .u64(10)
        .u64(0);
    let expected = Operation::CopyRange {
        offset: 8,
        to: 7,
        to_offset: 9,
        length: 10,
    };
    assert_eq!(decode_operation(47, &copy.0), Ok(expected));
    assert_eq!(decode(9999, &read), "Ok(Other(9999))");
}

#[test]
fn names_with_slashes_and_false_lengths_are_malformed() {
    for name in [&b""[..], b".", b"..", b"a/b", b"/"] {
        let request = Bytes::new().string(name).0;
        assert_eq!(decode_operation(1, &request), Err(Malformed), "{name:?}");
    }
    assert_eq!(decode_operation(1, b"no end"), Err(Malformed));
    let write = Bytes::new().u64(1).u64(0).u32(u32::MAX).u32(0).u64(0);
    assert_eq!(decode_operation(16, &write.u64(0).0), Err(Malformed));
    let forget = Bytes::new().u32(u32::MAX).u32(0).u64(1).u64(1);
    assert_eq!(decode_operation(42, &forget.0), Err(Malformed));
}

#[test]
fn only_offered_features_are_requested() {
    let all = Init {
        major: 7,
        minor: 44,
        readahead_length_max: 131_072,
        flags: u64::MAX,
    };
    let Offer::Accept(reply) = negotiate(&all) else {
        panic!("refused")
    };
    let (writeback_cache, auto_inval_data, locks) = (1 << 16, 1 << 12, 1 << 1 | 1 << 10);
    assert_eq!(reply.flags & (writeback_cache | auto_inval_data | locks), 0);
    let no_readdirplus = Init {
        flags: !(1 << 13),
        ..all
    };
    let Offer::Accept(less) = negotiate(&no_readdirplus) else {
        panic!("refused")
    };
    assert_eq!(less.flags, reply.flags & !(1 << 13));
    let no_stateless_opens = Init {
        flags: !(1 << 17),
        ..all
    };
    assert_eq!(negotiate(&no_stateless_opens), Offer::TooOld);
    assert_eq!(negotiate(&Init { minor: 33, ..all }), Offer::TooOld);
    assert_eq!(negotiate(&Init { major: 8, ..all }), Offer::AskAgain);
}

#[test]
fn notifications_hold_their_own_length() {
    let message = Notification::InvalidateEntry {
        parent: 1,
        name: b"7",
    }
    .encode();
    let expected = Bytes::new().u32(34).u32(3).u64(0).u64(1);
    assert_eq!(message, expected.u32(1).u32(0).string(b"7").0);
}

proptest! {
    #[test]
    fn arbitrary_request_bytes_do_not_panic(opcode in 0u32..60, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_header(&bytes);
        let _ = decode_operation(opcode, &bytes);
    }
}
