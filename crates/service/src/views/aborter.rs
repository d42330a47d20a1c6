//! A child process that ends the connections of the views when the service is killed.
//!
//! The kernel ends a connection when its last descriptor is closed, and a killed process closes its
//! descriptors when its last thread ends. That may be never. A thread that renames between
//! directories waits, uninterruptibly, for the one lock that a file system has for such renames.
//! Overlayfs takes the same lock to copy a directory up for a program in a native view, and then
//! asks its lower layer, which is a mount of the killed service. Each would wait for the other, and
//! every program that renames on this file system for them.
//!
//! So a child, which never waits for the file system or the views, breaks the connections. A thread
//! that does nothing else starts it: the kernel sends a child the signal of its parent's death when
//! the thread that started it ends, whatever becomes of the other threads.
//!
//! Invariants
//! 1. Of the service's descriptors the child keeps only the claim's. So it delays nobody who waits
//!    for the end of the service, but the next one mounts at this place only when the child is done.
//! 2. It does nothing if the claim's file has been removed: then the service has ended in order, and
//!    another one may already mount there.

use crate::views::claim::Claim;
use crate::views::mountpoint;
use atomdir::client::mounts::guard_at;
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, fstat, open, openat, statx,
};
use rustix::io::retry_on_intr;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, WaitOptions, getpid, getppid, waitpid};
use rustix::thread::gettid;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc;

/// The name of the thread and of its child. It does not contain the command's, so that whoever kills
/// the service by that name does not kill the child as well.
const NAME: &str = "view-aborter";

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Starts the child. No other thread but the calling one may run yet, so that the child finds no
/// lock taken in its copy of the memory. Without a claim, or if it fails, the service works without.
pub(crate) fn start(claim: &Claim, store: &Path) {
    let Some(file) = claim.file() else {
        return;
    };
    let (place, store) = (claim.place().to_owned(), store.to_owned());
    let (forking, is_forked) = mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name(NAME.to_owned());
    let started = thread.spawn(move || {
        let starter = (getpid(), gettid());
        // SAFETY: the other thread waits in the kernel. The child ends in `run`.
        let child = match unsafe { libc::fork() } {
            0 => run(starter, &file, (&place, &store)),
            child => Pid::from_raw(child),
        };
        drop((file, forking));
        match child {
            Some(child) => {
                let _ = retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
            }
            None => tracing::warn!("no child process for the end of the views could be forked"),
        }
    });
    match started {
        // It fails, since nothing is sent, once the process has been forked.
        Ok(_) => drop(is_forked.recv()),
        Err(error) => tracing::warn!("no thread for the end of the views: {error}"),
    }
}

fn run(starter: (Pid, Pid), claim: &OwnedFd, (place, store): (&Path, &Path)) -> ! {
    // SAFETY: descriptors of this process's own table. The claim's is moved to 0, and nothing here
    // uses another one afterwards.
    let claim = unsafe {
        libc::dup2(claim.as_raw_fd(), 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        BorrowedFd::borrow_raw(0)
    };
    wait_for_death(starter);
    if fstat(claim).is_ok_and(|claim| claim.st_nlink > 0) {
        for place in mountpoint::all_of(place) {
            abort(&place);
        }
        // A thread of the service may wait for a program that waits for an answer.
        if guard_at(store).is_some() {
            abort(store);
        }
    }
    // SAFETY: ends the process without running anything of its parent's.
    unsafe { libc::_exit(0) }
}

/// Returns once the thread that started this process, named by its process and itself, has ended.
fn wait_for_death((service, thread): (Pid, Pid)) {
    // Nobody else sends this signal, and unlike others it is queued.
    let signal = libc::SIGRTMIN();
    // SAFETY: the sets are initialized before they are used, and the kernel fills `sent`.
    unsafe {
        let mut signals = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(signals.as_mut_ptr());
        libc::sigprocmask(libc::SIG_BLOCK, signals.as_ptr(), std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
        libc::sigemptyset(signals.as_mut_ptr());
        libc::sigaddset(signals.as_mut_ptr(), signal);
        // It may have ended before the kernel was asked for the signal. The parent does not tell: as long as
        // the service has another thread, that one is the parent.
        while is_thread(service, thread) {
            let mut sent = MaybeUninit::<libc::siginfo_t>::zeroed();
            let received = libc::sigwaitinfo(signals.as_ptr(), sent.as_mut_ptr());
            if received == signal && sent.assume_init().si_pid() == service.as_raw_pid() {
                break;
            }
        }
    }
}

/// Whether the parent of this process has this thread. That of a killed service is gone once it has ended, also while
/// other threads have not.
fn is_thread(service: Pid, thread: Pid) -> bool {
    let (process, thread) = (service.as_raw_pid(), thread.as_raw_pid());
    // SAFETY: no signal is sent.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) };
    let error = std::io::Error::last_os_error().raw_os_error();
    let is_gone = found != 0 && error == Some(libc::ESRCH);
    getppid() == Some(service) && !is_gone
}

/// Ends the connection of what is mounted at a place. The mount stays, so that programs get errors
/// there and do not find an empty directory.
fn abort(place: &Path) {
    // Without it the kernel might ask the service for attributes.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let Ok(found) = statx(CWD, place, flags, StatxFlags::empty()) else {
        return;
    };
    if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return;
    }
    let file = format!("{CONNECTIONS}/{minor}/abort", minor = found.stx_dev_minor);
    let opened = openat(CWD, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    if opened
        .and_then(|file| rustix::io::write(file, b"1"))
        .is_ok()
    {
        return;
    }
    // That file system is not mounted here. Root can do without: this aborts the connection first,
    // and then fails, since the mount is in use by this process.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if let Ok(_used) = open(place, flags, Mode::empty()) {
        let _ = unmount(place, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write, pipe};

    #[test]
    fn a_thread_that_ended_before_the_wait_is_found_dead() {
        let (mut ended, mut end) = pipe().unwrap();
        let starting = std::thread::spawn(move || {
            let starter = (getpid(), gettid());
            // SAFETY: the child only makes system calls.
            match unsafe { libc::fork() } {
                0 => {
                    let _ = ended.read(&mut [0]);
                    wait_for_death(starter);
                    // SAFETY: as in `run`.
                    unsafe { libc::_exit(0) }
                }
                child => Pid::from_raw(child).unwrap(),
            }
        });
        let child = starting.join().unwrap();
        end.write_all(b"1").unwrap();
        atomdir_testing::wait_until("the end of the child", || {
            waitpid(Some(child), WaitOptions::NOHANG).unwrap().is_some()
        });
    }
}
