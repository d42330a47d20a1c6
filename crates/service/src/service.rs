//! What every connection shares.
//!
//! # Nobody holds up the others
//!
//! No thread or child process that serves several users waits for what one of them
//! controls. Where the service can come to wait for a client or for a client's files:
//!
//! - A peer that does not send, or does not read: its connection has a thread of its
//!   own, and time limits (`socket`).
//! - A barrier, and opening a view's root: a child process of the user's own mount
//!   (`views`, and `settle` of the crate fuse). Programs in the mount can keep the
//!   kernel's locks of its directories. Then the threads of that user's connections
//!   wait, until the service ends (`connections::close_all`, `Views::give_up_barriers`).
//! - The end of a transaction: the kernel forgets its view by the same child, and
//!   nobody waits longer than a second for that (`forgetting` of the crate fuse).
//! - Workers of a mount: they wait neither for commits nor for leases (`waiting` of the
//!   crate fuse), and serve one user.
//! - A lease on a file of the base: the engine's opens do not wait, but for those that
//!   apply a commit which is in the log. The thread of the committing connection waits,
//!   with no lock held (`leases`).
//! - Locks on request: the thread of the asking connection waits. What a lock covers is
//!   the holder's to change (`locks` of the engine).
//! - The end of the service: it breaks off what is left after two minutes
//!   (`lifecycle`).
//!
//! One thing is left to the kernel: who may list a directory of the base can keep it
//! locked, and a commit that changes its entries waits, as any program would. Commits
//! behind it wait with it.

use crate::access::Access;
use crate::connections::{ConnectionId, Connections};
use crate::expiry::Expiry;
use crate::latch::Latch;
use crate::limits::Budgets;
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
use std::time::{Duration, Instant};

pub(crate) struct Service {
    pub(crate) store: Store<LinuxDisk>,
    /// Where the store's root is.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) views: Views,
    /// Where it listens for those who are in a view.
    pub(crate) inner_socket: Option<Vec<u8>>,
    pub(crate) transactions: Transactions,
    pub(crate) budgets: Budgets,
    pub(crate) expiry: Expiry,
    pub(crate) connections: Arc<Connections>,
    /// Of the thread that maintains the store.
    pub(crate) maintenance: Ticks,
    /// Set when whether the service is idle, or shall stop, may have changed.
    pub(crate) latch: Arc<Latch>,
    pub(crate) started: Timestamp,
    pub(crate) started_at: Instant,
    pub(crate) recovery: RecoveryReport,
    pub(crate) stop: Stop,
    pub(crate) idle_time: IdleTime,
}

/// How long nothing need be open before the service ends; `None`: it stays.
pub(crate) struct IdleTime(Mutex<Option<Duration>>);

impl IdleTime {
    pub(crate) fn new(time: Option<Duration>) -> IdleTime {
        IdleTime(Mutex::new(time))
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service looks at it when the connection that asks has closed.
    pub(crate) fn set(&self, time: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }
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
            self.views.hide(&one.transaction);
            self.expiry.forget(one.id());
        }
        if !ended.is_empty() {
            self.latch.set();
        }
        count
    }
}
