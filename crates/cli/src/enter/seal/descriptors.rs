//! Descriptors that a sealed command must not inherit. A directory that is open
//! outside of its namespace leads to the base, and so does a file of the base.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// The caller decides about the standard three.
const FIRST: RawFd = 3;

/// Closes all descriptors from number 3 on when the command is executed, except
/// pipes, sockets and terminals, which a shell passes on purpose.
pub(in crate::enter) fn withhold() -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let table = openat(CWD, c"/proc/self/fd", flags, Mode::empty())?;
    for entry in Dir::read_from(&table)? {
        let entry = entry?;
        let name = entry.file_name().to_str().ok();
        let Some(number) = name.and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        if number < FIRST {
            continue;
        }
        // SAFETY: if the number is not open, the calls fail. This process has one
        // thread, so the number is not reused meanwhile.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let Ok(flags) = fcntl_getfd(descriptor) else {
            continue;
        };
        let is_channel = fstat(descriptor).is_ok_and(|stat| {
            matches!(
                FileType::from_raw_mode(stat.st_mode),
                FileType::Fifo | FileType::Socket | FileType::CharacterDevice
            )
        });
        if !flags.contains(FdFlags::CLOEXEC) && !is_channel {
            fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}
