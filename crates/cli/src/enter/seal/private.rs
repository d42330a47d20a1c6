//! Directories that a confined command finds private or empty: `/tmp` and the like, the home, and
//! the directory of the user's sockets.
//!
//! Each is covered by a new file system in memory. In it the store's path and the places that the
//! user has named are made again, and their mounts attached, before the view is bound. So the
//! command sees the way to them, symbolic links included, and nothing beside it. Other mounts that
//! show such a directory are covered in the same way.

use super::{Errno, places, set_attributes};
use crate::enter::c_path;
use atomdir::client::mounts::Mount;
use rustix::fs::{CWD, FileType, Mode, mkdirat, mknodat, readlink, stat, symlinkat};
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, move_mount, open_tree};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The most places that may be named of each kind: their descriptors are kept without allocating.
pub const NAMED_MAX: usize = 64;

/// A directory that the command is to find without its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Private {
    /// Without symbolic links.
    pub path: PathBuf,
    /// Whether the command may make files there, which end with it.
    pub is_writable: bool,
}

/// What is left visible.
pub(super) struct Kept<'a> {
    pub(super) base: &'a Path,
    pub(super) writable: &'a [PathBuf],
    pub(super) readable: &'a [PathBuf],
    /// Symbolic links on the way to these.
    pub(super) links: &'a [PathBuf],
}

/// A private directory, ready to be made.
struct Made {
    path: CString,
    is_writable: bool,
    inside: Vec<(CString, Inside)>,
}

/// An object that is made in a private directory on the way to a kept place.
#[derive(Debug, PartialEq, Eq)]
enum Inside {
    Directory,
    /// The place of a file.
    File,
    /// A symbolic link with this target.
    Link(CString),
}

pub(super) struct Privates {
    made: Vec<Made>,
    /// Places that are attached again, read-only.
    readable: Vec<CString>,
}

/// Clones of the mounts at these places.
pub(super) type Copies = [Option<OwnedFd>; NAMED_MAX];

/// Also the other places where mounts show these directories.
pub(super) fn with_other_places(wanted: &[Private], mounts: &[Mount]) -> io::Result<Vec<Private>> {
    let mut all = wanted.to_vec();
    for one in wanted {
        let elsewhere = places::elsewhere(mounts, &one.path)?;
        all.extend(elsewhere.into_iter().map(|path| Private {
            path,
            is_writable: false,
        }));
    }
    Ok(all)
}

impl Privates {
    pub(super) fn prepare(wanted: &[Private], kept: &Kept<'_>) -> io::Result<Privates> {
        let named = || kept.writable.iter().chain(kept.readable);
        let mut chosen: Vec<&Private> = Vec::new();
        let mut sorted: Vec<&Private> = wanted.iter().collect();
        sorted.sort_by(|a, b| a.path.cmp(&b.path));
        for one in sorted {
            // What is in the store is in the view, and what the user has named is shown.
            let is_shown = one.path.starts_with(kept.base)
                || named().any(|place| one.path.starts_with(place))
                || chosen.iter().any(|above| one.path.starts_with(&above.path));
            if !is_shown && one.path != Path::new("/") && stat(&one.path).is_ok() {
                chosen.push(one);
            }
        }
        let is_covered = |place: &&PathBuf| chosen.iter().any(|one| place.starts_with(&one.path));
        let readable = kept.readable.iter().filter(is_covered);
        let readable = readable.take(NAMED_MAX).map(|place| Ok(c_path(place)?));
        let readable = readable.collect::<io::Result<_>>()?;
        let made = chosen.iter().map(|one| {
            let mut inside = Vec::new();
            for place in named().map(PathBuf::as_path).chain([kept.base]) {
                way_to(place, &one.path, &mut inside)?;
            }
            for link in kept.links {
                let above = link.parent().unwrap_or(link);
                if above.starts_with(&one.path)
                    && let Ok(target) = readlink(link, Vec::new())
                {
                    way_to(above, &one.path, &mut inside)?;
                    inside.push((c_path(link)?, Inside::Link(target)));
                }
            }
            Ok(Made {
                path: c_path(&one.path)?,
                is_writable: one.is_writable,
                inside,
            })
        });
        Ok(Privates {
            made: made.collect::<io::Result<_>>()?,
            readable,
        })
    }

    /// Only makes system calls. Everything else is read-only already.
    pub(super) fn make(&self) -> Result<(), Errno> {
        let copies = copy(&self.readable)?;
        for one in &self.made {
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            let options = match one.is_writable {
                true => c"mode=1777",
                false => c"mode=0755,size=1m",
            };
            mount(c"atomdir-private", &*one.path, c"tmpfs", flags, options)?;
            for (path, kind) in &one.inside {
                let made = match kind {
                    Inside::Directory => mkdirat(CWD, &**path, Mode::from_raw_mode(0o755)),
                    Inside::File => mknodat(CWD, &**path, FileType::RegularFile, Mode::RUSR, 0),
                    Inside::Link(target) => symlinkat(&**target, CWD, &**path),
                };
                match made {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        attach(&self.readable, &copies)
    }

    /// When all is attached: keeps the command from writing where it shall find nothing.
    pub(super) fn close(&self) -> Result<(), Errno> {
        let closed = self.made.iter().filter(|one| !one.is_writable);
        closed
            .into_iter()
            .try_for_each(|one| set_attributes(&one.path, 0, libc::MOUNT_ATTR_RDONLY, 0))
    }
}

/// Notes what must be made in a directory so that `place` exists there.
fn way_to(place: &Path, directory: &Path, inside: &mut Vec<(CString, Inside)>) -> io::Result<()> {
    let Ok(below) = place.strip_prefix(directory) else {
        return Ok(());
    };
    let mut path = directory.to_owned();
    for part in below {
        path.push(part);
        let is_directory = stat(&path)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory);
        let kind = match is_directory {
            true => Inside::Directory,
            false => Inside::File,
        };
        inside.push((c_path(&path)?, kind));
    }
    Ok(())
}

pub(super) fn copy(places: &[CString]) -> Result<Copies, Errno> {
    let mut copies = [const { None }; NAMED_MAX];
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    for (place, copy) in places.iter().zip(&mut copies) {
        *copy = Some(open_tree(CWD, &**place, flags)?);
    }
    Ok(copies)
}

pub(super) fn attach(places: &[CString], copies: &Copies) -> Result<(), Errno> {
    for (place, copy) in places.iter().zip(copies) {
        if let Some(copy) = copy {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            move_mount(copy, c"", CWD, &**place as &CStr, flags)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
