//! `--status-fd N`: reports the outcome separately from the command's own
//! output and exit code.

use crate::error::Error;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd, retry_on_intr};
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;

pub struct StatusDescriptor {
    number: RawFd,
    descriptor: BorrowedFd<'static>,
}

impl StatusDescriptor {
    /// The command does not inherit it, unless it is one of the standard three.
    pub fn new(number: RawFd) -> Result<StatusDescriptor, Error> {
        let not_open = || Error::Usage {
            message: format!("--status-fd {number}: no such descriptor is open"),
            hint: Some(format!("open it in the shell: {number}>outcome")),
        };
        if number < 0 {
            return Err(not_open());
        }
        // SAFETY: our caller opened it for us and we never close it. The next
        // call finds out whether it is open at all.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let flags = fcntl_getfd(descriptor).map_err(|_| not_open())?;
        if number > 2 {
            fcntl_setfd(descriptor, flags | FdFlags::CLOEXEC).map_err(|_| not_open())?;
        }
        Ok(StatusDescriptor { number, descriptor })
    }

    pub fn write(&self, line: &str) -> Result<(), Error> {
        let text = format!("{line}\n");
        let mut left = text.as_bytes();
        while !left.is_empty() {
            let written = retry_on_intr(|| rustix::io::write(self.descriptor, left));
            let count = written.map_err(|errno| Error::Write {
                path: PathBuf::from(format!("/dev/fd/{}", self.number)),
                errno,
            })?;
            left = &left[count..];
        }
        Ok(())
    }
}
