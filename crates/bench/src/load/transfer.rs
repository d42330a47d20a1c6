//! Reads and writes one large file, and several at the same time.

use std::path::{Path, PathBuf};

use super::{in_threads, pages, step};
use crate::error::Result;

const THREADS: u64 = 4;
/// One page in so many is read or written at random.
const RANDOM_PART: u64 = 8;

/// Works on the file `old`, which has this length.
pub fn all(bytes: u64) -> Result<()> {
    let old = Path::new("old");
    let file = pages::open(old)?;
    let random = pages::scattered(bytes, bytes / pages::PAGE / RANDOM_PART);
    step("-");
    pages::read(&file, old, 0..bytes)?;
    step("read-first");
    pages::read(&file, old, 0..bytes)?;
    step("read-again");
    let part = bytes / THREADS;
    in_threads(THREADS, |number| {
        pages::read(&file, old, number * part..(number + 1) * part)
    })?;
    step("read-threads");
    pages::read_pages(&file, old, &random)?;
    step("read-random");
    pages::fill(Path::new("new"), bytes)?;
    step("write");
    in_threads(THREADS, |number| {
        pages::fill(&PathBuf::from(format!("new-{number}")), part)
    })?;
    step("write-threads");
    pages::write_pages(&file, old, &random)?;
    step("write-random");
    Ok(())
}
