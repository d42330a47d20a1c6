//! For what calls through a guard wait: locks of transactions and, if the store is set so, those that
//! have written what a call changes. `requests::guarded` has the rules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_disk::Disk;

use crate::ids::TransactionId;
use crate::lock;
use crate::locks::Target;
use crate::locks::table::Ticket;
use crate::store::Store;
use crate::transaction::contention::Contention;

/// What a call waits for.
pub(crate) enum Awaited {
    Writers {
        transactions: BTreeSet<TransactionId>,
        /// What it is to change.
        targets: Vec<Target>,
    },
    Locks(Ticket),
}

/// Whether calls may wait for transactions.
#[derive(Clone)]
pub struct MayWait {
    /// Transactions hold locks.
    locks: Arc<AtomicBool>,
    /// Calls wait for writers. It is set under the commit lock, so not while a commit makes the
    /// kernel forget: that must know whether it can meet a call that waits.
    writers: Arc<AtomicBool>,
}

impl MayWait {
    pub fn now(&self) -> bool {
        self.locks.load(Ordering::Acquire) || self.writers.load(Ordering::Acquire)
    }
}

impl<D: Disk> Store<D> {
    /// From now on, calls through a guard wait for open transactions that have written what they
    /// change, or not.
    pub fn wait_for_writers(&self, calls_wait: bool) {
        let was = self.0.calls_wait.swap(calls_wait, Ordering::AcqRel);
        if was != calls_wait {
            self.heed_calls_wait();
        }
    }

    /// Begins or ends to note what transactions write. It takes locks of views.
    pub(crate) fn heed_calls_wait(&self) {
        let Contention { locks, writers } = &*self.0.contention;
        let starts = {
            let _committing = lock(&self.0.commit);
            let is_set = self.0.calls_wait.load(Ordering::Acquire);
            writers.let_calls_wait(is_set && self.0.gate.is_guarded())
        };
        if starts {
            self.note_writes_so_far();
        }
        locks.wake_all();
    }

    pub(crate) fn may_wait(&self) -> MayWait {
        let Contention { locks, writers } = &*self.0.contention;
        MayWait {
            locks: locks.table().in_use(),
            writers: writers.calls_wait_flag(),
        }
    }

    /// Notes what open transactions have written so far.
    pub(crate) fn note_writes_so_far(&self) {
        for other in self.transactions() {
            if let Some(view) = other.view.lock().as_ref() {
                other.note_writes(view);
            }
        }
    }

    /// Nobody waits any more for what the transaction has written.
    pub(crate) fn forget_writes(&self, id: TransactionId) {
        self.0.contention.writers.ended(id);
        self.wake_calls();
    }

    /// A transaction has ended, or landed a part of what it has written.
    pub(crate) fn wake_calls(&self) {
        let Contention { locks, writers } = &*self.0.contention;
        if writers.calls_wait() {
            locks.wake_all();
        }
    }
}
