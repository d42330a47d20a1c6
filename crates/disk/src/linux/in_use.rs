//! Finds out whether other programs write to a file or have locked it.
//!
//! The kernel grants a read lease only on a file that nobody has open for writing. A writable shared
//! mapping counts, also if the descriptor behind it was closed. Only the file's owner and processes
//! with `CAP_LEASE` get a lease. For the others the answer stays unknown, and the file counts as
//! used.
//!
//! Locks can also be taken through descriptors that only read. For the locks of `fcntl` the kernel
//! answers a question. For those of `flock` there is no question, so this takes the lock for a
//! moment if nobody has it.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::FlockOperation;
use rustix::io::retry_on_intr;

use super::last_error;
use crate::{Errno, FileUsers, PartLock, Result};

/// From `asm-generic/fcntl.h`: chooses the signal that reports a lease break.
const F_SETSIG: libc::c_int = 10;

/// Whether somebody has the file open for writing, or whether that cannot be known.
pub(super) fn is_open_for_writing(file: &OwnedFd) -> bool {
    // The lease may be broken in the moment in which it exists. SIGIO would then end the process.
    // SIGURG is ignored, unless a program asks for it.
    let is_silent = control(file, F_SETSIG, libc::SIGURG);
    if !is_silent || !control(file, libc::F_SETLEASE, libc::F_RDLCK) {
        return true;
    }
    control(file, libc::F_SETLEASE, libc::F_UNLCK);
    false
}

fn control(file: &OwnedFd, command: libc::c_int, argument: libc::c_int) -> bool {
    // SAFETY: these commands take an integer and change no memory of the process.
    unsafe { libc::fcntl(file.as_raw_fd(), command, argument) != -1 }
}

/// A POSIX or OFD lock that another open file has on any part of the file and that keeps this kind
/// of lock from being taken.
fn record_lock_against(kind: libc::c_int, file: &OwnedFd) -> Result<Option<libc::flock>> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the kernel reads and writes this structure during the call.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    match answer {
        -1 => Err(last_error()),
        _ => Ok((lock.l_type != libc::F_UNLCK as libc::c_short).then_some(lock)),
    }
}

pub(super) fn is_locked(file: &OwnedFd) -> Result<bool> {
    let is_record_locked = record_lock_against(libc::F_WRLCK, file)?.is_some();
    Ok(is_record_locked || is_locked_as_a_whole(file)?)
}

pub(super) fn part_lock(file: &OwnedFd) -> Result<Option<PartLock>> {
    let is_of_part = |lock: &libc::flock| (lock.l_start, lock.l_len) != (0, 0);
    let any = record_lock_against(libc::F_WRLCK, file)?;
    if !any.is_some_and(|lock| is_of_part(&lock)) {
        return Ok(None);
    }
    let exclusive = record_lock_against(libc::F_RDLCK, file)?;
    Ok(Some(
        match exclusive.is_some_and(|lock| is_of_part(&lock)) {
            true => PartLock::Exclusive,
            false => PartLock::Shared,
        },
    ))
}

/// Waits for the pages, since those that are being written are skipped otherwise. The kernel
/// protects each page before it writes it, and notices the next store.
pub(super) fn write_back(file: &OwnedFd) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: this takes numbers.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

pub(super) fn users(file: &OwnedFd) -> FileUsers {
    FileUsers {
        is_in_use: is_open_for_writing(file) || is_locked(file).unwrap_or(true),
        part_lock: part_lock(file).unwrap_or(None),
    }
}

fn is_locked_as_a_whole(file: &OwnedFd) -> Result<bool> {
    let lock = |operation| retry_on_intr(|| rustix::fs::flock(file, operation));
    match lock(FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(true),
        locked => {
            locked?;
            lock(FlockOperation::Unlock)?;
            Ok(false)
        }
    }
}
