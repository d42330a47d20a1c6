//! Bringing a mount of views into this process's mount namespace.
//!
//! A service of root's is in the mount namespace of the machine's first process. Its mounts appear
//! in most others by themselves. They do not in a namespace that receives no mounts from outside,
//! as after `unshare -m`. There a process of root's asks the service for a mount of the same file
//! system, and attaches it at the same path. It stays there until the service removes its mount
//! point, which takes all mounts on it away.
//!
//! Only root's service is asked: whoever runs a service decides what its mounts show.

use crate::connection::{Connection, Parts};
use crate::transaction::Transaction;
use crate::view_root::{self, ViewRootError};
use atomdir_protocol::{Answer, Request};
use rustix::fs::{AtFlags, CWD, Mode, StatxAttributes, StatxFlags, mkdir, statx};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::Path;

/// More mounts than this on one place are not Atomdir's.
const DEAD_MAX: u32 = 16;

impl Connection {
    /// Makes the path of the transaction's view lead to it, if that is possible. Returns whether it
    /// may lead there now.
    pub fn bring(&self, transaction: &Transaction) -> bool {
        if self.service_user() != 0 || !geteuid().is_root() {
            return false;
        }
        let place = transaction.view_path.ancestors().nth(2);
        let (Some(place), Some(mount)) = (place, self.lent_mount(transaction)) else {
            return false;
        };
        attach(&mount, place).is_ok()
    }

    fn lent_mount(&self, transaction: &Transaction) -> Option<OwnedFd> {
        let request = Request::LendMount {
            transaction: transaction.id,
        };
        match self.ask_with(&request, &mut Parts::default(), &mut |_| {}) {
            Ok((Answer::Nothing, mount)) => mount,
            // A service in a user namespace may not make one.
            _ => None,
        }
    }

    /// As [`Transaction::enterable_root`], and brings the mount here if it must.
    pub(crate) fn bring_root(&self, transaction: &Transaction) -> Result<OwnedFd, ViewRootError> {
        let seen = transaction.enterable_root();
        match &seen {
            Err(error) if is_invisible(error) && self.bring(transaction) => {
                transaction.enterable_root()
            }
            _ => seen,
        }
    }
}

/// Whether the directory may be a view of a mount that this namespace lacks.
pub(crate) fn is_invisible(error: &ViewRootError) -> bool {
    match error {
        ViewRootError::NotMounted | ViewRootError::Elsewhere { .. } => true,
        // Nothing is mounted there, or the mount of a service that has ended.
        ViewRootError::Io { errno, .. } => matches!(
            *errno,
            Errno::NOENT | Errno::NOTCONN | Errno::CONNABORTED | Errno::ACCESS
        ),
        _ => false,
    }
}

fn attach(mount: &OwnedFd, place: &Path) -> Result<(), Errno> {
    view_root::check_file_system(mount).map_err(|_| Errno::INVAL)?;
    // With a /run of its own, this namespace lacks the directories.
    for directory in place.parent().into_iter().chain([place]) {
        match mkdir(directory, Mode::from_raw_mode(0o711)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut dead = 0;
    while is_mounted(place) && dead < DEAD_MAX {
        unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
        dead += 1;
    }
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, c"", CWD, place, flags)
}

/// Also works if the service of the mount has ended.
fn is_mounted(place: &Path) -> bool {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    match statx(CWD, place, flags, StatxFlags::empty()) {
        Ok(found) => found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => true,
        Err(_) => false,
    }
}
