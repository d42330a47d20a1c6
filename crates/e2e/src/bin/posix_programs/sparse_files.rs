//! Holes. They are made by writing far behind the end, by growing and by punching, and found
//! by SEEK_DATA and SEEK_HOLE.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::check::{Outcome, pattern, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "sparse_files",
    prepare,
    run,
    child: process::none,
};

const BLOCK: u64 = 64 * 1024;

fn prepare() -> Outcome {
    fs::write("dense", pattern(1, 16 * BLOCK as usize))?;
    let sparse = File::create("sparse")?;
    sparse.set_len(16 * BLOCK)?;
    sparse.write_all_at(&pattern(2, BLOCK as usize), 4 * BLOCK)?;
    fs::write("zeroed", pattern(3, 16 * BLOCK as usize))?;
    fs::write("untouched", pattern(4, 4 * BLOCK as usize))?;
    File::options()
        .write(true)
        .open("untouched")?
        .set_len(64 * BLOCK)?;
    Ok(())
}

fn run() -> Outcome {
    written_far_out()?;
    punched()?;
    filled()?;
    zeroed()?;
    allocated()?;
    copied()
}

fn open(path: &str) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn written_far_out() -> Outcome {
    let file = File::create_new("far out").and_then(|_| open("far out"))?;
    for block in [0, 5, 6, 200] {
        file.write_all_at(&pattern(block, BLOCK as usize), block * BLOCK)?;
    }
    same("data", regions(&file)?, vec![(0, 1), (5, 7), (200, 201)])?;
    let mut between = vec![1; BLOCK as usize];
    file.read_exact_at(&mut between, 100 * BLOCK)?;
    same("a hole reads", between, vec![0; BLOCK as usize])
}

fn punched() -> Outcome {
    let file = open("dense")?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 2 * BLOCK, 3 * BLOCK)?;
    fallocate(&file, punch, 15 * BLOCK, 100 * BLOCK)?;
    // A hole that ends within pages clears their bytes and leaves the pages.
    fallocate(&file, punch, 8 * BLOCK + 100, 2 * BLOCK)?;
    same("length", file.metadata()?.len(), 16 * BLOCK)?;
    let mut expected = pattern(1, 16 * BLOCK as usize);
    for (start, end) in [
        (2 * BLOCK, 5 * BLOCK),
        (15 * BLOCK, 16 * BLOCK),
        (8 * BLOCK + 100, 10 * BLOCK + 100),
    ] {
        expected[start as usize..end as usize].fill(0);
    }
    // Ask before the file is read: in a view, a hole that was read counts as data.
    println!("dense: data in {:?}", regions(&file)?);
    same("contents are right", fs::read("dense")? == expected, true)
}

fn filled() -> Outcome {
    let file = open("sparse")?;
    same("before", regions(&file)?, vec![(4, 5)])?;
    file.write_all_at(&pattern(5, BLOCK as usize), 9 * BLOCK)?;
    file.write_all_at(&pattern(6, BLOCK as usize), 5 * BLOCK)?;
    same("after", regions(&file)?, vec![(4, 6), (9, 10)])
}

fn zeroed() -> Outcome {
    let file = open("zeroed")?;
    fallocate(&file, FallocateFlags::ZERO_RANGE, 3 * BLOCK + 5, 2 * BLOCK)?;
    let mut expected = pattern(3, 16 * BLOCK as usize);
    expected[(3 * BLOCK + 5) as usize..(5 * BLOCK + 5) as usize].fill(0);
    same("contents are right", fs::read("zeroed")? == expected, true)
}

/// Blocks that are allocated but not written may count as data or as a hole. They read as
/// zeros, and the length is right.
fn allocated() -> Outcome {
    let file = File::create_new("allocated").and_then(|_| open("allocated"))?;
    fallocate(&file, FallocateFlags::empty(), 0, 4 * BLOCK)?;
    same("length", file.metadata()?.len(), 4 * BLOCK)?;
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4 * BLOCK, 4 * BLOCK)?;
    same("length kept", file.metadata()?.len(), 4 * BLOCK)?;
    file.write_all_at(b"in the middle", 2 * BLOCK)?;
    let mut expected = vec![0; 4 * BLOCK as usize];
    expected[2 * BLOCK as usize..][..13].copy_from_slice(b"in the middle");
    same(
        "contents are right",
        fs::read("allocated")? == expected,
        true,
    )
}

/// Copies as `cp --sparse=auto` does, by asking where the data is.
fn copied() -> Outcome {
    let from = open("untouched")?;
    let to = File::create_new("copied").and_then(|_| open("copied"))?;
    to.set_len(from.metadata()?.len())?;
    for (start, end) in regions(&from)? {
        let mut bytes = vec![0; ((end - start) * BLOCK) as usize];
        from.read_exact_at(&mut bytes, start * BLOCK)?;
        to.write_all_at(&bytes, start * BLOCK)?;
    }
    same("where the data is", regions(&to)?, vec![(0, 4)])
}

/// Where data is, in blocks; every boundary is on one in these files.
fn regions(file: &File) -> Outcome<Vec<(u64, u64)>> {
    let mut found = Vec::new();
    let mut offset = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => return Ok(found),
            start => start?,
        };
        offset = seek(file, SeekFrom::Hole(start))?;
        found.push((start / BLOCK, offset.div_ceil(BLOCK)));
    }
}
