//! SIGTERM, SIGINT and SIGHUP as a descriptor to poll.

use crate::ServiceError;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable once the process has got such a signal. The signals are blocked in the
/// calling thread and in every thread that it starts later.
pub(crate) struct EndSignals(OwnedFd);

impl EndSignals {
    pub(crate) fn block() -> Result<EndSignals, ServiceError> {
        let failed = |operation| move |errno| ServiceError::Process { operation, errno };
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        stop_ignoring();
        ignore_limits();
        // SAFETY: sigemptyset initializes the set; the numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
                libc::signal(signal, libc::SIG_DFL);
            }
            set.assume_init()
        };
        // SAFETY: the set is initialized; we do not need the old mask.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(failed("blocking signals")(Errno::from_raw_os_error(error)));
        }
        // SAFETY: the set is initialized; -1 asks for a new descriptor.
        let descriptor =
            unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            let error = std::io::Error::last_os_error();
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            return Err(failed("receiving signals")(errno));
        }
        // SAFETY: signalfd just returned it, and nothing else owns it.
        Ok(EndSignals(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

/// A limit for the length of files or for processor time, inherited from the starter, must not kill
/// a service that works for others: a write that is too long fails with `EFBIG`.
fn ignore_limits() {
    for signal in [libc::SIGXFSZ, libc::SIGXCPU] {
        // SAFETY: it changes only the signal's effect.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
}

/// Restores the default effect of signals that the starter ignores. If SIGCHLD were
/// ignored, for example, we could not wait for fusermount3. Rust's runtime ignores
/// SIGPIPE, and that stays.
fn stop_ignoring() {
    const SIGNALS_MAX: i32 = 64;
    for signal in (1..=SIGNALS_MAX).filter(|signal| *signal != libc::SIGPIPE) {
        let mut now = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: sigaction fills `now`, or fails if the number is not a signal's.
        unsafe {
            if libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0
                && now.assume_init().sa_sigaction == libc::SIG_IGN
            {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
