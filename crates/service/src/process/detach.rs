//! Leaving the starter's surroundings: its environment, descriptors, session,
//! terminal, directory, umask and signal settings.

use crate::ServiceError;
use atomdir::client::SERVICE_ENVIRONMENT;
use atomdir_protocol::{Readiness, frame};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use std::ffi::OsString;
use std::os::fd::OwnedFd;

/// Room in the table of descriptors from the start. It takes 8 bytes of the kernel for each.
const DESCRIPTORS_AHEAD: i32 = 1024;

/// The pipe on which the starter waits for the result of the start.
#[derive(Debug)]
pub(crate) struct Starter(OwnedFd);

impl Starter {
    pub(crate) fn report(self, readiness: &Readiness) {
        let Ok(mut bytes) = frame::encode(readiness, frame::REQUEST_LENGTH_MAX) else {
            return;
        };
        // A starter that has gone needs no answer.
        while let Ok(count @ 1..) = rustix::io::write(&self.0, &bytes) {
            bytes.drain(..count);
        }
    }
}

/// Drops what a service inherits but does not use: descriptors other than the standard
/// ones, and all of the environment except [`SERVICE_ENVIRONMENT`].
///
/// Must come before any thread is started and any descriptor is opened.
pub(crate) fn drop_inheritance() -> Result<(), ServiceError> {
    // SAFETY: nothing but the three standard descriptors is in use yet.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
    if closed != 0 {
        let operation = "closing inherited descriptors";
        let errno = last_errno();
        return Err(ServiceError::Process { operation, errno });
    }
    let names: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    for name in names {
        if !SERVICE_ENVIRONMENT.iter().any(|kept| name == *kept) {
            // SAFETY: no other thread runs yet that could read the environment.
            unsafe { std::env::remove_var(name) };
        }
    }
    Ok(())
}

/// Continues in a new process; the calling process exits at once. Must be called
/// before any thread is started.
pub(crate) fn detach() -> Result<Starter, ServiceError> {
    let failed = |operation| move |errno| ServiceError::Process { operation, errno };
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

/// Settings that every service needs, detached or not.
pub(crate) fn configure_process() -> Result<(), ServiceError> {
    let failed = |operation| move |errno| ServiceError::Process { operation, errno };
    rustix::process::chdir("/").map_err(failed("changing directory to /"))?;
    // Files in views must get exactly the modes that programs ask for.
    rustix::process::umask(Mode::empty());
    // The service's memory holds what several users' transactions read and write and,
    // if root started it, root's environment. So other processes of the same user must
    // not inspect it. The process itself can still use /proc/self/fd, which the disk
    // needs: the kernel lets every process inspect itself.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(failed("keeping others out of its memory"))?;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(Resource::Nofile, raised)
        .map_err(failed("raising the limit of open files"))?;
    enlarge_descriptor_table();
    Ok(())
}

/// Makes room for descriptors while there is one thread. Once there are several, the kernel waits
/// for a grace period of RCU whenever the table grows, and with it the call that needs the
/// descriptor: 10 to 14 milliseconds on Linux 6.18, for the 65th one.
fn enlarge_descriptor_table() {
    if let Ok(file) = openat(CWD, "/dev/null", OFlags::CLOEXEC, Mode::empty()) {
        // With a lower limit this fails, and the table grows later.
        let _ = fcntl_dupfd_cloexec(&file, DESCRIPTORS_AHEAD - 1);
    }
}

fn fork_away() -> Result<(), Errno> {
    // SAFETY: the process has one thread, so the child may do anything.
    match unsafe { libc::fork() } {
        -1 => Err(last_errno()),
        0 => Ok(()),
        // SAFETY: _exit runs no handlers, so only the child writes out buffered data.
        _ => unsafe { libc::_exit(0) },
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
