//! A tree deeper than any path that the kernel accepts, walked one step at a time.

use std::fs;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, mkdirat, openat, renameat, statat};
use rustix::io::{Errno, read, write};

use crate::check::{Outcome, ensure, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "deep_directories",
    prepare,
    run,
    child: process::none,
};

const LEVELS: usize = 60;

/// 60 of these and their slashes are 12 000 bytes, three times the longest path.
fn level(number: usize) -> String {
    format!("{number:02}{}", "d".repeat(198))
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn prepare() -> Outcome {
    fs::create_dir("old")?;
    fs::create_dir("doomed")?;
    for top in ["old", "doomed"] {
        let bottom = descend(top, LEVELS, true)?;
        put(&bottom, "bottom", b"at the very bottom")?;
    }
    Ok(())
}

fn run() -> Outcome {
    fs::create_dir("new")?;
    let bottom = descend("new", LEVELS, true)?;
    put(&bottom, "bottom", b"at the very bottom, and new")?;

    let old = descend("old", LEVELS, false)?;
    same("old", get(&old, "bottom")?, b"at the very bottom".to_vec())?;
    put(&old, "beside", b"made beside it")?;
    linkat(&old, "bottom", CWD, "from the bottom", AtFlags::empty())?;
    renameat(&bottom, "bottom", &old, "from the new one")?;

    too_long_as_one_path()?;
    half_of_it_moves()?;
    removed_whole()
}

fn descend(top: &str, levels: usize, make: bool) -> Outcome<OwnedFd> {
    let mut place = openat(CWD, top, DIRECTORY, Mode::empty())?;
    for number in 0..levels {
        if make {
            mkdirat(&place, level(number), Mode::from_raw_mode(0o755))?;
        }
        place = openat(&place, level(number), DIRECTORY, Mode::empty())?;
    }
    Ok(place)
}

fn put(directory: &OwnedFd, name: &str, contents: &[u8]) -> Outcome {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let file = openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
    same("written", write(file, contents)?, contents.len())
}

fn get(directory: &OwnedFd, name: &str) -> Outcome<Vec<u8>> {
    let mut buffer = vec![0; 100];
    let length = read(
        openat(directory, name, OFlags::RDONLY, Mode::empty())?,
        &mut buffer,
    )?;
    buffer.truncate(length);
    Ok(buffer)
}

fn too_long_as_one_path() -> Outcome {
    let names: Vec<String> = (0..LEVELS).map(level).collect();
    let path = format!("old/{}/bottom", names.join("/"));
    refused(
        "as one path",
        statat(CWD, path, AtFlags::empty()),
        Errno::NAMETOOLONG,
    )
}

/// The bottom directory, which is open, moves along.
fn half_of_it_moves() -> Outcome {
    let bottom = descend("old", LEVELS, false)?;
    let middle = descend("old", LEVELS / 2, false)?;
    renameat(&middle, level(LEVELS / 2), CWD, "lower half")?;
    same(
        "still there",
        get(&bottom, "beside")?,
        b"made beside it".to_vec(),
    )?;
    put(&bottom, "after the move", b"where the bottom is now")?;
    let mut place = openat(CWD, "lower half", DIRECTORY, Mode::empty())?;
    for number in LEVELS / 2 + 1..LEVELS {
        place = openat(&place, level(number), DIRECTORY, Mode::empty())?;
    }
    same(
        "by its new path",
        get(&place, "after the move")?,
        b"where the bottom is now".to_vec(),
    )?;
    let inside = renameat(CWD, "lower half", &place, "inside itself");
    refused("into itself", inside, Errno::INVAL)
}

fn removed_whole() -> Outcome {
    let status = Command::new("rm").args(["-rf", "doomed"]).status()?;
    ensure(status.success(), format!("rm ended with {status}"))?;
    refused(
        "doomed",
        statat(CWD, "doomed", AtFlags::empty()),
        Errno::NOENT,
    )
}
