//! A process that stays behind when `atomdir` has ended.

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::os::fd::RawFd;

/// Leaves the terminal, the current directory and all files but these.
pub fn stand_apart(mut kept: Vec<RawFd>) -> Result<(), Errno> {
    rustix::process::setsid()?;
    rustix::process::chdir(c"/")?;
    let null = openat(CWD, c"/dev/null", OFlags::RDWR, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    kept.extend([0, 1, 2]);
    kept.sort_unstable();
    kept.push(RawFd::MAX);
    for pair in kept.windows(2) {
        let (first, last) = (pair[0] + 1, pair[1] - 1);
        if first <= last {
            // SAFETY: the owners of the closed descriptors are not used any more.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
    std::mem::forget(null);
    Ok(())
}
