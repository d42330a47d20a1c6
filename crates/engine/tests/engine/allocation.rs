//! Reserving blocks (fallocate) in files of the base. The committed file has them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{Scratch, begin, create, open};

const KEEP_SIZE: u32 = 1;
const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;

struct Case {
    name: &'static str,
    /// The file's length before.
    length: u64,
    is_hole: bool,
    has_other_name: bool,
    mode: u32,
    offset: u64,
    /// How many bytes to reserve.
    reserved: u64,
    /// The length and the least size of the blocks afterwards.
    expected: (u64, u64),
}

const CASE: Case = Case {
    name: "",
    length: 100_000,
    is_hole: false,
    has_other_name: false,
    mode: 0,
    offset: 0,
    reserved: 4 * MIB,
    expected: (4 * MIB, 4 * MIB),
};

const CASES: [Case; 8] = [
    Case {
        name: "short file",
        ..CASE
    },
    Case {
        name: "behind the end",
        offset: MIB,
        expected: (5 * MIB, 4 * MIB),
        ..CASE
    },
    Case {
        name: "several names, so it is changed in place",
        has_other_name: true,
        ..CASE
    },
    Case {
        name: "the end of a long file, so it is changed in place",
        length: 8 * MIB,
        offset: 8 * MIB - 100,
        reserved: MIB,
        expected: (9 * MIB - 100, 9 * MIB - 100),
        ..CASE
    },
    Case {
        name: "a hole in a long file",
        length: 8 * MIB,
        is_hole: true,
        offset: 2 * MIB + 10,
        reserved: MIB,
        expected: (8 * MIB, MIB),
        ..CASE
    },
    Case {
        name: "a file that is a hole",
        length: MIB,
        is_hole: true,
        reserved: MIB,
        expected: (MIB, MIB),
        ..CASE
    },
    Case {
        name: "past the end of a short file, whose length stays",
        mode: KEEP_SIZE,
        expected: (100_000, 4 * MIB),
        ..CASE
    },
    Case {
        name: "data that is there",
        length: 8 * MIB,
        reserved: MIB,
        expected: (8 * MIB, 8 * MIB),
        ..CASE
    },
];

fn contents(case: &Case) -> Vec<u8> {
    let byte = |at: u64| {
        if case.is_hole {
            0
        } else {
            (at % 251) as u8 + 1
        }
    };
    (0..case.length).map(byte).collect()
}

fn make(path: &Path, case: &Case) {
    if case.is_hole {
        let file = fs::File::create(path).expect("a fresh file");
        file.set_len(case.length).expect("it can be a hole");
    } else {
        fs::write(path, contents(case)).expect("a fresh file");
    }
}

#[test]
fn reserved_blocks_of_an_old_file_are_committed() {
    for case in CASES {
        let scratch = Scratch::new();
        let path = scratch.0.join("file");
        make(&path, &case);
        if case.has_other_name {
            fs::hard_link(&path, scratch.0.join("other")).expect("a fresh name");
        }
        create(&scratch.0);
        let store = open(&scratch.0);
        let view = begin(&store);
        let node = view.resolve(b"file").expect("it can be looked up");
        let node = node.expect("it is there");
        view.allocate(node, case.mode, case.offset, case.reserved)
            .expect("there is space");
        store.commit(&view).expect("nobody else changes it");
        let found = fs::metadata(&path).expect("it is there");
        let (length, blocks) = case.expected;
        assert_eq!(found.len(), length, "{}", case.name);
        let reserved = found.blocks() * SECTOR;
        assert!(
            reserved >= blocks,
            "{}: {reserved}, not {blocks}",
            case.name
        );
        let mut expected = contents(&case);
        expected.resize(length as usize, 0);
        assert!(
            fs::read(&path).expect("it is there") == expected,
            "{}",
            case.name
        );
    }
}
