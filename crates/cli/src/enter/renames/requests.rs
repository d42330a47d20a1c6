//! The kernel's questions about renames, and the answers (seccomp_unotify(2)).

use super::filter::checked;
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// SECCOMP_IOCTL_NOTIF_*, which have the same numbers on all architectures that Rust's
/// Linux programs run on, except for a few.
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const ANSWER: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const IS_VALID: libc::Ioctl = 0x4008_2102;
const SET_FLAGS: libc::Ioctl = 0x4008_2104;
/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
const WAKE_ON_THIS_PROCESSOR: u64 = 1;

pub(super) struct Listener(OwnedFd);

/// A system call of a process that waits for the answer.
pub(super) struct Request {
    id: u64,
    /// Of the thread.
    pub(super) process: u32,
    pub(super) call: libc::c_long,
    pub(super) arguments: [u64; 6],
}

pub(super) enum Outcome {
    /// The kernel does what it would do without us.
    GoOn,
    Done(Result<(), Errno>),
}

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Listener {
        // SAFETY: it takes a plain number. Kernels before 6.6 do not know it, and are slower.
        unsafe { libc::ioctl(descriptor.as_raw_fd(), SET_FLAGS, WAKE_ON_THIS_PROCESSOR) };
        Listener(descriptor)
    }

    pub(super) fn receive(&self) -> Result<Request, Errno> {
        // SAFETY: all zeros is valid, and required.
        let mut raw: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure.
        let received = unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut raw) };
        checked(received.into())?;
        Ok(Request {
            id: raw.id,
            process: raw.pid,
            call: raw.data.nr.into(),
            arguments: raw.data.args,
        })
    }

    /// Whether the caller still waits. If not, another process may have its number by now.
    pub(super) fn is_waiting(&self, request: &Request) -> bool {
        // SAFETY: the kernel reads the number.
        let valid = unsafe { libc::ioctl(self.0.as_raw_fd(), IS_VALID, &raw const request.id) };
        valid == 0
    }

    pub(super) fn answer(&self, request: &Request, outcome: Outcome) {
        let (flags, error) = match outcome {
            Outcome::GoOn => (libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32, 0),
            Outcome::Done(done) => (0, done.map_or_else(|errno| -errno.raw_os_error(), |()| 0)),
        };
        let mut raw = libc::seccomp_notif_resp {
            id: request.id,
            val: 0,
            error,
            flags,
        };
        // If this fails, the caller has been killed.
        // SAFETY: the kernel reads the structure.
        unsafe { libc::ioctl(self.0.as_raw_fd(), ANSWER, &raw mut raw) };
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
