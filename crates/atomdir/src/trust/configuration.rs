//! The caller's own configuration: `atomdir/config` in `$XDG_CONFIG_HOME`, by
//! default in `~/.config`. It lists other users' stores that the caller trusts, one
//! a line:
//!
//! ```text
//! # Comments and empty lines are skipped, as are words this version does not know.
//! trust /srv/site
//! ```
//!
//! Only a file that nobody else could have written counts. The environment may name
//! another user's directory (root's HOME under `sudo -E`). Such a directory is
//! ignored, and the home from the user database is used.

use super::Owned;
use crate::accounts::Account;
use crate::environment;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &str = "atomdir/config";
const LENGTH_MAX: usize = 1 << 20;

/// Whether the configuration lists this store.
pub(crate) fn lists(root: &Path) -> bool {
    let Some(directory) = directory() else {
        return false;
    };
    match read(&directory) {
        Ok(Some(contents)) => trusted(&contents).any(|listed| listed == root),
        _ => false,
    }
}

/// Where the file is, or would be.
pub(crate) fn path() -> Option<PathBuf> {
    directory().map(|directory| directory.join(NAME))
}

fn directory() -> Option<PathBuf> {
    let variable = |name| environment::variable(name).map(PathBuf::from);
    let named = variable("XDG_CONFIG_HOME");
    let home = variable("HOME").map(|home| home.join(".config"));
    let own = || Account::of(geteuid().as_raw()).map(|account| account.home.join(".config"));
    let mut candidates = named.into_iter().chain(home);
    candidates
        .find(|directory| directory.is_absolute() && is_own(directory))
        .or_else(own)
}

/// A directory that does not exist yet counts as the caller's if its parent does.
fn is_own(directory: &Path) -> bool {
    let is_closed = |owned: Owned| owned.check_closed().is_ok();
    match Owned::at(directory) {
        Ok(owned) => is_closed(owned),
        Err(Errno::NOENT) => directory
            .parent()
            .is_some_and(|above| Owned::at(above).is_ok_and(is_closed)),
        Err(_) => false,
    }
}

/// Returns `None` if somebody else may have written the file.
fn read(directory: &Path) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = directory.join(NAME);
    if let Some(holder) = path.parent()
        && Owned::at(holder)?.check_closed().is_err()
    {
        return Ok(None);
    }
    let file = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_file || Owned::new(directory, &file)?.check_closed().is_err() {
        return Ok(None);
    }
    read_all(&file).map(Some)
}

fn read_all(file: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut contents = Vec::new();
    let mut part = [0; 4096];
    while contents.len() < LENGTH_MAX {
        match rustix::io::retry_on_intr(|| rustix::io::read(file, &mut part))? {
            0 => break,
            count => contents.extend_from_slice(&part[..count]),
        }
    }
    Ok(contents)
}

fn trusted(contents: &[u8]) -> impl Iterator<Item = &Path> {
    contents.split(|byte| *byte == b'\n').filter_map(|line| {
        let path = line.trim_ascii().strip_prefix(b"trust ")?;
        Some(Path::new(OsStr::from_bytes(path.trim_ascii())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_line_lists_one_store() {
        let contents = b"# trust /no\n\ntrust /srv/a b\n  trust /srv/c/ \ntrusted /d\ntrust\n/e";
        let listed: Vec<&Path> = trusted(contents).collect();
        assert_eq!(listed, [Path::new("/srv/a b"), Path::new("/srv/c")]);
    }
}
