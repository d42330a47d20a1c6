//! Keeps git and Mercurial away from the control directory, for stores in a work tree.
//!
//! Without it `git add --all` and `hg addremove` would add the log and staged files to the index,
//! and `git clean -d` and `hg purge` would remove the store's control directory. Git reads a file
//! of patterns in the control directory. Mercurial reads such a file only in the root of the work
//! tree, which belongs to the user. But it takes a directory with a directory `.hg` in it for a
//! repository of its own, and leaves that alone.

use rustix::fs::{AtFlags, Mode, OFlags, fsync, mkdirat, openat, renameat, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const NAME: &str = ".gitignore";
const NAME_NEW: &str = ".gitignore.new";
const CONTENTS: &[u8] = b"*\n";
const MODE: u32 = 0o600;
const MERCURIAL: &str = ".hg";
const DIRECTORY_MODE: u32 = 0o700;

/// What this makes is durable when it returns. What exists is left as it is.
pub(super) fn write(control: &OwnedFd) -> Result<(), Errno> {
    match mkdirat(control, MERCURIAL, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) => fsync(control)?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    match statat(control, NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {}
        found => return found.map(|_| ()),
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(control, NAME_NEW, flags, Mode::from_raw_mode(MODE))?;
    if rustix::io::write(&file, CONTENTS)? != CONTENTS.len() {
        return Err(Errno::IO);
    }
    fsync(&file)?;
    renameat(control, NAME_NEW, control, NAME)?;
    fsync(control)
}
