//! Who may use the store, and whether they could reach it without the service.
//!
//! The service holds the store's root open, so a directory above it that is closed to a
//! user would not stop that user. So before the service serves another user, it asks the
//! kernel whether that user could open the root. It checks this and the list of allowed
//! users anew for each request, so taking access away works at once.

use crate::rights::permissions::Peer;
use atomdir::client::Settings;
use atomdir_disk::reason;
use atomdir_protocol::{Failure, FailureKind, Request, ViewChoice};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

pub(crate) struct Access {
    /// The directory that has the list.
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
            // Without a readable list, only the store's owner may use the store.
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

    /// The view that the store's settings ask for; read anew for each transaction.
    pub(crate) fn configured_view(&self) -> Result<ViewChoice, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(FailureKind::Internal, error.to_string())
                .with_hint("`--view` says which view to take")
        };
        let settings = Settings::read(&self.control).map_err(|error| failed(&error))?;
        settings.view().map_err(|error| failed(&error))
    }

    /// Checks a request, except those that only inspect, give back or end what the user
    /// has, and the request to enter a view. The requests that follow an enter are checked
    /// here.
    pub(crate) fn check(&self, peer: &Peer, request: &Request) -> Result<(), Failure> {
        let ends = matches!(
            request,
            Request::Enter { .. }
                | Request::Abort { .. }
                | Request::AbortAll
                | Request::Detach { .. }
                | Request::Unlock { .. }
                | Request::List
                | Request::ListEnded { .. }
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

    /// The final `.` requires search permission on the root itself, too.
    fn open_root(&self) -> Result<(), Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, self.root.join("."), flags, Mode::empty()).map(|_| ())
    }
}

/// Acts with the peer's file permissions, in a service that runs as root.
///
/// It does so on a separate thread that never regains root's permissions. It changes only
/// the ids that count for files: if it changed the others, the peer could send signals to
/// the thread, which would end the service.
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
    // The peer's primary group is the last.
    let group = groups.last().copied().unwrap_or(u32::MAX);
    // SAFETY: the list has the given length. The system call changes only this thread,
    // unlike the C library's function of that name.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result != 0 {
        return Err(Errno::PERM);
    }
    // SAFETY: plain numbers; both calls change only this thread. They return the previous
    // value, so only a second call shows whether the first one worked.
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
