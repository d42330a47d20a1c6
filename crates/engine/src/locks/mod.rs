//! Locks on request. Optimistic transactions need none, but a transaction that holds
//! a lock cannot lose what the lock covers to another transaction's commit.
//!
//! A lock is on a part of the base, and every commit honours it: while it is held, a commit of
//! another transaction that changes the covered part conflicts. Requests for locks wait for one
//! another.
//!
//! A lock covers only what its holder may change or, for a shared lock, read. For a
//! locked subtree this is decided separately for each object below its root
//! (`reach`).
//!
//! Locks belong to the outermost of nested transactions, and end with it.
//!
//! `table` states the invariants. How a request is granted is in `requests::lock`.
//!
//! Calls of programs outside that go through a guard are requests as well (`requests::guarded`): they
//! take their turn among the others, and are never granted anything.
//!
//! A request that must wait looks again only when something has changed (`waiters`):
//! when a lock ends, a request comes or goes, or the store is poisoned.

pub(crate) mod changes;
mod leave;
pub(crate) mod reach;
pub(crate) mod resolve;
pub(crate) mod table;
mod target;
#[cfg(test)]
mod tests;
mod waiters;

use atomdir_disk::{Errno, reason};
use atomdir_types::{LockMode, LockScope};
use std::sync::{Arc, Mutex, MutexGuard};

pub use table::Waits;
pub(crate) use target::{Extent, Target};

use self::table::LockTable;
pub(crate) use self::waiters::Wake;
use self::waiters::{Waiters, Waiting};
use crate::error::{Conflict, StoreError};
use crate::ids::TransactionId;
use crate::lock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    pub mode: LockMode,
    pub scope: LockScope,
    /// Paths in the view, relative to its root. All are granted together.
    pub paths: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    #[error("the transaction has ended")]
    Ended,
    #[error("cannot lock '{path}': {errno}", errno = reason(errno))]
    Path { path: String, errno: Errno },
    /// Others hold locks, and the caller gave up waiting.
    #[error("other transactions hold locks on it")]
    Held(Vec<Waits>),
    /// Each transaction waits for the next, and the last for the first. The first
    /// one gets this error.
    #[error("to wait for these locks would be a deadlock")]
    Deadlock(Vec<Waits>),
    /// The snapshot does not show the present state of the part that the lock would protect.
    #[error("it was changed since the transaction began")]
    Changed(Vec<Conflict>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl LockError {
    /// The locks of others, or the changes, that are in the way.
    pub fn conflicts(&self) -> Vec<Conflict> {
        match self {
            LockError::Held(waits) => waits.iter().map(Waits::held).collect(),
            LockError::Deadlock(cycle) => cycle.iter().map(Waits::held_in_deadlock).collect(),
            LockError::Changed(conflicts) => conflicts.clone(),
            LockError::Ended | LockError::Path { .. } | LockError::Store(_) => Vec::new(),
        }
    }
}

/// How a request waits. The caller does the waiting, and decides who may give up and
/// when.
pub struct Patience<'a> {
    /// Called by any thread, with locks held, when the request may succeed now. It
    /// must neither wait nor call the store.
    pub wake: Arc<dyn Fn() + Send + Sync>,
    /// Returns `true` once `wake` has been called since `wait` last returned, or
    /// `false` to give up.
    pub wait: &'a mut dyn FnMut() -> bool,
}

#[derive(Default)]
pub(crate) struct Locks {
    table: Mutex<LockTable>,
    waiters: Waiters,
}

impl Locks {
    /// Code that changes the table calls [`Locks::wake_all`] before it unlocks the
    /// table.
    pub fn table(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.table)
    }

    /// Makes all waiting requests look at the table again.
    pub fn wake_all(&self) {
        self.waiters.wake_all();
    }

    /// Calls `wake` whenever the table changes, until the result is dropped.
    pub fn add_waiter(&self, wake: &Arc<dyn Fn() + Send + Sync>) -> Waiting<'_> {
        self.waiters.add(wake)
    }

    pub fn keep_waking(&self, wake: Wake) {
        self.waiters.keep(wake);
    }

    pub fn stop_waking(&self, wake: &Wake) {
        self.waiters.remove(wake);
    }

    /// Returns the locks of others that forbid these changes.
    pub fn forbid(&self, transaction: TransactionId, changes: &[Target]) -> Vec<Waits> {
        self.table().forbid(transaction, changes)
    }

    /// Releases the locks and requests of a transaction that has ended.
    pub fn ended(&self, transaction: TransactionId) {
        let mut table = self.table();
        if !table.is_empty() {
            table.release_all(transaction);
            self.wake_all();
        }
    }
}
