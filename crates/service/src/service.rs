//! What every connection shares.

use crate::connections::{ConnectionId, Connections};
use crate::latch::Latch;
use crate::socket::Stream;
use crate::ticks::Ticks;
use crate::transactions::{OpenTransaction, Transactions};
use crate::views::Views;
use atomdir_disk::LinuxDisk;
use atomdir_engine::Store;
use atomdir_protocol::{RecoveryReport, Timestamp};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub(crate) struct Service {
    pub(crate) store: Store<LinuxDisk>,
    /// Where the store's root is.
    pub(crate) path: PathBuf,
    pub(crate) views: Views,
    /// Where it listens for those who are in a view.
    pub(crate) inner_socket: Option<Vec<u8>>,
    /// Where the control directory is.
    pub(crate) control: PathBuf,
    pub(crate) transactions: Transactions,
    pub(crate) connections: Arc<Connections>,
    /// Of the thread that maintains the store.
    pub(crate) maintenance: Ticks,
    /// Set when whether the service is idle, or shall stop, may have changed.
    pub(crate) latch: Arc<Latch>,
    pub(crate) started: Timestamp,
    pub(crate) started_at: Instant,
    pub(crate) recovery: RecoveryReport,
    pub(crate) stop: Stop,
}

#[derive(Default)]
pub(crate) struct Stop {
    requested: AtomicBool,
    /// Those who asked, and wait until it is done.
    waiting: Mutex<Vec<Asker>>,
}

pub(crate) struct Asker {
    pub(crate) stream: Stream,
    /// When they asked: what they ended by it.
    pub(crate) transactions_open: u64,
}

impl Stop {
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) fn take_waiting(&self) -> Vec<Asker> {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service {
    pub(crate) fn request_stop(&self, stream: Stream) {
        let transactions_open = self.transactions.count() as u64;
        let mut waiting = self
            .stop
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.push(Asker {
            stream,
            transactions_open,
        });
        drop(waiting);
        self.stop.requested.store(true, Ordering::Release);
        self.latch.set();
    }

    /// A connection has closed.
    pub(crate) fn release_all(&self, holder: ConnectionId) {
        self.abort(self.transactions.release_all(holder));
    }

    pub(crate) fn abort_all(&self) -> u64 {
        self.abort(self.transactions.remove_all())
    }

    /// Of transactions already removed from the open ones. Says how many were
    /// aborted: a commit under way may have come first.
    pub(crate) fn abort(&self, ended: Vec<OpenTransaction>) -> u64 {
        // First all that others may wait for.
        let aborted = ended.iter().map(|one| self.store.abort(&one.transaction));
        let count = aborted.map(u64::from).sum();
        for one in &ended {
            self.views.hide(one.id());
        }
        if !ended.is_empty() {
            self.latch.set();
        }
        count
    }
}
