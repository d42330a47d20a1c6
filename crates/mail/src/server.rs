//! Whether the mail server, which started this program, still lives.
//!
//! The end of the input is the end of the message only while it does: the pipe of a killed server
//! ends like any other.

use crate::failure::Failure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, getppid};

pub struct Server(Option<Pid>);

impl Server {
    /// Call this before anything that takes time.
    pub fn find() -> Result<Server, Failure> {
        let server = Server(getppid());
        match server.0 == Some(Pid::INIT) && is_apart_from_init() && has_input_ended() {
            true => Err(died()),
            false => Ok(server),
        }
    }

    pub fn check(&self) -> Result<(), Failure> {
        // A process whose parent dies gets another.
        match getppid() == self.0 {
            true => Ok(()),
            false => Err(died()),
        }
    }
}

fn died() -> Failure {
    Failure::TryAgain("the mail server died while it sent the message".to_owned())
}

/// Whether we are in another process group than the first process, as all programs that a mail
/// server starts. A script that is the first process of a container has us in its own.
fn is_apart_from_init() -> bool {
    // SAFETY: they take and return numbers.
    unsafe { libc::getpgid(0) != libc::getpgid(1) }
}

/// Whether nobody can write into the pipe any more. The kernel closes what a dying process has open
/// before it gives its children another parent.
fn has_input_ended() -> bool {
    let input = std::io::stdin();
    let mut polled = [PollFd::new(&input, PollFlags::IN)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok() && polled[0].revents().contains(PollFlags::HUP)
}
