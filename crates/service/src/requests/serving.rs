//! Serves a connection: the greeting, then one request at a time.

use crate::clients::connection::{Connection, turn_away};
use crate::clients::connections::{ConnectionId, Connections};
use crate::clients::limits;
use crate::clients::replies::{Outcome, Unanswered};
use crate::clients::socket::{ReceiveError, Stream};
use crate::requests;
use crate::rights::walls::Walls;
use crate::service::Service;
use crate::transactions::notices;
use atomdir_protocol::handshake::{self, HandshakeError, Verdict};
use atomdir_protocol::{Failure, FailureKind, Reply, Request};
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Serves the connection until either side ends it. Then gives back what the connection
/// holds, even after a panic.
pub(crate) fn serve(
    service: Arc<Service>,
    connections: &Connections,
    id: ConnectionId,
    mut connection: Connection,
) {
    // The connection counts until it is closed, and the peer can delay that at will.
    let _counted = Counted { connections, id };
    let connection = &mut connection;
    let served = Served {
        service: Some(service),
        connections,
        id,
        connection,
    };
    served.run();
}

struct Counted<'a> {
    connections: &'a Connections,
    id: ConnectionId,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.connections.remove(self.id);
    }
}

struct Served<'a> {
    /// Only drop takes it.
    service: Option<Arc<Service>>,
    connections: &'a Connections,
    id: ConnectionId,
    connection: &'a mut Connection,
}

impl Served<'_> {
    fn run(self) {
        let Some(service) = self.service.clone() else {
            return;
        };
        if greet(&self.connection.stream).is_err() {
            return;
        }
        self.connection.walls = Walls::around(&self.connection.peer, &service.path);
        while self.is_wanted(&service)
            && let Ok(Some(request)) = next_request(&self.connection.stream)
        {
            if answer(&service, self.connection, request).is_err() {
                return;
            }
        }
    }
}

impl Served<'_> {
    /// Waits for a request. There is no limit if the connection holds a transaction or
    /// no limits apply to its user.
    fn is_wanted(&self, service: &Service) -> bool {
        let idle_time = limits::idle_time(self.connection.peer.user);
        while !self.connection.stream.is_ready_within(idle_time) {
            if !service.transactions.holds_any(self.id) {
                return false;
            }
        }
        true
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        if let Some(service) = self.service.take() {
            service.release_all(self.id);
        }
        // The service ends when no connection is left, and needs the store for itself
        // then.
        drop(self.connections.take_stream(self.id));
    }
}

fn greet(stream: &Stream) -> Result<(), ReceiveError> {
    let hello = stream.receive_hello()?;
    match handshake::decode_hello(&hello) {
        Ok(()) => stream.send_bytes(&handshake::encode_verdict(Verdict::Welcome))?,
        Err(HandshakeError::OtherVersion(_)) => {
            turn_away(stream, Verdict::OtherVersion);
            return Err(ReceiveError::Closed);
        }
        // The peer would not understand any answer.
        Err(HandshakeError::NotAtomdir) => return Err(ReceiveError::Closed),
    }
    Ok(())
}

/// Returns `None` if the peer has closed, or its request cannot be decoded. In that
/// case this sends a failure and the connection ends, since nobody knows where the next
/// request begins.
fn next_request(stream: &Stream) -> Result<Option<Request>, Errno> {
    match stream.receive_request() {
        Ok(request) => Ok(Some(request)),
        Err(ReceiveError::Closed) => Ok(None),
        Err(ReceiveError::Io(errno)) => Err(errno),
        Err(ReceiveError::Frame(error)) => {
            let failure = Failure::new(FailureKind::BadRequest, error.to_string());
            stream.send_reply(&Reply::Failed(failure))?;
            Ok(None)
        }
    }
}

/// An error means that the connection must end.
fn answer(service: &Service, connection: &mut Connection, request: Request) -> Result<(), Errno> {
    let named = notices::named(&request);
    let outcome = match requests::handle(service, connection, request) {
        Ok(outcome) => outcome,
        Err(Unanswered::Failed(failure)) => {
            let failure = notices::explain(service, &connection.peer, named, failure);
            Outcome::Last(Reply::Failed(failure))
        }
        Err(Unanswered::PeerLost(errno)) => return Err(errno),
    };
    match outcome {
        Outcome::Last(reply) => connection.stream.send_reply(&reply),
        Outcome::LastWith(reply, descriptor) => connection
            .stream
            .send_reply_with(&reply, descriptor.as_fd()),
        // The answer follows when the service has ended.
        Outcome::Stopping => Err(Errno::CANCELED),
    }
}
