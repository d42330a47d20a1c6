//! One connection, and whose it is.

use crate::clients::connections::ConnectionId;
use crate::clients::socket::Stream;
use crate::rights::permissions::Peer;
use crate::rights::walls::Walls;
use atomdir_protocol::TransactionId;
use atomdir_protocol::handshake::{self, Verdict};

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) peer: Peer,
    /// What keeps the peer from the store.
    pub(crate) walls: Walls,
    pub(crate) id: ConnectionId,
    /// The first transaction begun on this connection. A later one may claim to be
    /// another try of this one or of any after it, but of none before.
    pub(crate) first_begun: Option<TransactionId>,
}

impl Connection {
    /// The first try that the peer claims, if it may claim it.
    pub(crate) fn first_try(&self, claimed: Option<TransactionId>) -> Option<TransactionId> {
        claimed.filter(|claimed| self.first_begun.is_some_and(|first| first <= *claimed))
    }
}

/// Sends a peer that cannot be served the reason, without waiting for its greeting.
pub(crate) fn turn_away(stream: &Stream, verdict: Verdict) {
    let _ = stream.send_bytes(&handshake::encode_verdict(verdict));
}
