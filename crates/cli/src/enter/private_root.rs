//! A root directory for the command only, for a store that is the root directory.
//!
//! A process whose root is `/` does not see a mount over `/`. So the view becomes the
//! root, and everything mounted in the old root is bound to the same place in it:
//! `/proc`, `/dev`, `/run` and all other file systems, which are not part of the
//! store.
//!
//! [`PrivateRoot::enter`] runs between fork and exec, see [`super::namespace`].

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_bind_recursive, move_mount, open_tree,
    unmount,
};
use std::ffi::CString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(super) struct PrivateRoot {
    /// The mounts below the root: each path, and the same path relative to the root.
    mounted: Vec<(CString, CString)>,
}

impl PrivateRoot {
    pub(super) fn prepare() -> io::Result<PrivateRoot> {
        let points = outermost(atomdir::client::mounts::mount_points()?);
        let mounted = points.iter().map(|point| {
            let relative = point.strip_prefix("/").unwrap_or(point);
            Ok((super::c_path(point)?, super::c_path(relative)?))
        });
        Ok(PrivateRoot {
            mounted: mounted.collect::<io::Result<_>>()?,
        })
    }

    /// The caller must have made the view the current directory.
    pub(super) fn enter_directory(&self) -> Result<(), Errno> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let view: OwnedFd = open_tree(CWD, c".", flags)?;
        self.enter(rustix::fd::AsFd::as_fd(&view))
    }

    /// `view` is a detached mount.
    pub(super) fn enter(&self, view: BorrowedFd<'_>) -> Result<(), Errno> {
        // Only an attached mount can have mounts in it, and become the root.
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(view, c"", CWD, c"/", flags)?;
        rustix::process::fchdir(view)?;
        for (point, relative) in &self.mounted {
            match mount_bind_recursive(&**point, &**relative) {
                // It was unmounted since, or another mount hides its place.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        rustix::process::pivot_root(c".", c".")?;
        // The old root is now mounted over the new one.
        unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    }
}

/// Recursive binds include mounts below other mounts, so those need not be listed.
pub(super) fn outermost(mut points: Vec<PathBuf>) -> Vec<PathBuf> {
    points.retain(|point| point != Path::new("/"));
    points.sort();
    points.dedup();
    let mut outermost: Vec<PathBuf> = Vec::new();
    for point in points {
        if !outermost.iter().any(|outer| point.starts_with(outer)) {
            outermost.push(point);
        }
    }
    outermost
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_mounts_are_not_bound_by_themselves() {
        let points = [
            "/run/lock",
            "/",
            "/proc",
            "/run",
            "/run-more",
            "/",
            "/proc/sys",
        ];
        let found = outermost(points.iter().map(PathBuf::from).collect());
        let expected = ["/proc", "/run", "/run-more"].map(PathBuf::from);
        assert_eq!(found, expected);
    }
}
