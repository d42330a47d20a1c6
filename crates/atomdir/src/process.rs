//! Waits for the end of the service's process.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// `None` if we cannot see the process, for example in another process namespace.
pub(crate) struct ServiceProcess(Option<OwnedFd>);

impl ServiceProcess {
    /// The process at the other end of the socket, which must be alive.
    pub(crate) fn at(socket: &OwnedFd) -> ServiceProcess {
        let credentials = rustix::net::sockopt::socket_peercred(socket);
        let process = credentials.and_then(|peer| pidfd_open(peer.pid, PidfdFlags::empty()));
        ServiceProcess(process.ok())
    }

    pub(crate) fn wait_for_end(self) {
        let Some(process) = self.0 else {
            return;
        };
        let mut polled = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut polled, None) == Err(Errno::INTR) {}
    }
}
