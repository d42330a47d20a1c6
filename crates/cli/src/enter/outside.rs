//! Runs a program outside every view.

use super::Ended;
use super::child::ended;
use super::signals::{self, HeldSignals, Received};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs the program until it ends. A signal that a process sends to us alone is passed on to it. Also
/// returns the process that it was.
pub fn run_outside(mut command: Command) -> io::Result<(Pid, Ended)> {
    let signals = HeldSignals::hold()?;
    let release = signals.release_in_child();
    // SAFETY: the function only makes a system call, which is allowed after a fork.
    unsafe { command.pre_exec(release) };
    let mut child = command.spawn()?;
    let process = Pid::from_child(&child);
    let descriptor = pidfd_open(process, PidfdFlags::empty())?;
    loop {
        match signals.next(&descriptor, None, None)? {
            Received::Ended => return Ok((process, ended(child.wait()?))),
            Received::ToPassOn(signal) => signals::send(process, signal)?,
            // If we lead the session, the kernel sends the hang-up to us alone.
            Received::HangUp => signals::send(process, libc::SIGHUP)?,
            Received::Child
            | Received::FromTerminal
            | Received::TimedOut
            | Received::FromService => {}
        }
    }
}
