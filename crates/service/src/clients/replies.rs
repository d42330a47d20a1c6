//! Answers to requests. Long lists are sent in parts, so that frames stay short and no list is in
//! memory twice.

use crate::clients::socket::Stream;
use atomdir_engine::TreePath;
use atomdir_protocol::{ChangeLine, Conflict, Failure, Reply};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The approximate length of a part.
const PART_LENGTH: usize = 256 << 10;

/// The answer to a request.
pub(crate) enum Outcome {
    Last(Reply),
    /// A reply with a descriptor of a view's root.
    LastWith(Reply, OwnedFd),
    /// The reply follows when the service has ended.
    Stopping,
}

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
    reply: fn(Vec<T>) -> Reply,
) -> Result<(), Unanswered> {
    let mut sender = PartSender::new(stream, reply);
    for item in items {
        let length = length_of(&item);
        sender.send(item, length)?;
    }
    sender.finish()
}

/// Sends a list in parts while its items are found.
pub(crate) struct PartSender<'a, T> {
    stream: &'a Stream,
    reply: fn(Vec<T>) -> Reply,
    part: Vec<T>,
    length: usize,
}

impl<'a, T> PartSender<'a, T> {
    pub(crate) fn new(stream: &'a Stream, reply: fn(Vec<T>) -> Reply) -> PartSender<'a, T> {
        PartSender {
            stream,
            reply,
            part: Vec::new(),
            length: 0,
        }
    }

    /// `length` is about that of the item in a message.
    pub(crate) fn send(&mut self, item: T, length: usize) -> Result<(), Unanswered> {
        self.length += length;
        self.part.push(item);
        if self.length < PART_LENGTH {
            return Ok(());
        }
        self.length = 0;
        send_one(self.stream, &(self.reply)(std::mem::take(&mut self.part)))
    }

    pub(crate) fn finish(self) -> Result<(), Unanswered> {
        if self.part.is_empty() {
            return Ok(());
        }
        send_one(self.stream, &(self.reply)(self.part))
    }
}

pub(crate) fn send_one(stream: &Stream, reply: &Reply) -> Result<(), Unanswered> {
    stream.send_reply(reply).map_err(Unanswered::PeerLost)
}

/// Sends changes, whose paths are written out one at a time.
pub(crate) fn send_changes(
    stream: &Stream,
    lines: impl IntoIterator<Item = ChangeLine<TreePath>>,
) -> Result<(), Unanswered> {
    let lines = lines.into_iter().map(ChangeLine::written_out);
    send_parts(stream, lines, change_length, Reply::Changes)
}

fn change_length(line: &ChangeLine) -> usize {
    16 + line.path.len() + line.from.as_ref().map_or(0, Vec::len)
}

pub(crate) fn conflict_length(conflict: &Conflict) -> usize {
    64 + conflict.path.len() + atomdir_protocol::LABEL_LENGTH_MAX
}
