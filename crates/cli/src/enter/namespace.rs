//! A private mount namespace in which the view stands where the store stands
//! for everyone else.
//!
//! [`Namespace::enter`] runs between fork and exec, where only system calls are
//! allowed: whatever it needs was made before, and it allocates nothing.

use super::Step;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::UnshareFlags;
use std::ffi::{CStr, CString, NulError};
use std::path::Path;

pub(super) struct Namespace {
    base: CString,
    view: CString,
    user_map: Vec<u8>,
    group_map: Vec<u8>,
}

impl Namespace {
    pub(super) fn new(base: &Path, view: &Path) -> Result<Namespace, NulError> {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        Ok(Namespace {
            base: super::c_path(base)?,
            view: super::c_path(view)?,
            user_map: format!("{user} {user} 1").into_bytes(),
            group_map: format!("{group} {group} 1").into_bytes(),
        })
    }

    pub(super) fn enter(&self) -> Result<(), (Step, Errno)> {
        self.unshare()?;
        // Mounts made outside still arrive in here, ours do not get out.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change(c"/", slave).map_err(|errno| (Step::HoldMounts, errno))?;
        mount_bind(&*self.view, &*self.base).map_err(|errno| (Step::Bind, errno))
    }

    fn unshare(&self) -> Result<(), (Step, Errno)> {
        // SAFETY: neither flag unshares the descriptors other code may rely on.
        match unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) } {
            Ok(()) => return Ok(()),
            Err(Errno::PERM) => {}
            Err(errno) => return Err((Step::Unshare, errno)),
        }
        let with_user = UnshareFlags::NEWUSER | UnshareFlags::NEWNS;
        // SAFETY: as above; the calling process has one thread, as it was forked.
        unsafe { rustix::thread::unshare_unsafe(with_user) }
            .map_err(|errno| (Step::Unshare, errno))?;
        // The kernel takes a group map from an ordinary user only once
        // setgroups(2) is given up.
        write(c"/proc/self/setgroups", b"deny")
            .and_then(|()| write(c"/proc/self/uid_map", &self.user_map))
            .and_then(|()| write(c"/proc/self/gid_map", &self.group_map))
            .map_err(|errno| (Step::MapUser, errno))
    }
}

/// The kernel takes each of these files in one write or not at all.
fn write(path: &CStr, data: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, data).map(|_| ())
}
