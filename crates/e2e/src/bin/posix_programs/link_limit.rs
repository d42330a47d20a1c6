//! As many names for one file as the file system allows.

use std::fs;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use crate::check::{Outcome, ensure, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "link_limit",
    prepare,
    run,
    child: process::none,
};

/// More than ext4 (65 000) allows; others, such as XFS, allow far more.
const LINKS_MAX: u64 = 70_000;

fn prepare() -> Outcome {
    fs::create_dir("names")?;
    Ok(fs::write("file", b"one name")?)
}

fn run() -> Outcome {
    let mut links = 1;
    while links < LINKS_MAX {
        match linkat(CWD, "file", CWD, format!("names/{links}"), AtFlags::empty()) {
            Ok(()) => links += 1,
            Err(Errno::MLINK) => break,
            Err(error) => return Err(error.into()),
        }
    }
    println!("{links} names");
    same("links", fs::metadata("file")?.nlink(), links)?;
    ensure(links > 1000, format!("only {links} names"))?;
    Ok(fs::write("file", format!("{links} names"))?)
}
