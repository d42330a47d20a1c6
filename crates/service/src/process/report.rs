//! Where the service reports what no client asked for: on standard error, which
//! for a detached service is `service.log` in the control directory.

use rustix::fs::{Mode, OFlags, fstat, ftruncate, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

const NAME: &str = "service.log";
const LENGTH_MAX: i64 = 1 << 20;

pub(crate) fn begin(control: &OwnedFd, detached: bool) {
    if detached {
        // Without a log the service still serves.
        let _ = use_log(control);
    }
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_writer(std::io::stderr)
        // By default it would report on standard error that it cannot write there, and panic
        // because it cannot. The log is often on the store's own disk, which may be full.
        .log_internal_errors(false)
        .try_init();
}

fn use_log(control: &OwnedFd) -> Result<(), Errno> {
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let log = openat(control, NAME, flags, Mode::RUSR | Mode::WUSR)?;
    if fstat(&log)?.st_size > LENGTH_MAX {
        ftruncate(&log, 0)?;
    }
    rustix::stdio::dup2_stderr(&log)
}
