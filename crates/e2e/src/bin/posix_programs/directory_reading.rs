//! Reads large directories while they change. An entry that was there all the time is
//! listed exactly once, whatever else is added and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{DirEntryExt, MetadataExt};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};

use crate::check::{Outcome, ensure, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "directory_reading",
    prepare,
    run,
    child: process::none,
};

const OLD: usize = 2500;
const NEW: usize = 2500;

fn prepare() -> Outcome {
    fs::create_dir("mixed")?;
    fs::create_dir("doomed")?;
    for number in 0..OLD {
        File::create(format!("mixed/old {number}"))?;
    }
    for number in 0..1000 {
        File::create(format!("doomed/old {number}"))?;
    }
    Ok(())
}

fn run() -> Outcome {
    for number in 0..NEW {
        File::create(format!("mixed/new {number}"))?;
    }
    types_and_numbers()?;
    positions()?;
    changed_while_read()?;
    emptied_while_read()
}

fn open(path: &str) -> Outcome<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    Ok(Dir::new(openat(CWD, path, flags, Mode::empty())?)?)
}

fn next_name(directory: &mut Dir) -> Outcome<Option<String>> {
    match directory.next() {
        Some(entry) => Ok(Some(entry?.file_name().to_string_lossy().into_owned())),
        None => Ok(None),
    }
}

fn names(directory: &mut Dir) -> Outcome<Vec<String>> {
    std::iter::from_fn(|| next_name(directory).transpose()).collect()
}

/// A listing reports the same for each name as stat(2), except that overlayfs numbers directories
/// itself.
fn types_and_numbers() -> Outcome {
    fs::create_dir("mixed/directory")?;
    std::os::unix::fs::symlink("nowhere", "mixed/link")?;
    let mut listed = 0;
    for entry in fs::read_dir("mixed")? {
        let entry = entry?;
        let found = fs::symlink_metadata(entry.path())?;
        if !found.is_dir() {
            same("inode", entry.ino(), found.ino())?;
        }
        same("type", entry.file_type()?, found.file_type())?;
        listed += 1;
    }
    same("listed", listed, OLD + NEW + 2)?;
    let mut dots = BTreeMap::new();
    for entry in open("mixed")? {
        let entry = entry?;
        if entry.file_name().to_bytes().starts_with(b".") {
            dots.insert(entry.file_name().to_owned(), entry.file_type());
        }
    }
    let expected = [c".", c".."].map(|name| (name.to_owned(), FileType::Directory));
    same("dots", dots, BTreeMap::from(expected))
}

/// Reads to some place, reads on, goes back to the place and reads the same again.
fn positions() -> Outcome {
    let mut directory = open("mixed")?;
    for _ in 0..3000 {
        next_name(&mut directory)?;
    }
    let place = directory
        .next()
        .map(|entry| entry.map(|entry| entry.offset()))
        .transpose()?;
    let after = names(&mut directory)?;
    if let Some(place) = place {
        directory.seek(place)?;
        same("from the same place", names(&mut directory)? == after, true)?;
    }
    directory.rewind();
    same(
        "from the start",
        names(&mut directory)?.len(),
        OLD + NEW + 4,
    )
}

fn changed_while_read() -> Outcome {
    let mut directory = open("mixed")?;
    let mut seen = Vec::new();
    while let Some(name) = next_name(&mut directory)? {
        // Every other old entry is removed once it has been seen, and new ones are added.
        if seen.len() % 4 == 0 {
            File::create(format!("mixed/later {}", seen.len()))?;
        }
        if let Some(number) = name.strip_prefix("old ")
            && number.ends_with(['0', '2', '4', '6', '8'])
        {
            fs::remove_file(format!("mixed/{name}"))?;
        }
        seen.push(name);
    }
    let distinct: BTreeSet<&String> = seen.iter().collect();
    same("each at most once", distinct.len(), seen.len())?;
    for kind in ["old", "new"] {
        let count = seen.iter().filter(|name| name.starts_with(kind)).count();
        same(kind, count, if kind == "old" { OLD } else { NEW })?;
    }
    for (index, name) in seen.iter().enumerate() {
        if index % 4 == 0 {
            fs::remove_file(format!("mixed/later {index}"))?;
        }
        ensure(!name.is_empty(), "an empty name")?;
    }
    Ok(())
}

/// Reads some entries, removes them and reads on, as `rm -r` does.
fn emptied_while_read() -> Outcome {
    for number in 0..4000 {
        File::create(format!("doomed/new {number}"))?;
    }
    let mut directory = open("doomed")?;
    while let Some(name) = next_name(&mut directory)? {
        if !name.starts_with('.') {
            fs::remove_file(format!("doomed/{name}"))?;
        }
    }
    Ok(fs::remove_dir("doomed")?)
}
