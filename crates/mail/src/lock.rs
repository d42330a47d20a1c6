//! The lock that keeps other mail programs out of a mailbox while a message arrives.
//!
//! An mbox is locked by fcntl(2), as mutt, procmail, maildrop and Dovecot do. The lock is held
//! from before the transaction begins until the commit has changed the file. Mail programs need no
//! lock in a Maildir. There, flock(2) on the directory only makes deliveries wait for each other
//! instead of meeting conflicts. No lock files are used, so a killed delivery leaves none behind.
//!
//! Whoever can open a mailbox for reading can lock it, and need not give the lock back. So no delivery
//! waits for ever: a Maildir is then used without the lock, and a delivery to an mbox fails for now.

use crate::mailbox::{Format, Mailbox};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Programs hold these locks while they read or write a mailbox.
const WAIT_MAX: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(20);

/// A lock on a mailbox. Dropping it releases the lock. `None` if the mailbox does not exist yet.
pub struct Lock(
    #[allow(dead_code, reason = "closing the descriptor releases the lock")] Option<OwnedFd>,
);

impl Lock {
    /// Locks the mailbox. Waits while another program has it locked, but not for ever.
    pub fn take(mailbox: &Mailbox) -> Result<Lock, Errno> {
        let path = &mailbox.path;
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = match mailbox.format {
            Format::Mbox => flags | OFlags::RDWR,
            Format::Maildir => flags | OFlags::RDONLY | OFlags::DIRECTORY,
        };
        let start = Instant::now();
        loop {
            let file = match openat(CWD, path, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(Lock(None)),
                file => file?,
            };
            let locked = match mailbox.format {
                // A lock on a device would not protect a mailbox.
                Format::Mbox if !is_regular(&file)? => return Err(Errno::INVAL),
                Format::Mbox => try_lock(&file),
                Format::Maildir => flock(&file, FlockOperation::NonBlockingLockExclusive),
            };
            match locked {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::ACCESS) if start.elapsed() < WAIT_MAX => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(Errno::AGAIN | Errno::ACCESS) if mailbox.format == Format::Maildir => {
                    return Ok(Lock(None));
                }
                Err(errno) => return Err(errno),
            }
            // While we waited, a commit may have replaced the file: then lock the new one.
            if is_at(&file, path)? {
                return Ok(Lock(Some(file)));
            }
        }
    }
}

/// Locks the whole file until this descriptor is closed. (An ordinary lock of fcntl would be lost
/// when the process closes any other descriptor of the file.)
fn try_lock(file: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the structure consists of numbers, and zero is valid for each.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the kernel only reads the structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn is_regular(file: impl AsFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile)
}

fn is_at(file: impl AsFd, path: &Path) -> Result<bool, Errno> {
    let ours = fstat(file)?;
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok((found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}
