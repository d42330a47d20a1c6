//! Lets one process work in several transactions, one after another.

use crate::transaction::Transaction;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// While this exists, the process's current directory is in a transaction's
/// view. Suspending or dropping it restores the previous directory;
/// [`Transaction::enter`] resumes.
#[derive(Debug)]
#[must_use = "the directory changes back when this is dropped"]
pub struct Entered {
    before: Option<OwnedFd>,
}

impl Transaction {
    /// Makes the view's root this process's current directory, so that relative
    /// paths lead into the transaction. The current directory belongs to the
    /// whole process, so a process whose other threads use relative paths must
    /// not call this.
    pub fn enter(&self) -> Result<Entered, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let before = openat(CWD, ".", flags, Mode::empty())?;
        rustix::process::fchdir(self.root()?)?;
        Ok(Entered {
            before: Some(before),
        })
    }
}

impl Entered {
    /// Goes back to where the process was before. Unlike dropping this, reports a failure.
    pub fn suspend(mut self) -> Result<(), Errno> {
        let before = self.before.take();
        before.map_or(Ok(()), rustix::process::fchdir)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A caller who needs the result calls `suspend`.
            let _ = rustix::process::fchdir(before);
        }
    }
}
