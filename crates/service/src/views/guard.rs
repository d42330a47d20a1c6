//! The mount of the guard over the store's own path, and of the control directory on it.
//!
//! A FUSE file system cannot pass on a socket, nor the locks by which processes find out who has the
//! store. So the real control directory is mounted on its name in the guard: clients find it there as
//! before, and the descriptors that this process has lead to the same one.
//!
//! Invariants
//! 1. The guard stands over the very directory that this service has open as the base.
//! 2. A guard that is served belongs to a service that has the store: the service unmounts it before
//!    it gives the store up. If it is killed, the connection breaks, and all calls fail with
//!    `ENOTCONN` until somebody unmounts it (`atomdir umount`, `atomdir mount`).
//! 3. No path that leads through the guard is used under the commit lock.

use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::views::file_sessions::Profiled;
use crate::views::view_mount;
use atomdir::CONTROL_NAME;
use atomdir::client::mounts::{GUARD_SOURCE, clear_dead_guard, guard_at};
use atomdir::client::{GuardChoice, Settings};
use atomdir_disk::{Disk, LinuxDisk, Name, reason, sync};
use atomdir_fuse::{MountOptions, Session};
use atomdir_guard::{Guarded, Known};
use atomdir_protocol::{Failure, FailureKind, GuardStatus};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// The guard of a service, if it has one.
#[derive(Default)]
pub(crate) struct GuardMount(Mutex<Option<Mounted>>);

struct Mounted {
    session: Session,
    guarded: Arc<Guarded>,
}

impl GuardMount {
    pub(crate) fn is_mounted(&self) -> bool {
        let mounted = sync::lock(&self.0);
        mounted.as_ref().is_some_and(|one| !one.session.is_ended())
    }

    pub(crate) fn status(&self) -> Option<GuardStatus> {
        let mounted = sync::lock(&self.0);
        let served = mounted.as_ref().filter(|one| !one.session.is_ended());
        served.map(|one| GuardStatus {
            syncs: one.guarded.flushes_changes(),
            flushes: one.guarded.flushes(),
            waiting: one.guarded.waiting() as u64,
        })
    }

    /// Whether there was one.
    pub(crate) fn unmount(&self) -> bool {
        let Some(Mounted { session, guarded }) = sync::lock(&self.0).take() else {
            return false;
        };
        let was_mounted = !session.is_ended();
        end(&session);
        guarded.log_changes();
        was_mounted
    }
}

fn end(session: &Session) {
    if let Err(error) = session.unmount() {
        tracing::error!("{error}");
    }
    session.join();
}

/// Mounts the guard unless it is mounted. Each time it is said anew whether it flushes changes.
pub(crate) fn mount(service: &Service, peer: &Peer, syncs: bool) -> Result<(), Failure> {
    require_root(peer)?;
    let mut mounted = sync::lock(&service.guard.0);
    // Somebody may have unmounted it, and programs may still be in it.
    let is_gone = |one: &mut Mounted| one.session.is_ended() || guard_at(&service.path).is_none();
    if let Some(gone) = mounted.take_if(is_gone) {
        end(&gone.session);
    }
    match &*mounted {
        Some(one) => one.guarded.flush_changes(syncs),
        None => *mounted = Some(make(service, syncs)?),
    }
    service.maintenance.wake();
    Ok(())
}

pub(crate) fn unmount(service: &Service, peer: &Peer) -> Result<(), Failure> {
    require_root(peer)?;
    if service.guard.unmount() {
        service.latch.set();
        return Ok(());
    }
    let message = format!("no guard is mounted over '{}'", service.path.display());
    Err(Failure::new(FailureKind::BadRequest, message))
}

/// Mounts the guard if the store's settings say so, in place of one whose service has ended. Called
/// once, before anybody is served.
pub(crate) fn mount_as_set(service: &Service) -> Result<(), Failure> {
    let settings = Settings::read(&service.access.control).unwrap_or_else(|error| {
        tracing::warn!("no guard is mounted: {error}");
        Settings::default()
    });
    let choice = settings
        .guard()
        .map_err(|error| Failure::new(FailureKind::Misconfigured, error.to_string()))?;
    if choice == GuardChoice::Off {
        return Ok(());
    }
    require_roots_store()?;
    // Calls in it would still fail.
    if guard_at(&service.path).is_some() {
        clear_dead_guard(&service.path);
    }
    let mounted = make(service, choice == GuardChoice::Sync)?;
    *sync::lock(&service.guard.0) = Some(mounted);
    Ok(())
}

