//! SIGTERM, SIGINT and SIGHUP, as something to poll.

use crate::ServiceError;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable once the process was asked to end. Those signals are blocked in
/// every thread started after this was made.
pub(crate) struct EndSignals(OwnedFd);

impl EndSignals {
    pub(crate) fn block() -> Result<EndSignals, ServiceError> {
        let failed = |operation| move |errno| ServiceError::Process { operation, errno };
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initializes the set; the numbers are valid.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
                libc::signal(signal, libc::SIG_DFL);
            }
            // A starter may ignore it, and then the end of fusermount3 could
            // not be waited for.
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            set.assume_init()
        };
        // SAFETY: the set is initialized; the old mask is not wanted.
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
        // SAFETY: signalfd just returned it, and nobody else has it.
        Ok(EndSignals(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
