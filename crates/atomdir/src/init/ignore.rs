//! Keeps git away from the control directory, for stores in a work tree.
//!
//! Without it `git add --all` would add the log and staged files to the index, and
//! `git clean -d` would remove the store's control directory.

use rustix::fs::{AtFlags, Mode, OFlags, fsync, openat, renameat, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const NAME: &str = ".gitignore";
const NAME_NEW: &str = ".gitignore.new";
const CONTENTS: &[u8] = b"*\n";
const MODE: u32 = 0o600;

/// The file is durable when this returns. An existing file is left as it is.
pub(super) fn write(control: &OwnedFd) -> Result<(), Errno> {
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
