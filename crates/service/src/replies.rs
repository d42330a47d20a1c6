//! Sends long lists in parts, so that frames stay short and no list is in
//! memory twice.

use crate::socket::Stream;
use atomdir_protocol::{ChangeLine, Conflict, Failure, Reply};
use rustix::io::Errno;

/// The approximate length of a part.
const PART_LENGTH: usize = 256 << 10;

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    Failed(Failure),
    /// The connection to the peer is lost.
    PeerLost(Errno),
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Unanswered::Failed(failure)
    }
}

pub(crate) fn send_parts<T>(
    stream: &Stream,
    items: impl IntoIterator<Item = T>,
    length_of: impl Fn(&T) -> usize,
    reply: impl Fn(Vec<T>) -> Reply,
) -> Result<(), Unanswered> {
    let mut part = Vec::new();
    let mut length = 0;
    for item in items {
        length += length_of(&item);
        part.push(item);
        if length >= PART_LENGTH {
            send_one(stream, &reply(std::mem::take(&mut part)))?;
            length = 0;
        }
    }
    if part.is_empty() {
        return Ok(());
    }
    send_one(stream, &reply(part))
}

pub(crate) fn send_one(stream: &Stream, reply: &Reply) -> Result<(), Unanswered> {
    stream.send_reply(reply).map_err(Unanswered::PeerLost)
}

pub(crate) fn change_length(line: &ChangeLine) -> usize {
    16 + line.path.len() + line.from.as_ref().map_or(0, Vec::len)
}

pub(crate) fn conflict_length(conflict: &Conflict) -> usize {
    64 + conflict.path.len() + atomdir_protocol::LABEL_LENGTH_MAX
}
