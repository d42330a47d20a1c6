//! Who may use the store, and whether they could reach it outside.
//!
//! The service holds the store's root open, so that directories above which are
//! closed to a user would not keep them from it. So before a user who is not the
//! service's own is served, the kernel is asked whether they could open the root
//! themselves. Both this and the list are looked at anew for each request: what is
//! taken away takes effect at once.

use crate::permissions::Peer;
use atomdir::Settings;
use atomdir_disk::reason;
use atomdir_protocol::{Failure, FailureKind, Request, ViewChoice};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) struct Access {
    /// Where the list is.
    pub(crate) control: OwnedFd,
    /// The store's root.
    pub(crate) root: PathBuf,
}

impl Access {
    pub(crate) fn is_allowed(&self, peer: &Peer) -> bool {
        if peer.may_use(geteuid().as_raw()) {
            return true;
        }
        let settings = Settings::read(&self.control);
        match settings.map(|settings| settings.allow()) {
            Ok(Ok(allow)) => allow.holds(peer.user, &peer.groups),
            // Who may use the store is not known: then nobody but its owner may.
            Ok(Err(error)) => {
                tracing::warn!("nobody but the owner is served: {error}");
                false
            }
            Err(error) => {
                tracing::warn!("nobody but the owner is served: {error}");
                false
            }
        }
    }

    /// What the store's settings say, which are looked at anew for each transaction.
    pub(crate) fn configured_view(&self) -> Result<ViewChoice, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(FailureKind::Internal, error.to_string())
                .with_hint("`--view` says which view to take")
        };
        let settings = Settings::read(&self.control).map_err(|error| failed(&error))?;
        settings.view().map_err(|error| failed(&error))
    }

    /// What gives back or ends what a user has is always served. So is the proof of being
    /// in a view, after which any other request is looked at as here.
    pub(crate) fn check(&self, peer: &Peer, request: &Request) -> Result<(), Failure> {
        let ends = matches!(
            request,
            Request::Enter { .. }
                | Request::Abort { .. }
                | Request::AbortAll
                | Request::Detach { .. }
                | Request::Unlock { .. }
                | Request::List
                | Request::Status { .. }
        );
        if ends || peer.may_use(geteuid().as_raw()) {
            return Ok(());
        }
        let refused = |message: String| Failure::new(FailureKind::NotPermitted, message);
        let root = self.root.display();
        if !self.is_allowed(peer) {
            let hint = format!("its owner can allow it: `atomdir -C {root} config allow USER`");
            return Err(refused(format!(
                "the store '{root}' is not open to this user any more"
            ))
            .with_hint(hint));
        }
        as_peer(peer, || self.open_root()).map_err(|errno| {
            refused(format!(
                "this user cannot reach '{root}': {errno}",
                errno = reason(errno)
            ))
        })
    }

    /// With search permission on the root itself, too.
    fn open_root(&self) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, self.root.join("."), flags, Mode::empty()).map(|_| ())
    }
}

/// Acts with the peer's permissions on files, for a service of root's.
///
/// On a thread of its own, which never gets root's back. Only the ids that count for
/// files are changed: with the others the peer could send signals to the thread, which
/// would end the service.
pub(crate) fn as_peer<T: Send>(
    peer: &Peer,
    act: impl FnOnce() -> Result<T, Errno> + Send,
) -> Result<T, Errno> {
    std::thread::scope(|scope| {
        let acting = std::thread::Builder::new().spawn_scoped(scope, || {
            take_on(peer)?;
            act()
        });
        match acting.map(|acting| acting.join()) {
            Ok(Ok(done)) => done,
            _ => Err(Errno::AGAIN),
        }
    })
}

fn take_on(peer: &Peer) -> Result<(), Errno> {
    let (user, groups) = (peer.user, &peer.groups);
    // The peer's own group is the last.
    let group = groups.last().copied().unwrap_or(u32::MAX);
    // SAFETY: the list has the length given. The system call changes this thread alone,
    // unlike the C library's function of that name.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result != 0 {
        return Err(Errno::PERM);
    }
    // SAFETY: plain numbers; these two change this thread alone. They say what was before,
    // so that only a second call tells whether the first one worked.
    let changed = unsafe {
        libc::setfsgid(group);
        libc::setfsuid(user);
        let (group_now, user_now) = (libc::setfsgid(u32::MAX), libc::setfsuid(u32::MAX));
        (group_now.cast_unsigned(), user_now.cast_unsigned())
    };
    match changed == (group, user) {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}
