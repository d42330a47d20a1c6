//! The ways by which requests come and answers go.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use atomdir_disk::Errno;

use crate::device;
use crate::ring::Inbox;

/// Whether anyone was still waiting for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Delivered {
    Yes,
    No,
}

/// Whether a worker goes on after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Next {
    Continue,
    Stop,
}

/// The source of one worker's requests. Each is received, then answered or put off.
pub trait Transport {
    /// Waits for a request. Returns `false` once no more will come.
    fn receive(&mut self) -> Result<bool, Errno>;

    /// The request that was received last.
    fn message(&self) -> &[u8];

    fn answer(&mut self, unique: u64, answer: Result<&[u8], Errno>) -> Delivered;

    /// Answers a request of a session that is ending.
    fn refuse(&mut self, unique: u64, errno: Errno) -> Next;

    /// Puts the request off. Its answer must later be given to the addressee returned.
    fn put_off(&mut self) -> Addressee;
}

/// Where to send the answer to one request: the kernel accepts it only by the way on
/// which it sent the request.
pub enum Addressee {
    Device(Arc<OwnedFd>),
    Ring { inbox: Arc<Inbox>, entry: usize },
}

impl Addressee {
    pub fn answer(&self, unique: u64, answer: Result<&[u8], Errno>) -> Delivered {
        match self {
            Addressee::Device(device) => device::reply(device, unique, answer),
            Addressee::Ring { inbox, entry } => inbox.answer(*entry, unique, answer),
        }
    }
}
