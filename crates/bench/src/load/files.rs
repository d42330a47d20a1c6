//! Calls on many small files.

use std::fs;
use std::path::{Path, PathBuf};

use super::{in_threads, step};
use crate::error::{Describe, Result};

const FILE_BYTES: usize = 1024;

/// Works on the existing files in `old`, and creates files in `new`.
pub fn all(count: u64) -> Result<()> {
    let (old, new) = (Path::new("old"), Path::new("new"));
    step("-");
    stat(old, count)?;
    step("stat-first");
    stat(old, count)?;
    step("stat-again");
    list(old)?;
    step("readdir-first");
    list(old)?;
    step("readdir-again");
    create(new, count)?;
    step("create");
    unlink(old, count)?;
    step("unlink");
    for _ in 0..count {
        std::hint::black_box(rustix::process::getpid());
    }
    step("getpid");
    Ok(())
}

/// The numbers of threads among which the files are divided.
pub const THREADS: [u64; 4] = [1, 4, 16, 32];

/// The same calls by several threads. Each works in `old/THREADS/NUMBER`, whose files exist, and in
/// `new/THREADS/NUMBER`.
pub fn by_threads(count: u64) -> Result<()> {
    step("-");
    for threads in THREADS {
        let old = |number: u64| of_thread("old", threads, number);
        let new = |number: u64| of_thread("new", threads, number);
        let part = count.div_ceil(threads);
        in_threads(threads, |number| stat(&old(number), part))?;
        step(&format!("stat-{threads}"));
        in_threads(threads, |number| list(&old(number)))?;
        step(&format!("readdir-{threads}"));
        in_threads(threads, |number| create(&new(number), part))?;
        step(&format!("create-{threads}"));
        in_threads(threads, |number| unlink(&old(number), part))?;
        step(&format!("unlink-{threads}"));
    }
    Ok(())
}

/// Makes the files of `old` for [`by_threads`].
pub fn fill_for_threads(place: &Path, count: u64) -> Result<()> {
    for threads in THREADS {
        for number in 0..threads {
            let directory = place.join(of_thread("old", threads, number));
            create(&directory, count.div_ceil(threads))?;
        }
    }
    Ok(())
}

fn of_thread(age: &str, threads: u64, number: u64) -> PathBuf {
    [age, &threads.to_string(), &number.to_string()]
        .iter()
        .collect()
}

pub fn create(directory: &Path, count: u64) -> Result<()> {
    fs::create_dir_all(directory).describe("make", directory)?;
    each(directory, count, |file| {
        fs::write(file, [b'f'; FILE_BYTES]).describe("write", file)
    })
}

pub fn stat(directory: &Path, count: u64) -> Result<()> {
    each(directory, count, |file| {
        fs::symlink_metadata(file)
            .map(|_| ())
            .describe("examine", file)
    })
}

pub fn unlink(directory: &Path, count: u64) -> Result<()> {
    each(directory, count, |file| {
        fs::remove_file(file).describe("remove", file)
    })
}

fn list(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).describe("list", directory)? {
        entry.describe("list", directory)?;
    }
    Ok(())
}

fn each(directory: &Path, count: u64, action: impl Fn(&Path) -> Result<()>) -> Result<()> {
    (0..count).try_for_each(|number| {
        let file: PathBuf = directory.join(number.to_string());
        action(&file)
    })
}
