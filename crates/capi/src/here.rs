//! A transaction around the ordinary system calls of a thread.
//!
//! The thread gets a mount namespace of its own, in which the transaction's view is mounted over
//! the store. At the end of the transaction it returns to its old namespace, root and working
//! directory.
//!
//! Invariants
//! 1. A call that fails leaves the thread in the mount namespace in which it was, or in its copy if the
//!    process has just got a user namespace ([`own_namespace`]).
//! 2. The thread leaves the view before the commit. So it is outside the view when the commit returns,
//!    also with an error, and a thread that cannot leave commits nothing.
//! 3. Transactions that are flattened into another one only count: nothing is committed before the
//!    outermost ends, and once one of them is aborted, nothing is committed at all.

use crate::error::{Failure, Result, status};
use crate::handle::path;
use crate::own_namespace;
use crate::store::open_service;
use atomdir::SharedTransaction;
use libc::{c_char, c_int};
use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
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

/// The flag of atomdir.h.
const FLATTEN: c_int = 1;

/// The transaction of a thread.
struct Here {
    tx: SharedTransaction,
    before: Before,
    root: PathBuf,
    /// How many transactions are flattened into this one and have not ended.
    inner: u32,
    /// One of them was aborted.
    is_doomed: bool,
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
        "a mount namespace for a thread needs CAP_SYS_ADMIN and CAP_SYS_CHROOT, which this thread has \
         given up; use atomdir_begin, or run the program by `atomdir run`",
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

/// The path by which this thread reaches the object, without symbolic links.
fn canonical(path: &Path) -> Result<PathBuf> {
    let object = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let link = format!("/proc/thread-self/fd/{}", object.as_raw_fd());
    let path = readlink(link, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(path.as_bytes())))
}

/// Counts a transaction that is flattened into the thread's own. Returns false if it has none.
fn join(path: &Path, flags: c_int) -> Result<bool> {
    let already = |message| Err(Failure::errno(libc::EALREADY, message));
    HERE.with_borrow_mut(|here| {
        let Some(here) = own(here)? else {
            return Ok(false);
        };
        if flags & FLATTEN == 0 {
            return already("this thread is already in a transaction; ATOMDIR_FLATTEN joins it");
        }
        if !canonical(path)?.starts_with(&here.root) {
            return already("this thread is already in a transaction of another store");
        }
        if here.is_doomed {
            return Err(doomed());
        }
        here.inner += 1;
        Ok(true)
    })
}

/// The thread's transaction. Fails in a process that was forked in it.
fn own(here: &mut Option<Here>) -> Result<Option<&mut Here>> {
    match here {
        Some(here) if here.process != std::process::id() => Err(Failure::errno(
            libc::EBUSY,
            "this process was forked in a transaction of its parent, who must end it",
        )),
        here => Ok(here.as_mut()),
    }
}

fn doomed() -> Failure {
    Failure::errno(
        libc::ECANCELED,
        "a transaction that was flattened into this one was aborted, so nothing of it is committed",
    )
}

/// Begins a transaction. A process without the rights for that enters a user namespace first.
fn begin(path: &Path) -> Result<()> {
    // Check this first, so that no service is started if it fails.
    let mut before = Before::now()?;
    let has_rights = require_rights(&before.namespace).is_ok();
    if !has_rights {
        if own_namespace::is_inside() {
            return Err(not_permitted());
        }
        own_namespace::require_one_thread()?;
    }
    let store = match own_namespace::is_inside() {
        false => open_service(path, true)?,
        true => match own_namespace::kept(&canonical(path)?) {
            Some(kept) => kept,
            None => open_service(path, false).map_err(own_namespace::explain)?,
        },
    };
    if store.root() == Path::new("/") {
        return Err(Failure::invalid(
            "the store is the root directory, over which no view can be mounted",
        ));
    }
    let begun = store.begin().map_err(Failure::from);
    let tx = SharedTransaction::from(begun.map_err(own_namespace::explain)?);
    if !has_rights {
        own_namespace::enter(path)?;
        before = Before::now()?;
    }
    let view = tx
        .view()
        .ok_or_else(|| Failure::invalid("the transaction has no view"))?;
    enter(store.root(), view, &before)?;
    let here = Here {
        root: store.root().to_owned(),
        tx,
        before,
        inner: 0,
        is_doomed: false,
        process: std::process::id(),
    };
    HERE.set(Some(here));
    Ok(())
}

/// # Safety
/// `start` is a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn atomdir_begin_here(start: *const c_char, flags: c_int) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let path = unsafe { path(start) }?;
        if flags & !FLATTEN != 0 {
            return Err(Failure::invalid("the flags are unknown"));
        }
        match join(path, flags)? {
            true => Ok(()),
            false => begin(path),
        }
    })
}

/// Ends a transaction that is flattened into the thread's own. Returns false if there is none.
fn end_inner(is_aborted: bool) -> Result<bool> {
    HERE.with_borrow_mut(|here| match own(here)? {
        Some(here) if here.inner > 0 => {
            here.inner -= 1;
            here.is_doomed |= is_aborted;
            match here.is_doomed && !is_aborted {
                true => Err(doomed()),
                false => Ok(true),
            }
        }
        Some(_) => Ok(false),
        None => Err(Failure::invalid("this thread is not in a transaction")),
    })
}

/// Leaves the view, and returns the transaction and whether it must be aborted.
fn leave() -> Result<(SharedTransaction, bool)> {
    let here = HERE.take();
    let here = here.ok_or_else(|| Failure::invalid("this thread is not in a transaction"))?;
    match here.before.restore() {
        Ok(()) => Ok((here.tx, here.is_doomed)),
        Err(failure) => {
            HERE.set(Some(here));
            Err(failure)
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_commit_here() -> c_int {
    status(|| {
        if end_inner(false)? {
            return Ok(());
        }
        match leave()? {
            (tx, true) => {
                tx.abort();
                Err(doomed())
            }
            // If the commit fails, dropping the transaction aborts it.
            (tx, false) => Ok(tx.commit().map(drop)?),
        }
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn atomdir_abort_here() -> c_int {
    status(|| {
        if !end_inner(true)? {
            leave()?.0.abort();
        }
        Ok(())
    })
}
