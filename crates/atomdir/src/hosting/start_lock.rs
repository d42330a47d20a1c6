//! Serializes starting and ending. A process holds `start.lock` while it starts
//! a service or ends one. So a starter that meets an ending service waits for
//! its end, instead of failing or polling.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const NAME: &str = "start.lock";

/// Held until dropped or until the process exits.
#[derive(Debug)]
pub struct StartLock {
    _file: OwnedFd,
}

impl StartLock {
    pub fn wait(control: &OwnedFd) -> Result<StartLock, Errno> {
        let file = open(control)?;
        rustix::io::retry_on_intr(|| flock(&file, FlockOperation::LockExclusive))?;
        Ok(StartLock { _file: file })
    }

    /// Returns `None` if another process has it.
    pub fn try_take(control: &OwnedFd) -> Result<Option<StartLock>, Errno> {
        let file = open(control)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StartLock { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

fn open(control: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(control, NAME, flags, Mode::RUSR | Mode::WUSR)
}
