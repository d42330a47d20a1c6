//! Hard links: several names for one file, in one directory and across directories. Some
//! existed before, some are added, some are removed.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;

use crate::check::{Outcome, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "hard_links",
    prepare,
    run,
    child: process::none,
};

fn prepare() -> Outcome {
    fs::create_dir_all("here")?;
    fs::create_dir_all("there/below")?;
    fs::write("here/one", b"two old names")?;
    fs::hard_link("here/one", "there/two")?;
    fs::write("single", b"one old name")?;
    fs::write("here/many 0", b"many old names")?;
    for number in 1..20 {
        fs::hard_link("here/many 0", format!("there/many {number}"))?;
    }
    fs::write("here/left alone", b"by everyone")?;
    fs::hard_link("here/left alone", "there/left alone")?;
    Ok(())
}

fn run() -> Outcome {
    one_file("here/one", "there/two", 2)?;
    write_through_either()?;
    add_names()?;
    take_names_away()?;
    rename_onto_itself()?;
    errors()
}

/// Both names must lead to one object with the right link count.
#[track_caller]
fn one_file(left: &str, right: &str, names: u64) -> Outcome {
    let (left, right) = (fs::symlink_metadata(left)?, fs::symlink_metadata(right)?);
    same("inode", left.ino(), right.ino())?;
    same("device", left.dev(), right.dev())?;
    same("names", (left.nlink(), right.nlink()), (names, names))
}

fn append(path: &str, text: &str) -> Outcome {
    Ok(OpenOptions::new()
        .append(true)
        .open(path)?
        .write_all(text.as_bytes())?)
}

fn write_through_either() -> Outcome {
    append("here/one", ", written through the first")?;
    append("there/two", ", and the second")?;
    let expected = "two old names, written through the first, and the second";
    same("first", fs::read_to_string("here/one")?.as_str(), expected)?;
    same(
        "second",
        fs::read_to_string("there/two")?.as_str(),
        expected,
    )?;
    let mut permissions = fs::metadata("here/one")?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o611);
    fs::set_permissions("there/two", permissions)?;
    same("mode", fs::metadata("here/one")?.mode() & 0o7777, 0o611)
}

fn add_names() -> Outcome {
    fs::hard_link("here/one", "there/below/three")?;
    one_file("there/two", "there/below/three", 3)?;
    fs::hard_link("single", "no more single")?;
    one_file("single", "no more single", 2)?;
    // A new file gets a second name, is renamed, and gets a third.
    fs::write("new", b"new")?;
    fs::hard_link("new", "here/new")?;
    fs::rename("new", "renamed")?;
    fs::hard_link("renamed", "there/new")?;
    one_file("here/new", "there/new", 3)
}

fn take_names_away() -> Outcome {
    fs::remove_file("here/one")?;
    one_file("there/two", "there/below/three", 2)?;
    for number in (1..20).step_by(2) {
        fs::remove_file(format!("there/many {number}"))?;
    }
    one_file("here/many 0", "there/many 2", 10)?;
    append("there/many 4", ", fewer now")?;
    // The name is used again for another file.
    fs::remove_file("there/many 6")?;
    fs::write("there/many 6", b"another file")?;
    one_file("here/many 0", "there/many 8", 9)?;
    // A rename of another file onto one of the names takes that name away.
    fs::write("newcomer", b"takes the place of a name")?;
    fs::rename("newcomer", "there/many 10")?;
    one_file("here/many 0", "there/many 12", 8)
}

/// POSIX: renaming a file onto another of its own names does nothing.
fn rename_onto_itself() -> Outcome {
    fs::rename("there/two", "there/below/three")?;
    one_file("there/two", "there/below/three", 2)
}

fn errors() -> Outcome {
    let link = |from: &str, to: &str| linkat(CWD, from, CWD, to, AtFlags::empty());
    refused("of a directory", link("here", "here too"), Errno::PERM)?;
    refused("to a name in use", link("single", "renamed"), Errno::EXIST)?;
    refused("of nothing", link("nothing", "something"), Errno::NOENT)?;
    refused("into nothing", link("single", "nothing/name"), Errno::NOENT)?;
    refused(
        "to another file system",
        link("single", "/dev/name"),
        Errno::XDEV,
    )
}
