//! A user namespace of its own for the process of an ordinary user, in which its threads may make
//! mount namespaces and return from them.
//!
//! Invariants
//! 1. The process is single-threaded when it enters, and stays for good: the kernel knows no way
//!    back. With the user namespace it gets a copy of its mount namespace, in which mounts that are
//!    made outside appear.
//! 2. Of the rights in that namespace it keeps those that it had before, and those for mounts and
//!    chroot(2). So it can read and write no file that it could not before.
//! 3. No service is started from within, because it would be in this user namespace as well. So a
//!    connection to the service is kept, which keeps the service from ending.

use crate::error::{Failure, Result};
use crate::store::open_service;
use atomdir::Store;
use atomdir::hosting::sync;
use rustix::fs::{CWD, Mode, OFlags, openat, stat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capabilities, set_capabilities, unshare_unsafe,
};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_INSIDE: AtomicBool = AtomicBool::new(false);
static KEPT: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

struct Kept {
    store: Store,
    /// A child that is forked off cannot use it.
    process: u32,
}

/// Whether this process has entered one.
pub(crate) fn is_inside() -> bool {
    IS_INSIDE.load(Ordering::Acquire)
}

/// Fails if this process cannot enter one since it has several threads.
pub(crate) fn require_one_thread() -> Result<()> {
    // A directory has a link for itself, one in its parent, and one for each directory in it.
    let threads = stat("/proc/self/task").map_or(1, |tasks| tasks.st_nlink.saturating_sub(2));
    match threads > 1 {
        true => Err(several_threads(threads)),
        false => Ok(()),
    }
}

fn several_threads(threads: u64) -> Failure {
    let message = format!(
        "an ordinary user's process must have one thread at its first atomdir_begin_here, and has \
         {threads}: Linux lets only such a process into a user namespace. Call it before starting \
         threads, or use atomdir_begin, or run the program by `atomdir run`"
    );
    Failure::errno(libc::EPERM, message)
}

/// The store that contains the path, if this process keeps it.
pub(crate) fn kept(path: &Path) -> Option<Store> {
    let process = std::process::id();
    let kept = sync::lock(&KEPT);
    let mut ours = kept.iter().filter(|kept| kept.process == process);
    let found = ours.find(|kept| path.starts_with(kept.store.root()));
    found.map(|kept| kept.store.clone())
}

/// Says what to do about a service that does not run.
pub(crate) fn explain(failure: Failure) -> Failure {
    match is_inside() {
        true => failure.with_advice_about_service(
            "this process is in a user namespace of its own, from which it starts no service: \
             `atomdir service start` does so outside",
        ),
        false => failure,
    }
}

/// Enters one. The service of the store at `path` must run.
pub(crate) fn enter(path: &Path) -> Result<()> {
    let store = open_service(path, false)?;
    let had = capabilities(None)?.effective;
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: no flag unshares descriptors; with several threads the kernel refuses it.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }.map_err(|errno| {
        match errno {
            Errno::INVAL => several_threads(2),
            errno => refused(errno, "make a user namespace"),
        }
    })?;
    IS_INSIDE.store(true, Ordering::Release);
    // The kernel accepts a group map from an ordinary user only after setgroups(2) is denied.
    write("/proc/self/setgroups", "deny")
        .and_then(|()| write("/proc/self/uid_map", &format!("{user} {user} 1")))
        .and_then(|()| write("/proc/self/gid_map", &format!("{group} {group} 1")))
        .map_err(|errno| refused(errno, "map the user in a user namespace"))?;
    let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", flags).map_err(|errno| refused(errno, "keep mounts in the namespace"))?;
    let rights = had | CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    let sets = CapabilitySets {
        effective: rights,
        permitted: rights,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(|errno| refused(errno, "give up other rights"))?;
    let process = std::process::id();
    sync::lock(&KEPT).push(Kept { store, process });
    Ok(())
}

fn refused(errno: Errno, step: &str) -> Failure {
    let reason = atomdir::client::reason(errno);
    let message = format!(
        "cannot {step}: {reason}. Where user namespaces are not allowed, atomdir_begin_here needs \
         CAP_SYS_ADMIN and CAP_SYS_CHROOT; use atomdir_begin, or run the program by `atomdir run`"
    );
    Failure::errno(errno.raw_os_error(), message)
}

/// The kernel accepts each of these files in one write or not at all.
fn write(path: &str, text: &str) -> std::result::Result<(), Errno> {
    let file = openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(|_| ())
}
