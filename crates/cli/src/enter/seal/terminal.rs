//! Restores the terminal after a command with a process namespace of its own.

use crate::enter::signals::set_of;
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

/// The terminal in which our process group is in the foreground. A shell in the
/// namespace moves its own group to the foreground. It cannot undo this, since it
/// does not see our group.
pub(in crate::enter) struct Foreground(Option<OwnedFd>);

impl Foreground {
    pub(in crate::enter) fn note() -> Foreground {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(c"/dev/tty", flags, Mode::empty()).ok();
        Foreground(terminal.filter(|terminal| tcgetpgrp(terminal) == Ok(getpgrp())))
    }

    /// Moves our process group to the foreground again.
    pub(in crate::enter) fn take_back(&self) {
        let Some(terminal) = &self.0 else {
            return;
        };
        // This call from the background raises a signal that stops us, unless we block it.
        let blocked = set_of(&[libc::SIGTTOU]);
        let mut before = MaybeUninit::uninit();
        // SAFETY: the call fills the second set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const blocked, before.as_mut_ptr()) };
        // If the terminal has hung up, there is nothing to restore.
        let _ = tcsetpgrp(terminal, getpgrp());
        if may_be_typed_by_programs() {
            // The command may have left input that a shell would take for the user's.
            let _ = tcflush(terminal, QueueSelector::IFlush);
        }
        // SAFETY: the set is the one that the first call has filled.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
}
