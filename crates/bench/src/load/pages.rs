//! Reads and writes large files.

use std::fs::{self, File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Describe, Result};

pub const PAGE: u64 = 4096;
/// The bytes in one read or write where the size does not matter.
const CHUNK: u64 = 1 << 20;

/// Opens an existing file, to change it in place.
pub fn open(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .describe("open", path)
}

/// Creates a file of this length.
pub fn fill(path: &Path, bytes: u64) -> Result<()> {
    create(path, bytes, b'o').map(|_| ())
}

/// Replaces a file as careful programs do: writes a new file, makes it durable, and renames it over
/// the old one.
pub fn replace(path: &Path, bytes: u64) -> Result<()> {
    let new = path.with_extension("new");
    let file = create(&new, bytes, b'n')?;
    file.sync_all().describe("flush", &new)?;
    fs::rename(&new, path).describe("replace", path)?;
    flush(path.parent().unwrap_or(path))
}

fn create(path: &Path, bytes: u64, byte: u8) -> Result<File> {
    let file = File::create(path).describe("make", path)?;
    write(&file, path, 0..bytes, byte)?;
    Ok(file)
}

/// Writes a range in sequence.
pub fn write(file: &File, path: &Path, range: Range<u64>, byte: u8) -> Result<()> {
    write_by(CHUNK, file, path, range, byte)
}

/// Writes a range in sequence, `chunk` bytes at a time.
pub fn write_by(chunk: u64, file: &File, path: &Path, range: Range<u64>, byte: u8) -> Result<()> {
    let length = chunk.min(range.end - range.start);
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
pub fn read(file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    read_by(CHUNK, file, path, range)
}

/// Reads a range in sequence, `chunk` bytes at a time.
pub fn read_by(chunk: u64, file: &File, path: &Path, range: Range<u64>) -> Result<()> {
    let mut buffer = vec![0; chunk as usize];
    let mut offset = range.start;
    while offset < range.end {
        let part = chunk.min(range.end - offset) as usize;
        file.read_exact_at(&mut buffer[..part], offset)
            .describe("read", path)?;
        offset += part as u64;
    }
    Ok(())
}

/// The offsets of `count` different pages of a file of this length, in a shuffled order, which defeats
/// read-ahead and is the same in each run.
pub fn scattered(bytes: u64, count: u64) -> Vec<u64> {
    let mut offsets: Vec<u64> = (0..bytes / PAGE).map(|page| page * PAGE).collect();
    let count = offsets.len().min(count as usize);
    let mut state = 0;
    for place in 0..count {
        let left = (offsets.len() - place) as u64;
        offsets.swap(place, place + (random(&mut state) % left) as usize);
    }
    offsets.truncate(count);
    offsets
}

/// The next number of the generator SplitMix64.
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

pub fn write_pages(file: &File, path: &Path, offsets: &[u64]) -> Result<()> {
    let page = [b'n'; PAGE as usize];
    offsets
        .iter()
        .try_for_each(|offset| file.write_all_at(&page, *offset).describe("write", path))
}

pub fn read_pages(file: &File, path: &Path, offsets: &[u64]) -> Result<()> {
    let mut page = [0; PAGE as usize];
    offsets.iter().try_for_each(|offset| {
        file.read_exact_at(&mut page, *offset)
            .describe("read", path)
    })
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
    fn scattered_offsets_are_distinct_and_within_the_file() {
        for pages in [0, 1, 2, 3, 10, 4096, 5 * 7 * 9 * 11] {
            let offsets: HashSet<u64> = scattered(pages * PAGE, pages).into_iter().collect();
            assert_eq!(offsets.len() as u64, pages);
            assert!(offsets.iter().all(|offset| *offset < pages * PAGE));
        }
    }

    /// Of an eighth of all pages, chosen at random, one in eight has its next neighbour among them.
    #[test]
    fn scattered_offsets_have_few_neighbours() {
        let mut offsets = scattered(32_768 * PAGE, 4096);
        assert_eq!(offsets, scattered(32_768 * PAGE, 4096));
        assert!(!offsets.is_sorted());
        offsets.sort_unstable();
        let neighbours = offsets.windows(2).filter(|two| two[0] + PAGE == two[1]);
        assert!(neighbours.count() < 4096 / 4);
    }
}
