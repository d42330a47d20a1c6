//! A flag that wakes a thread in poll.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Readable after [`Latch::set`] until [`Latch::clear`].
#[derive(Debug)]
pub(crate) struct Latch(OwnedFd);

impl Latch {
    pub(crate) fn new() -> Result<Latch, Errno> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Latch)
    }

    pub(crate) fn set(&self) {
        // The write can fail only if the latch is already set.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

impl AsFd for Latch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