fn require_root(peer: &Peer) -> Result<(), Failure> {
    let refused = |message: &str| Err(Failure::new(FailureKind::NotPermitted, message));
    peer.require_administer("mount or unmount the guard")?;
    if !peer.is_root() {
        return refused(
            "only root can mount a guard: it lies over the store's own path for all users, and the \
             kernel lets ordinary users mount a file system for themselves alone",
        );
    }
    require_roots_store()
}

fn require_roots_store() -> Result<(), Failure> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(Failure::new(
            FailureKind::NotPermitted,
            "the store belongs to an ordinary user, whose service cannot serve a guard to other \
             users; only a store of root's can have one",
        )),
    }
}

fn make(service: &Service, syncs: bool) -> Result<Mounted, Failure> {
    let path = &*service.path;
    let failed = |action: &str, errno: Errno| {
        let why = reason(errno);
        let message = format!("cannot {action} '{}': {why}", path.display());
        Failure::new(FailureKind::Io, message)
    };
    if guard_at(path).is_some() {
        let message = format!("another guard is mounted over '{}'", path.display());
        return Err(Failure::new(FailureKind::InUse, message)
            .with_hint("`atomdir umount` removes that of a service that has ended"));
    }
    let flags = view_mount::forbidden_outside(path);
    let control = control_tree(service).map_err(|errno| failed("mount the guard over", errno))?;
    let root = LinuxDisk::open_root(path).map_err(|errno| failed("open", errno))?;
    let known = Known::new(&root).map_err(|errno| failed("look at", errno))?;
    let known = Arc::new(known);
    let Some(guard) = service.store.guard(known.clone()) else {
        return Err(Failure::new(
            FailureKind::InUse,
            "the last guard has not ended yet",
        ));
    };
    let disk = LinuxDisk::new();
    let of = |root: &OwnedFd| disk.stat(root).map(|stat| (stat.device, stat.identity));
    if of(&root).ok() != of(&guard.root()).ok() {
        let message = format!(
            "'{}' does not lead to the store's base any more: something is mounted over it",
            path.display()
        );
        return Err(Failure::new(FailureKind::InUse, message));
    }
    let hidden = control
        .is_some()
        .then(|| Name::new(CONTROL_NAME.as_bytes()));
    let hidden = hidden.and_then(Result::ok);
    let guarded = Arc::new(Guarded::new(guard, known, hidden));
    guarded.flush_changes(syncs);
    let transactions = Arc::clone(&service.transactions);
    guarded.tell_holders(Box::new(move |transaction, process| {
        transactions.is_held_by(transaction, process)
    }));
    if let Some(sessions) = Profiled::of(service)? {
        guarded.serve_sessions(sessions);
    }
    let options = MountOptions {
        source: GUARD_SOURCE.to_owned(),
        others_allowed: true,
        flags,
        ..view_mount::options()
    };
    let session = Session::mount(Arc::clone(&guarded), path, &options)
        .map_err(|error| Failure::new(FailureKind::Io, error.to_string()))?;
    if let Some(control) = control
        && let Err(errno) = attach(&session, &control)
    {
        end(&session);
        return Err(failed(
            "show the control directory in the guard over",
            errno,
        ));
    }
    Ok(Mounted { session, guarded })
}

/// A mount of the control directory that is attached nowhere. `None`: it is not in the root.
fn control_tree(service: &Service) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat(CWD, service.path.join(CONTROL_NAME), flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&found)?.st_mode);
    if kind != FileType::Directory {
        return Ok(None);
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    // By the path: what this process has open may belong to a mount that is gone.
    open_tree(&found, c"", flags).map(Some)
}

/// The session's own child finds the place, since this process must not wait for its own answer.
fn attach(session: &Session, control: &OwnedFd) -> Result<(), Errno> {
    let place = session.open_directory(Path::new(CONTROL_NAME))?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(control, c"", &place, c"", flags)
}
