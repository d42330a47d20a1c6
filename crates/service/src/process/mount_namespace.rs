//! Root's service works in the mount namespace of the machine's first process, whatever namespace
//! its starter is in. There its views appear for everybody, and the mounts inside the store that it
//! sees are those that everybody sees.
//!
//! It stays where it is if the store's path leads to something else there, as for a store in a
//! container that has no process namespace of its own.

use crate::ServiceError;
use atomdir::StoreLocation;
use rustix::fs::{CWD, Mode, OFlags, StatVfsMountFlags, openat, stat, statvfs};
use rustix::io::Errno;
use rustix::process::{chroot, fchdir, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};

const OWN: &str = "/proc/self/ns/mnt";
const FIRST: &str = "/proc/1/ns/mnt";

/// The process must have only one thread.
pub(crate) fn enter_first(location: &StoreLocation) -> Result<(), ServiceError> {
    if !geteuid().is_root()
        || is_same(OWN, FIRST)
        || !is_same("/proc/self/ns/user", "/proc/1/ns/user")
    {
        return Ok(());
    }
    let (Ok(own), Ok(first), Ok(root)) = (open(OWN), open(FIRST), open_root()) else {
        return Ok(());
    };
    let here = identity(location);
    let kind = Some(LinkNameSpaceType::Mount);
    if move_into_link_name_space(first.as_fd(), kind).is_err() {
        // Some sandboxes forbid it.
        return Ok(());
    }
    if here.is_some() && identity(location) == here {
        return Ok(());
    }
    // Entering a namespace also changes the root directory.
    let back = move_into_link_name_space(own.as_fd(), kind)
        .and_then(|()| fchdir(&root))
        .and_then(|()| chroot(c"."))
        .and_then(|()| rustix::process::chdir(c"/"));
    back.map_err(|errno| ServiceError::Process {
        operation: "returning to its mount namespace",
        errno,
    })
}

/// What the store's paths lead to, and whether it can be changed there. `None` if they lead to
/// nothing.
fn identity(location: &StoreLocation) -> Option<[(u64, u64, bool); 2]> {
    let one = |path| {
        let found = stat(path).ok()?;
        let flags = statvfs(path).ok()?.f_flag;
        let is_read_only = flags.contains(StatVfsMountFlags::RDONLY);
        Some((found.st_dev, found.st_ino, is_read_only))
    };
    Some([one(&location.root)?, one(&location.control)?])
}

fn is_same(one: &str, other: &str) -> bool {
    match (stat(one), stat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        // It cannot be entered either.
        _ => true,
    }
}

fn open(path: &str) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn open_root() -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, c"/", flags, Mode::empty())
}
