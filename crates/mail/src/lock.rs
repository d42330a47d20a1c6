//! The lock that keeps mail programs out of a mailbox while a message arrives.
//!
//! For an mbox it is the lock of fcntl(2), which mutt, procmail, maildrop and Dovecot take as
//! well, held from before the transaction begins until its commit is in the file. A Maildir needs
//! none; there flock(2) on the directory only lets deliveries wait for one another instead of
//! running into conflicts. No file is made for a lock, so a killed delivery leaves none behind.

use crate::mailbox::{Format, Mailbox};
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

/// The lock is let go when this is dropped. `None`: there is no mailbox yet.
pub struct Lock(#[allow(dead_code)] Option<OwnedFd>);

impl Lock {
    /// Waits until nobody else has the mailbox locked.
    pub fn take(mailbox: &Mailbox) -> Result<Lock, Errno> {
        let path = &mailbox.path;
        let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let flags = match mailbox.format {
            Format::Mbox => flags | OFlags::RDWR,
            Format::Maildir => flags | OFlags::RDONLY | OFlags::DIRECTORY,
        };
        loop {
            let file = match openat(CWD, path, flags, Mode::empty()) {
                Err(Errno::NOENT) => return Ok(Lock(None)),
                file => file?,
            };
            match mailbox.format {
                // A lock on a device means something else.
                Format::Mbox if !is_regular(&file)? => return Err(Errno::INVAL),
                Format::Mbox => wait_for(&file)?,
                Format::Maildir => flock(&file, FlockOperation::LockExclusive)?,
            }
            // A commit may have put another file in place of the one that we have locked.
            if is_at(&file, path)? {
                return Ok(Lock(Some(file)));
            }
        }
    }
}

/// Locks the whole file for as long as the descriptor is open, whatever else this process opens
/// and closes.
fn wait_for(file: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: all of it is numbers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    loop {
        // SAFETY: the kernel only reads the structure.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) } == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            errno => return Err(errno.unwrap_or(Errno::IO)),
        }
    }
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
