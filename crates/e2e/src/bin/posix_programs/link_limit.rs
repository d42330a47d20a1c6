//! As many names for one file as the file system allows, and one more.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use crate::check::{Outcome, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "link_limit",
    prepare,
    run,
    child: process::none,
};

/// More than ext4 allows (65 000). Others, such as XFS, allow far more; then nothing is
/// refused inside or outside.
const LINKS_MAX: u64 = 70_000;
const LEFT: u64 = 20;

fn prepare() -> Outcome {
    fs::create_dir("names")?;
    fs::write("file", b"many names")?;
    let links = link_from(1)?;
    (links - LEFT..links).try_for_each(|number| Ok(fs::remove_file(format!("names/{number}"))?))
}

fn run() -> Outcome {
    let links = link_from(fs::metadata("file")?.nlink())?;
    println!("{links} names");
    same("links", fs::metadata("file")?.nlink(), links)?;
    // When one name is removed, there is room for another.
    fs::remove_file("names/1")?;
    fs::hard_link("file", "names/again")?;
    Ok(fs::write("file", format!("{links} names"))?)
}

/// Goes on from so many names to the limit, and returns how many there are.
fn link_from(mut links: u64) -> Outcome<u64> {
    while links < LINKS_MAX {
        match linkat(CWD, "file", CWD, format!("names/{links}"), AtFlags::empty()) {
            Ok(()) => links += 1,
            Err(Errno::MLINK) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(links)
}
