//! The terminal after a command that had a process namespace of its own.

use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::getpgrp;
use rustix::termios::{QueueSelector, tcflush, tcgetpgrp, tcsetpgrp};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::ptr;

/// Whether the kernel lets any program put characters into the input of its terminal
/// (TIOCSTI). Before Linux 6.2 it always does.
fn may_be_typed_by_programs() -> bool {
    let setting = crate::files::read_at(CWD, "/proc/sys/dev/tty/legacy_tiocsti");
    setting.map_or(true, |setting| !setting.starts_with(b"0"))
}

/// The terminal whose foreground our process group has. A shell in the namespace
/// makes a group of its own the foreground, and cannot give it back, as it does
/// not see ours.
pub(in crate::enter) struct Foreground(Option<OwnedFd>);

impl Foreground {
    pub(in crate::enter) fn note() -> Foreground {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(c"/dev/tty", flags, Mode::empty()).ok();
        Foreground(terminal.filter(|terminal| tcgetpgrp(terminal) == Ok(getpgrp())))
    }

    /// Makes our process group the foreground again.
    pub(in crate::enter) fn take_back(&self) {
        let Some(terminal) = &self.0 else {
            return;
        };
        // From the background the kernel stops us for this, unless it is blocked.
        let mut blocked = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: the first set is made empty before it is used, and the second
        // is filled by the call that changes the mask.
        unsafe {
            libc::sigemptyset(blocked.as_mut_ptr());
            libc::sigaddset(blocked.as_mut_ptr(), libc::SIGTTOU);
            libc::sigprocmask(libc::SIG_BLOCK, blocked.as_ptr(), before.as_mut_ptr());
        }
        // If the terminal has hung up there is nothing to take back.
        let _ = tcsetpgrp(terminal, getpgrp());
        if may_be_typed_by_programs() {
            // The command may have left there what a shell would take for ours.
            let _ = tcflush(terminal, QueueSelector::IFlush);
        }
        // SAFETY: as above.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}
