//! Stores cannot be nested: the outer one would move the inner one's control files.

use super::{Root, control};
use crate::location::is_root;
use crate::{CONTROL_NAME, InitError};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub(super) fn check_above(root: &Root) -> Result<(), InitError> {
    match store_above(&root.path) {
        None => Ok(()),
        Some(store) => Err(InitError::InsideStore {
            path: root.path.clone(),
            store: store.to_owned(),
        }),
    }
}

pub(super) fn store_above(path: &Path) -> Option<&Path> {
    // An entry that a stranger made, for example in /tmp, does not make it a store.
    path.ancestors().skip(1).find(|above| is_root(above))
}

/// Walks every directory on the root's file system, and skips those that it may
/// not read: this user's transactions cannot reach them, either.
pub(super) fn check_below(root: &Root) -> Result<(), InitError> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(relative) = waiting.pop() {
        let directory = match open(root, &relative) {
            Ok(Some(directory)) => directory,
            Ok(None) => continue,
            Err(errno) => return Err(root.failed("walking it")(errno)),
        };
        let found = scan(&directory, &relative, &mut waiting);
        if found.map_err(root.failed("walking it"))? {
            return Err(InitError::HoldsStore {
                path: root.path.clone(),
                store: root.path.join(relative),
            });
        }
    }
    Ok(())
}

fn open(root: &Root, relative: &Path) -> Result<Option<OwnedFd>, Errno> {
    match open_deep(&root.handle, relative) {
        Ok(directory) if fstat(&directory)?.st_dev == root.device => Ok(Some(directory)),
        Ok(_) => Ok(None),
        // It was removed or changed since we listed it, or we may not read it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Opens one name at a time: a tree may be deeper than the longest path.
fn open_deep(root: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = openat(root, ".", flags, Mode::empty())?;
    for name in relative {
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(directory)
}

/// Adds the directories in `directory` to `waiting`. Returns whether it is a
/// store's root.
fn scan(directory: &OwnedFd, relative: &Path, waiting: &mut Vec<PathBuf>) -> Result<bool, Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(directory, name)?,
            kind => kind,
        };
        if name.to_bytes() == CONTROL_NAME.as_bytes() && control::is_control(kind) {
            return Ok(true);
        }
        if kind == FileType::Directory {
            waiting.push(relative.join(OsStr::from_bytes(name.to_bytes())));
        }
    }
    Ok(false)
}

fn kind_of(directory: &OwnedFd, name: &CStr) -> Result<FileType, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode)),
        Err(Errno::NOENT) => Ok(FileType::Unknown),
        Err(errno) => Err(errno),
    }
}
