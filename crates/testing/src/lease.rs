//! A lease holds up whoever opens a file for writing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// From `asm-generic/fcntl.h`: sets the signal that reports a lease break.
const F_SETSIG: libc::c_int = 10;

/// A read lease. It ends when this is dropped. The kernel ends it, too, after
/// /proc/sys/fs/lease-break-time, 45 seconds.
#[derive(Debug)]
pub struct Lease(File);

impl Lease {
    /// No process may have the file open for writing.
    #[track_caller]
    pub fn on(path: &Path) -> Lease {
        let lease = Lease(File::open(path).expect("the file is there"));
        // SIGURG is ignored by default.
        lease.control(F_SETSIG, libc::SIGURG);
        lease.control(libc::F_SETLEASE, libc::F_RDLCK);
        lease
    }

    /// Whether somebody waits for the end of the lease.
    pub fn is_in_the_way(&self) -> bool {
        self.control(libc::F_GETLEASE, 0) != libc::F_RDLCK
    }

    #[track_caller]
    fn control(&self, command: libc::c_int, argument: libc::c_int) -> libc::c_int {
        // SAFETY: the file is open, and these commands take numbers.
        let result = unsafe { libc::fcntl(self.0.as_raw_fd(), command, argument) };
        assert!(result >= 0, "{}", io::Error::last_os_error());
        result
    }
}
