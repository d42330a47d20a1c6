//! The parts of a command's surroundings that are the same as outside of its views: file systems that are
//! mounted inside the stores, single files of the stores, and directories that it may only read.
//!
//! A view shows an empty object for each mount point. [`Prepared`] attaches the mounts, and the files, to
//! the views; it runs between fork and exec, see [`super::namespace`].

use super::c_path;
use super::private_root::outermost;
use super::seal::set_attributes;
use atomdir::hosting::sync;
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, mount_bind_recursive, move_mount, open_tree};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// What is the same in a view as outside: mounts, files and directories.
#[derive(Debug, Default)]
pub struct Around {
    /// Mounts in the places of the stores, and files.
    shown: Vec<PathBuf>,
    read_only: Vec<PathBuf>,
}

impl Around {
    /// All that is mounted in these stores stays visible, `files` are those outside, and `read_only`
    /// cannot be changed.
    pub fn of_stores(
        roots: &[&Path],
        files: Vec<PathBuf>,
        read_only: Vec<PathBuf>,
    ) -> Result<Around, Errno> {
        let mut points = atomdir::client::mounts::mount_points()?;
        let is_below = |point: &Path, root: &Path| point != root && point.starts_with(root);
        points.retain(|point| roots.iter().any(|root| is_below(point, root)));
        points.extend(files);
        Ok(Around {
            shown: outermost(points),
            read_only,
        })
    }
}

pub(super) struct Prepared {
    shown: Vec<CString>,
    read_only: Vec<CString>,
    /// A mount of each, in memory that was allocated before the fork.
    clones: Mutex<Vec<Option<OwnedFd>>>,
}

impl Prepared {
    pub(super) fn new(around: &Around) -> io::Result<Prepared> {
        let paths = |paths: &[PathBuf]| {
            let paths = paths.iter().map(|path| Ok(c_path(path)?));
            paths.collect::<io::Result<Vec<CString>>>()
        };
        Ok(Prepared {
            shown: paths(&around.shown)?,
            read_only: paths(&around.read_only)?,
            clones: Mutex::new(around.shown.iter().map(|_| None).collect()),
        })
    }

    fn clones(&self) -> MutexGuard<'_, Vec<Option<OwnedFd>>> {
        // Only one thread exists between fork and exec.
        sync::lock(&self.clones)
    }

    /// Before the views are bound.
    pub(super) fn hold(&self) -> Result<(), Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        for (point, clone) in self.shown.iter().zip(&mut *self.clones()) {
            *clone = match open_tree(CWD, &**point, flags) {
                Ok(mount) => Some(mount),
                // It was unmounted or removed since, or another mount hides its place.
                Err(Errno::NOENT | Errno::INVAL) => None,
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }

    /// When the views are bound.
    pub(super) fn attach(&self) -> Result<(), Errno> {
        for (point, clone) in self.shown.iter().zip(&mut *self.clones()) {
            let Some(mount) = clone.take() else {
                continue;
            };
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            match move_mount(&mount, c"", CWD, &**point, flags) {
                // It was mounted after the snapshot, which has another object there, or none.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
            }
        }
        for path in &self.read_only {
            mount_bind_recursive(&**path, &**path)?;
            set_attributes(path, libc::AT_RECURSIVE, libc::MOUNT_ATTR_RDONLY, 0)?;
        }
        Ok(())
    }
}
