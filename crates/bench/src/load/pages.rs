//! Large files, page by page.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Describe, Result};

pub const PAGE: u64 = 4096;
/// What is read or written at once where order does not matter.
const CHUNK: u64 = 1 << 20;

/// A file that is there, to be changed in place.
pub fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .describe("open", path)
}

/// A new file of so many bytes.
pub fn fill(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).describe("make", path)?;
    write(&file, path, 0..bytes, b'o')
}

/// Writes a range in sequence.
pub fn write(file: &File, path: &Path, range: std::ops::Range<u64>, byte: u8) -> Result<()> {
    let length = CHUNK.min(range.end - range.start);
    let buffer = vec![byte; length as usize];
    let mut offset = range.start;
    while offset < range.end {
        let part = length.min(range.end - offset) as usize;
        file.write_all_at(&buffer[..part], offset)
            .describe("write", path)?;
        offset += part as u64;
    }
    Ok(())
}

/// Reads a range in sequence.
pub fn read(file: &File, path: &Path, range: std::ops::Range<u64>) -> Result<()> {
    let mut buffer = vec![0; CHUNK as usize];
    let mut offset = range.start;
    while offset < range.end {
        let part = CHUNK.min(range.end - offset) as usize;
        file.read_exact_at(&mut buffer[..part], offset)
            .describe("read", path)?;
        offset += part as u64;
    }
    Ok(())
}

/// `count` offsets of pages in a file of so many bytes, none twice, in an
/// order that no read-ahead foresees and that is always the same.
pub fn scattered(bytes: u64, count: u64) -> impl Iterator<Item = u64> {
    let pages = (bytes / PAGE).max(1);
    // A step that shares no factor with the number of pages meets each once.
    let mut stride = (pages * 6 / 10) | 1;
    while greatest_common_divisor(stride, pages) != 1 {
        stride += 2;
    }
    (0..count.min(pages)).map(move |number| number * stride % pages * PAGE)
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        greatest_common_divisor(other, one % other)
    }
}

pub fn write_scattered(file: &File, path: &Path, bytes: u64, count: u64) -> Result<()> {
    let page = [b'n'; PAGE as usize];
    scattered(bytes, count)
        .try_for_each(|offset| file.write_all_at(&page, offset).describe("write", path))
}

pub fn read_scattered(file: &File, path: &Path, bytes: u64, count: u64) -> Result<()> {
    let mut page = [0; PAGE as usize];
    scattered(bytes, count)
        .try_for_each(|offset| file.read_exact_at(&mut page, offset).describe("read", path))
}

/// Makes a file or a directory durable.
pub fn flush(path: &Path) -> Result<()> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .describe("flush", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn scattered_offsets_are_distinct_and_inside() {
        for pages in [1, 2, 3, 10, 4096, 5 * 7 * 9 * 11] {
            let offsets: HashSet<u64> = scattered(pages * PAGE, pages).collect();
            assert_eq!(offsets.len() as u64, pages);
            assert!(offsets.iter().all(|offset| *offset < pages * PAGE));
        }
    }
}
