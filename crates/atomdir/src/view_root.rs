//! Checks that a directory which a service offers as a view's root is one.
//!
//! Otherwise a service of another user could make the caller bind any directory over
//! the store or run a command in it. In one of the caller's own directories, for
//! example, the command would do what it was meant to do in the view.
//!
//! Invariant: [`check`] accepts a directory only if the kernel says that it is on a FUSE file
//! system of Atomdir's type, mounted in this mount namespace by the user that the service runs
//! as. A descriptor that is used only as such need only be on a FUSE file system.

use crate::mounts;
use crate::trust::OVERFLOW_USER;
use atomdir_disk::reason;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstat, fstatfs, openat, statx};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

const FUSE_MAGIC: i64 = 0x6573_5546;

/// The reason why the directory that the service returned is not used as a view.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewRootError {
    /// It is not a view.
    #[error("it is not on a file system of Atomdir's")]
    NotAView,
    /// It is the view of another user.
    #[error("its file system was mounted by another user than the one the service runs as")]
    OfAnotherUser,
    /// Nothing is mounted there.
    #[error("its file system is not mounted in this mount namespace")]
    NotMounted,
    /// Something is mounted in the base, and an overlay would show what is beneath.
    #[error("something is mounted on '{point}', and an exclusive view would show what is beneath")]
    MountPoint {
        /// The path.
        point: PathBuf,
    },
    /// It is another directory than the one the path leads to.
    #[error("'{path}' is another directory")]
    Elsewhere {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{operation}: {errno}", errno = reason(errno))]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}

fn io(operation: &'static str) -> impl Fn(Errno) -> ViewRootError {
    move |errno| ViewRootError::Io { operation, errno }
}

/// A new mount's root has no permission bits until the kernel has read its attributes, which other
/// transactions that begin or end can invalidate at the same time.
const TRIES_MAX: u32 = 5;

/// Opens a directory that the service calls a view's root, but which may not be one.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 1..TRIES_MAX {
        match openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::ACCESS) => {}
            opened => return opened,
        }
    }
    openat(CWD, path, flags, Mode::empty())
}

/// For a descriptor that is used only as such. It may be on a mount of another mount
/// namespace, and the kernel reveals no more about those.
pub(crate) fn check_file_system(root: &OwnedFd) -> Result<(), ViewRootError> {
    let found = fstatfs(root).map_err(io("asking for its file system"))?;
    #[allow(clippy::unnecessary_cast, reason = "its type differs by architecture")]
    match found.f_type as i64 {
        FUSE_MAGIC => Ok(()),
        _ => Err(ViewRootError::NotAView),
    }
}

/// For a directory to bind or to run in. The service runs as `service_user`.
pub(crate) fn check(root: &OwnedFd, service_user: u32) -> Result<(), ViewRootError> {
    check_file_system(root)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let found =
        statx(root, c"", flags, StatxFlags::MNT_ID).map_err(io("asking for the mount it is on"))?;
    let mut mounts = mounts::list()
        .map_err(io("reading the mount table"))?
        .into_iter();
    match mounts.find(|mount| mount.id == found.stx_mnt_id) {
        None => Err(ViewRootError::NotMounted),
        Some(mount) if !mounts::is_exact_view(&mount) => Err(ViewRootError::NotAView),
        Some(mount) if !is_mount_of(mount.user, service_user) => Err(ViewRootError::OfAnotherUser),
        Some(_) => Ok(()),
    }
}

/// Whether both are the same directory on the same file system.
pub(crate) fn is_same(one: &OwnedFd, other: &OwnedFd) -> Result<bool, ViewRootError> {
    let identity = |directory| {
        let stat = fstat(directory).map_err(io("looking at it"))?;
        Ok((stat.st_dev, stat.st_ino))
    };
    Ok(identity(one)? == identity(other)?)
}

/// The mount table shows the user as in the namespace where the service mounted. The
/// socket shows the user as in this namespace, which may not map that user.
fn is_mount_of(mounted_by: Option<u32>, service_user: u32) -> bool {
    mounted_by == Some(service_user) || (service_user == OVERFLOW_USER && mounted_by == Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_of_the_services_user_is_a_view() {
        assert!(is_mount_of(Some(1000), 1000) && is_mount_of(Some(0), 0));
        assert!(!is_mount_of(Some(1000), 0) && !is_mount_of(Some(0), 1000));
        assert!(is_mount_of(Some(0), OVERFLOW_USER) && !is_mount_of(Some(7), OVERFLOW_USER));
        assert!(!is_mount_of(None, 0));
        let plain = openat(CWD, c"/", OFlags::PATH, Mode::empty()).expect("opened");
        assert_eq!(check(&plain, 0), Err(ViewRootError::NotAView));
    }
}
