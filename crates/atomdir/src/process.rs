//! The process that uses a service, and the end of the service's own.

use crate::api::StoreError;
use crate::peer::peer_credentials;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::os::fd::OwnedFd;

/// The process that has opened something. A child that was forked off has copies of its
/// connections and files, and must not use them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opener(u32);

impl Opener {
    pub(crate) fn this_process() -> Opener {
        Opener(std::process::id())
    }

    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    pub(crate) fn require(self) -> Result<(), StoreError> {
        match self.is_here() {
            true => Ok(()),
            false => Err(StoreError::Forked { opener: self.0 }),
        }
    }

    /// As [`require`](Self::require), for operations on files.
    pub(crate) fn require_for_files(self) -> Result<(), Errno> {
        match self.is_here() {
            true => Ok(()),
            false => Err(Errno::STALE),
        }
    }
}

/// `None` if we cannot see the process, for example in another process namespace.
pub(crate) struct ServiceProcess(Option<OwnedFd>);

impl ServiceProcess {
    /// The process at the other end of the socket, which must be alive.
    pub(crate) fn at(socket: &OwnedFd) -> ServiceProcess {
        let process = peer_credentials(socket).ok().and_then(|peer| peer.process);
        let opened = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        ServiceProcess(opened)
    }

    pub(crate) fn wait_for_end(self) {
        let Some(process) = self.0 else {
            return;
        };
        let mut polled = [PollFd::new(&process, PollFlags::IN)];
        while poll(&mut polled, None) == Err(Errno::INTR) {}
    }
}
