//! Files that are made without a name and get one when they are complete.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, XattrFlags, fchmod, fsetxattr, linkat, openat};
use rustix::io::Errno;

use crate::check::{Outcome, pattern, refused, same};
use crate::process;

pub const PROGRAM: crate::Program = crate::Program {
    name: "temporary_files",
    prepare,
    run,
    child: process::none,
};

fn prepare() -> Outcome {
    fs::create_dir("inbox")?;
    fs::create_dir("spool")?;
    fs::write("inbox/taken", b"already here")?;
    Ok(())
}

fn run() -> Outcome {
    named_through_proc()?;
    named_by_descriptor()?;
    never_named()?;
    never_to_be_named()?;
    named_in_another_directory()
}

fn temporary(directory: &str, flags: OFlags) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags;
    openat(CWD, directory, flags, Mode::from_raw_mode(0o640)).map(File::from)
}

fn link_through_proc(file: &File, path: &str) -> Result<(), Errno> {
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW)
}

fn named_through_proc() -> Outcome {
    let mut file = temporary("inbox", OFlags::empty())?;
    same("links before", file.metadata()?.nlink(), 0)?;
    file.write_all(&pattern(1, 100_000))?;
    fchmod(file.as_fd(), Mode::from_raw_mode(0o604))?;
    fsetxattr(file.as_fd(), "user.from", b"nowhere", XattrFlags::CREATE)?;
    same("names in sight", fs::read_dir("inbox")?.count(), 1)?;
    refused(
        "a name in use",
        link_through_proc(&file, "inbox/taken"),
        Errno::EXIST,
    )?;
    link_through_proc(&file, "inbox/message")?;
    same("links after", file.metadata()?.nlink(), 1)?;
    same(
        "under its name",
        fs::read("inbox/message")?,
        pattern(1, 100_000),
    )?;
    link_through_proc(&file, "inbox/second name")?;
    file.write_all(b"and more after it was named")?;
    Ok(())
}

fn named_by_descriptor() -> Outcome {
    let mut file = temporary(".", OFlags::empty())?;
    file.write_all(b"by the descriptor alone")?;
    linkat(&file, "", CWD, "by descriptor", AtFlags::EMPTY_PATH)?;
    same(
        "inode",
        fs::metadata("by descriptor")?.ino(),
        file.metadata()?.ino(),
    )
}

fn never_named() -> Outcome {
    let mut file = temporary("spool", OFlags::empty())?;
    file.write_all(&pattern(2, 300_000))?;
    same("names in sight", fs::read_dir("spool")?.count(), 0)?;
    same("length", file.metadata()?.len(), 300_000)
}

fn never_to_be_named() -> Outcome {
    let file = temporary("spool", OFlags::EXCL)?;
    refused(
        "O_EXCL",
        link_through_proc(&file, "spool/name"),
        Errno::NOENT,
    )
}

fn named_in_another_directory() -> Outcome {
    let mut file = temporary("spool", OFlags::empty())?;
    file.write_all(b"from spool to inbox")?;
    link_through_proc(&file, "inbox/delivered")?;
    drop(file);
    same(
        "delivered",
        fs::read("inbox/delivered")?,
        b"from spool to inbox".to_vec(),
    )
}
