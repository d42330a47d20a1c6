//! A transaction around the ordinary system calls of a thread.
//!
//! The thread gets a mount namespace of its own, in which the transaction's view is mounted over
//! the store. At the end of the transaction it returns to its old namespace, root and working
//! directory.
//!
//! Invariants
//! 1. A call that fails leaves the thread in the namespace in which it was.
//! 2. The thread leaves the view before the commit. So it is outside the view when the commit returns,
//!    also with an error, and a thread that cannot leave commits nothing.

use crate::error::{Failure, Result, status};
use crate::handle::path;
use crate::store::open_service;
use atomdir::SharedTransaction;
use libc::{c_char, c_int};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::process::{chroot, fchdir, getcwd};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities, move_into_link_name_space,
    unshare_unsafe,
};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The transaction of a thread.
struct Here {
    tx: SharedTransaction,
    before: Before,
    /// The process that began the transaction. A child that it forks inherits this thread in the view,
    /// but the transaction belongs to the parent.
    process: u32,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// The mount namespace and the directories of the thread before the transaction.
struct Before {
    namespace: OwnedFd,
    root: OwnedFd,
    working: OwnedFd,
}

impl Before {
    fn now() -> Result<Before> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &str, flags| openat(CWD, path, flags, Mode::empty());
        let link = OFlags::RDONLY | OFlags::CLOEXEC;
        let namespace = open("/proc/thread-self/ns/mnt", link);
        Ok(Before {
            namespace: namespace.map_err(|errno| {
                step(
                    "open /proc/thread-self/ns/mnt, by which the thread would return",
                    errno,
                )
            })?,
            root: open("/", directory)?,
            working: open(".", directory)?,
        })
    }

    /// Returns the thread to that namespace and those directories.
    fn restore(&self) -> Result<()> {
        let kind = Some(LinkNameSpaceType::Mount);
        let failed = |errno| step("return to the thread's mount namespace", errno);
        // The kernel refuses to change the namespace of a thread that shares its directories with
        // another one, as with a thread that this one has started.
        // SAFETY: only directories, umask and root are no longer shared.
        unsafe { unshare_unsafe(UnshareFlags::FS) }.map_err(failed)?;
        move_into_link_name_space(self.namespace.as_fd(), kind).map_err(failed)?;
        // The kernel has set both to the namespace's root.
        fchdir(&self.root).map_err(failed)?;
        chroot(".").map_err(failed)?;
        fchdir(&self.working).map_err(failed)
    }
}

fn step(what: &str, errno: Errno) -> Failure {
    let reason = atomdir::client::reason(errno);
    Failure::errno(errno.raw_os_error(), format!("cannot {what}: {reason}"))
}

/// The path of the working directory, if it has one.
fn working_directory() -> Result<Option<PathBuf>> {
    match getcwd(Vec::new()) {
        Ok(path) => {
            let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
            // If it is not below the root, the kernel returns a relative path.
            Ok(Some(path).filter(|path| path.is_absolute()))
        }
        // The working directory was removed.
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Fails if the thread may not leave its mount namespace, or could not return to it: the namespace
/// then belongs to a user namespace above the thread's own.
fn require_rights(namespace: &OwnedFd) -> Result<()> {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_CHROOT;
    if !capabilities(None)?.effective.contains(needed) {
        return Err(not_permitted());
    }
    // SAFETY: the call takes no pointer.
    let owner = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) };
    if owner < 0 {
        return Err(not_permitted());
    }
    // SAFETY: the descriptor is new, so this is its only owner.
    drop(unsafe { OwnedFd::from_raw_fd(owner) });
    Ok(())
}

/// From linux/nsfs.h.
const NS_GET_USERNS: libc::Ioctl = 0xb701;

fn not_permitted() -> Failure {
    Failure::errno(
        libc::EPERM,
        "a mount namespace for a thread needs CAP_SYS_ADMIN and CAP_SYS_CHROOT: run the program as \
         root, or as root in user and mount namespaces of its own (unshare -rm); without them, use \
         atomdir_begin, or run the program by `atomdir run`",
    )
}

/// Makes a mount namespace for this thread, and mounts the view over the store in it.
fn enter(root: &Path, view: &Path, before: &Before) -> Result<()> {
    let working = working_directory()?;
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let view = openat(CWD, view, directory, Mode::empty())?;
    // SAFETY: only directories, umask and root are no longer shared.
    unsafe { unshare_unsafe(UnshareFlags::FS) }?;
    // In the new namespace only its own copies of mounts can be bound. The kernel moves the working
    // directory to the copy of its mount, but no other open directory. So enter the view here.
    fchdir(&view)?;
    // SAFETY: only mounts are no longer shared.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
    if let Err(errno) = unshared {
        fchdir(&before.working)?;
        return Err(match errno {
            Errno::PERM => not_permitted(),
            errno => step("make a mount namespace for the thread", errno),
        });
    }
    let mounted = || -> Result<()> {
        let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", flags).map_err(|errno| step("keep mounts in the namespace", errno))?;
        mount_bind(".", root).map_err(|errno| step("mount the view over the store", errno))?;
        // Enter the working directory by its path, so that relative paths lead into the view, too.
        match &working {
            Some(working) => rustix::process::chdir(working)
                .map_err(|errno| step("enter the working directory in the view", errno)),
            None => Ok(fchdir(&before.working)?),
        }
    };
    mounted().inspect_err(|_| {
        // The caller reports the first failure. A failure here is unlikely: the same step has just
        // worked in the other direction.
        let _ = before.restore();
    })
}

/// # Safety
/// `start` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_begin_here(start: *const c_char) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path(start) }?;
        let message = "this thread is already in a transaction";
        HERE.with_borrow(|here| match here {
            Some(here) if here.process == std::process::id() => {
                Err(Failure::errno(libc::EALREADY, message))
            }
            Some(_) => Err(Failure::errno(
                libc::EBUSY,
                "this process was forked in a transaction of its parent, and is in its view",
            )),
            None => Ok(()),
        })?;
        // Check this first, so that no service is started if it fails.
        let before = Before::now()?;
        require_rights(&before.namespace)?;
        let store = open_service(path, true)?;
        if store.root() == Path::new("/") {
            return Err(Failure::invalid(
                "the store is the root directory, over which no view can be mounted",
            ));
        }
        let tx = SharedTransaction::from(store.begin()?);
        let view = tx
            .view()
            .ok_or_else(|| Failure::invalid("the transaction has no view"))?;
        enter(store.root(), view, &before)?;
        let here = Here {
            tx,
            before,
            process: std::process::id(),
        };
        HERE.set(Some(here));
        Ok(())
    })
}

/// Leaves the view, and returns the transaction.
fn leave() -> Result<SharedTransaction> {
    let here = HERE.take();
    let here = here.ok_or_else(|| Failure::invalid("this thread is not in a transaction"))?;
    if here.process != std::process::id() {
        HERE.set(Some(here));
        let message = "this process was forked in a transaction of its parent, who must end it";
        return Err(Failure::errno(libc::EBUSY, message));
    }
    match here.before.restore() {
        Ok(()) => Ok(here.tx),
        Err(failure) => {
            HERE.set(Some(here));
            Err(failure)
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_commit_here() -> c_int {
    // If the commit fails, dropping the transaction aborts it.
    status(|| Ok(leave()?.commit().map(drop)?))
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_abort_here() -> c_int {
    status(|| {
        leave()?.abort();
        Ok(())
    })
}
