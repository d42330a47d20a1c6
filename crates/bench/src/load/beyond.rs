//! Reads and writes a file that is larger than the memory limit of this process.

use std::path::Path;

use super::{in_threads, pages, step};
use crate::error::{Describe, Result};

pub const THREADS: [u64; 2] = [1, 32];
/// One page in so many is read or written at random.
const RANDOM_PART: u64 = 8;
/// Small, so that the buffers of all threads take little of the allowed memory.
const CHUNK: u64 = 128 << 10;

/// Works on the file `old`, which has this length.
pub fn all(bytes: u64) -> Result<()> {
    let old = Path::new("old");
    let file = pages::open(old)?;
    let random = pages::scattered(bytes, bytes / pages::PAGE / RANDOM_PART);
    step("-");
    for threads in THREADS {
        let range = |number| share(bytes, threads, number);
        let some = |number: u64| {
            let length = random.len().div_ceil(threads as usize);
            random.chunks(length).nth(number as usize).unwrap_or(&[])
        };
        in_threads(threads, |number| {
            pages::read_by(CHUNK, &file, old, range(number))
        })?;
        step(&format!("read-{threads}"));
        in_threads(threads, |number| {
            pages::read_pages(&file, old, some(number))
        })?;
        step(&format!("read-random-{threads}"));
        let path = format!("new-{threads}");
        let new = std::fs::File::create(&path).describe("make", path.as_ref())?;
        in_threads(threads, |number| {
            pages::write_by(CHUNK, &new, path.as_ref(), range(number), b'n')
        })?;
        step(&format!("write-{threads}"));
        in_threads(threads, |number| {
            pages::write_pages(&file, old, some(number))
        })?;
        step(&format!("write-random-{threads}"));
    }
    Ok(())
}

/// The part of the file for one thread, in whole pages.
fn share(bytes: u64, threads: u64, number: u64) -> std::ops::Range<u64> {
    let part = (bytes / threads).next_multiple_of(pages::PAGE);
    (number * part).min(bytes)..((number + 1) * part).min(bytes)
}
