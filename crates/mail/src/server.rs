//! Checks that the mail server, which started this program, is still running.
//!
//! If it was killed, the end of the input need not be the end of the message: the pipe also ends
//! when its writer is killed.

use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getppid};

pub struct Server(Option<Pid>);

impl Server {
    /// Notes the parent process as the mail server. Call this before anything that takes time.
    pub fn find() -> Result<Server, Failure> {
        let server = Server(getppid());
        match server.0 == Some(Pid::INIT) && is_apart_from_init() && has_input_ended() {
            true => Err(died()),
            false => Ok(server),
        }
    }

    pub fn check(&self) -> Result<(), Failure> {
        // The kernel gives a process another parent when its parent dies.
        match getppid() == self.0 {
            true => Ok(()),
            false => Err(died()),
        }
    }
}

fn died() -> Failure {
    Failure::TryAgain("the mail server died while it sent the message".to_owned())
}

/// Whether we are in another process group than process 1. Programs that a mail server starts are.
/// In a container, a script that is process 1 may start us; then we are in its group.
fn is_apart_from_init() -> bool {
    // SAFETY: the calls take and return numbers.
    unsafe { libc::getpgid(0) != libc::getpgid(1) }
}

/// Whether all writers have closed the pipe. The kernel closes the files of a dying process before
/// it gives its children another parent.
fn has_input_ended() -> bool {
    let input = std::io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}
