//! Files much larger than memory, mostly holes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::check::{Outcome, ensure, pattern, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "large_files",
    prepare,
    run,
    child: process::none,
};

const GIB: u64 = 1 << 30;
const PIECE: usize = 100_000;
/// Offsets around those that no longer fit in 31 and 32 bits.
const PLACES: [u64; 6] = [
    0,
    GIB,
    2 * GIB - 50_000,
    4 * GIB - 50_000,
    5 * GIB + 1,
    1 << 40,
];

fn prepare() -> Outcome {
    let file = File::create("old")?;
    file.set_len(GIB)?;
    file.write_all_at(&pattern(1, PIECE), 12_345)?;
    file.write_all_at(&pattern(2, PIECE), GIB - PIECE as u64)?;
    Ok(())
}

fn run() -> Outcome {
    new()?;
    old()
}

fn new() -> Outcome {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open("new")?;
    for (seed, place) in PLACES.into_iter().enumerate() {
        file.write_all_at(&pattern(seed as u64, PIECE), place)?;
    }
    let mut found = vec![0; PIECE];
    for (seed, place) in PLACES.into_iter().enumerate() {
        file.read_exact_at(&mut found, place)?;
        same(
            "contents are right",
            found == pattern(seed as u64, PIECE),
            true,
        )?;
    }
    file.read_exact_at(&mut found, 3 * GIB)?;
    same("a hole reads", found == vec![0; PIECE], true)?;
    same("length", file.metadata()?.len(), (1 << 40) + PIECE as u64)?;
    small_on_disk("new")?;
    // Truncate it to a size that can be compared as a whole.
    Ok(file.set_len(6 * GIB)?)
}

fn old() -> Outcome {
    let file = OpenOptions::new().read(true).write(true).open("old")?;
    file.write_all_at(b"a few bytes", GIB / 2)?;
    file.set_len(2 * GIB)?;
    file.write_all_at(b"and at its new end", 2 * GIB - 18)?;
    let mut found = vec![0; PIECE];
    file.read_exact_at(&mut found, GIB - PIECE as u64)?;
    same("old end", found == pattern(2, PIECE), true)?;
    fs::rename("old", "renamed")?;
    small_on_disk("renamed")
}

/// `st_blocks` counts the blocks that are used, in units of 512 bytes.
fn small_on_disk(path: &str) -> Outcome {
    let used = fs::metadata(path)?.blocks() * 512;
    ensure(used < 16 << 20, format!("{path} uses {used} bytes"))
}
