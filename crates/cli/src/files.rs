//! Reads whole files for showing them.

use rustix::buffer::spare_capacity;
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Never follows a symbolic link at the last name.
pub fn read_at(directory: impl AsFd, path: impl rustix::path::Arg) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, path, flags, Mode::empty())?;
    let mut contents = Vec::new();
    loop {
        contents.reserve(64 << 10);
        let read = || rustix::io::read(&file, spare_capacity(&mut contents));
        if retry_on_intr(read)? == 0 {
            return Ok(contents);
        }
    }
}

/// The directory that holds the last name of `path`, and that name: paths may
/// be longer than the kernel takes at once. The root's own name is empty.
pub fn open_parent<'a>(root: &OwnedFd, path: &'a [u8]) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
    let mut names = path
        .split(|byte| *byte == b'/')
        .map(OsStr::from_bytes)
        .peekable();
    let mut name = OsStr::new("");
    while let Some(next) = names.next() {
        name = next;
        if names.peek().is_some() {
            directory = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
        }
    }
    Ok((directory, name))
}
