//! Reading and writing one large file, and several at once.

use std::path::{Path, PathBuf};
use std::thread;

use super::{pages, step};
use crate::error::Result;

const THREADS: u64 = 4;
/// So much of the file is read or written at random.
const RANDOM_PART: u64 = 8;

/// Works on `old`, which has so many bytes.
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
    threads(|number| pages::read(&file, old, number * part..(number + 1) * part))?;
    step("read-threads");
    pages::read_pages(&file, old, &random)?;
    step("read-random");
    pages::fill(Path::new("new"), bytes)?;
    step("write");
    threads(|number| pages::fill(&PathBuf::from(format!("new-{number}")), part))?;
    step("write-threads");
    pages::write_pages(&file, old, &random)?;
    step("write-random");
    Ok(())
}

fn threads(action: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let action = &action;
        let started: Vec<_> = (0..THREADS)
            .map(|number| scope.spawn(move || action(number)))
            .collect();
        started.into_iter().try_for_each(|thread| {
            // A thread that panicked has said why.
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
}
