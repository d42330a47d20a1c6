//! Keeps track of connections and limits their number.

use crate::clients::latch::Latch;
use crate::clients::limits;
use crate::clients::socket::Stream;
use atomdir_disk::sync;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Reserved for root and the store's owner when all other connections are taken.
const OWNER_CONNECTIONS_EXTRA: u64 = 16;

pub(crate) struct Connections {
    open: Mutex<Open>,
    one_closed: Condvar,
    latch: Arc<Latch>,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// A connection that is being closed has no stream.
    streams: HashMap<u64, (u32, Option<Stream>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

impl Connections {
    /// The service sets `latch` whenever a connection has closed.
    pub(crate) fn new(latch: Arc<Latch>) -> Connections {
        Connections {
            open: Mutex::default(),
            one_closed: Condvar::new(),
            latch,
        }
    }

    /// Returns `None` if there are too many.
    pub(crate) fn admit(&self, user: u32, stream: &Stream) -> Option<ConnectionId> {
        let mut open = self.lock();
        let own = open
            .streams
            .values()
            .filter(|(other, _)| *other == user)
            .count();
        let limits = limits::limits();
        let (all, own) = (open.streams.len() as u64, own as u64);
        let refused = if limits::bind(user) {
            all >= limits.connections_max || own >= limits.user_connections_max
        } else {
            all >= limits.connections_max + OWNER_CONNECTIONS_EXTRA
        };
        if refused {
            return None;
        }
        let id = open.next;
        open.next += 1;
        open.streams.insert(id, (user, Some(stream.clone())));
        Some(ConnectionId(id))
    }

    /// Returns the stream that was kept for a connection. The connection still counts.
    pub(crate) fn take_stream(&self, id: ConnectionId) -> Option<Stream> {
        let mut open = self.lock();
        open.streams.get_mut(&id.0)?.1.take()
    }

    /// The user at the other end, and the stream.
    pub(crate) fn peer(&self, id: ConnectionId) -> Option<(u32, Stream)> {
        let open = self.lock();
        let (user, stream) = open.streams.get(&id.0)?;
        Some((*user, stream.clone()?))
    }

    /// Whether the connection's peer is still there. After its peer has gone, a connection
    /// takes a moment to end.
    pub(crate) fn has_peer(&self, id: ConnectionId) -> bool {
        let open = self.lock();
        let stream = open
            .streams
            .get(&id.0)
            .and_then(|(_, stream)| stream.as_ref());
        stream.is_some_and(|stream| !stream.is_hung_up_within(Duration::ZERO))
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        self.lock().streams.remove(&id.0);
        self.one_closed.notify_all();
        self.latch.set();
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().streams.len()
    }

    /// Ends each connection after its present request is answered, and returns when
    /// none is left. A peer has `patience` to read its answer. Each time `patience`
    /// passes and connections are left, `give_up` is called: it may end waits that
    /// other programs could prolong for ever.
    pub(crate) fn close_all(&self, patience: Duration, give_up: impl Fn()) {
        for stream in self
            .lock()
            .streams
            .values()
            .filter_map(|(_, one)| one.as_ref())
        {
            stream.close_for_reading();
        }
        while !self.is_empty_within(patience) {
            for stream in self
                .lock()
                .streams
                .values()
                .filter_map(|(_, one)| one.as_ref())
            {
                stream.close_if_sending();
            }
            give_up();
        }
    }

    fn is_empty_within(&self, time: Duration) -> bool {
        let is_open = |open: &mut Open| !open.streams.is_empty();
        let (open, _) = sync::wait_for_while(&self.one_closed, self.lock(), time, is_open);
        open.streams.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        sync::lock(&self.open)
    }
}
