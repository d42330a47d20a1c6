//! Which connections there are, and how many there may be.

use crate::latch::Latch;
use crate::limits;
use crate::socket::Stream;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Root and the store's owner find room even when all others are taken.
const OWNER_CONNECTIONS_EXTRA: u64 = 16;

pub(crate) struct Connections {
    open: Mutex<Open>,
    one_closed: Condvar,
    latch: Arc<Latch>,
}

#[derive(Default)]
struct Open {
    next: u64,
    /// No stream: it is being closed.
    streams: HashMap<u64, (u32, Option<Stream>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnectionId(u64);

impl Connections {
    /// `latch` is set whenever one has closed.
    pub(crate) fn new(latch: Arc<Latch>) -> Connections {
        Connections {
            open: Mutex::default(),
            one_closed: Condvar::new(),
            latch,
        }
    }

    /// `None`: there are too many.
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

    /// Gives back the stream that was kept for a connection, which still counts.
    pub(crate) fn take_stream(&self, id: ConnectionId) -> Option<Stream> {
        let mut open = self.lock();
        open.streams.get_mut(&id.0)?.1.take()
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        self.lock().streams.remove(&id.0);
        self.one_closed.notify_all();
        self.latch.set();
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().streams.len()
    }

    /// Ends every connection once its present request is answered, at the
    /// latest when a peer has not taken its answer for as long as `patience`.
    /// Returns when none is left. When one has not ended for so long, `give_up` lets
    /// those go who wait for something that other programs may keep for ever.
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
        let waited = self
            .one_closed
            .wait_timeout_while(self.lock(), time, is_open);
        let (open, _) = waited.unwrap_or_else(PoisonError::into_inner);
        open.streams.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
