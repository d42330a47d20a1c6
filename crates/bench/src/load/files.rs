//! Many small files.

use std::fs;
use std::path::{Path, PathBuf};

use super::step;
use crate::error::{Describe, Result};

const FILE_BYTES: usize = 1024;

/// Works on the files of `old`, which are there, and makes those of `new`.
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
    Ok(())
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
