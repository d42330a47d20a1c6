//! Leaving the starter's world: its session, terminal, directory, descriptors
//! and signal settings.

use crate::ServiceError;
use atomdir_protocol::{Readiness, frame};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::os::fd::OwnedFd;

/// Where the starter waits to hear how the start went.
#[derive(Debug)]
pub(crate) struct Starter(OwnedFd);

impl Starter {
    pub(crate) fn tell(self, readiness: &Readiness) {
        let Ok(mut bytes) = frame::encode(readiness, frame::REQUEST_LENGTH_MAX) else {
            return;
        };
        // A starter that has gone needs no answer.
        while let Ok(count @ 1..) = rustix::io::write(&self.0, &bytes) {
            bytes.drain(..count);
        }
    }
}

/// Continues in a process of its own: the one that called ends at once. Must
/// come before any thread is started and any descriptor is opened.
pub(crate) fn detach() -> Result<Starter, ServiceError> {
    let failed = |operation| move |errno| ServiceError::Process { operation, errno };
    // SAFETY: nothing but the three standard descriptors is in use yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed != 0 {
        return Err(failed("closing inherited descriptors")(last_errno()));
    }
    fork_away().map_err(failed("forking"))?;
    rustix::process::setsid().map_err(failed("starting a session"))?;
    let stdout = rustix::stdio::stdout();
    let starter =
        rustix::io::fcntl_dupfd_cloexec(stdout, 3).map_err(failed("keeping standard output"))?;
    let null = openat(
        CWD,
        "/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(failed("opening /dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(failed("leaving standard input"))?;
    rustix::stdio::dup2_stdout(&null).map_err(failed("leaving standard output"))?;
    rustix::stdio::dup2_stderr(&null).map_err(failed("leaving standard error"))?;
    Ok(Starter(starter))
}

/// What every service needs, detached or not.
pub(crate) fn settle() -> Result<(), ServiceError> {
    let failed = |operation| move |errno| ServiceError::Process { operation, errno };
    rustix::process::chdir("/").map_err(failed("changing directory to /"))?;
    // The modes that programs in views ask for are exact.
    rustix::process::umask(Mode::empty());
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .map_err(failed("raising the limit of open files"))
}

fn fork_away() -> Result<(), Errno> {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => Ok(()),
        // SAFETY: _exit runs no handlers; what is buffered stays the child's.
        _ => unsafe { libc::_exit(0) },
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
