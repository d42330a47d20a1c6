//! Locks on request: optimistic transactions need none, but one that holds a
//! lock cannot lose what it covers to another one's commit.
//!
//! A lock is on a part of the base, and is honoured by every commit: while it
//! is held, a commit of another transaction that changes what it covers is a
//! conflict. Those who ask for locks wait for one another.
//!
//! A lock covers only what its holder may change, or for a shared lock read. Of the
//! objects below the root of a locked subtree that is asked one by one (`reach`).
//!
//! Locks belong to the outermost of nested transactions, and end with it.
//!
//! `table` states the invariants. How a request is granted is in `requests::lock`.
//!
//! A request that must wait looks again only when something has changed (`waiters`):
//! when a lock ends, a request comes or goes, or the store is poisoned.

pub(crate) mod changes;
mod reach;
pub(crate) mod resolve;
pub(crate) mod table;
mod target;
#[cfg(test)]
mod tests;
mod waiters;

use atomdir_disk::{Errno, reason};
use std::sync::{Arc, Mutex, MutexGuard};

pub use table::{LockMode, Waits};
pub(crate) use target::{Extent, Target};

use self::table::LockTable;
use self::waiters::{Waiter, Waiters};
use crate::error::{Conflict, StoreError};
use crate::ids::TransactionId;
use crate::lock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockRequest {
    pub mode: LockMode,
    pub scope: LockScope,
    /// In the view, relative to its root; granted all together.
    pub paths: Vec<Vec<u8>>,
}

/// How much of what is at a path is locked. Where there is nothing, it is the
/// name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// A file's contents and attributes; a directory's entries and attributes,
    /// but nothing below them.
    Object,
    /// The pages of a file's contents that hold these bytes, half-open.
    Bytes { start: u64, end: u64 },
    /// Everything at and below the path that the holder may change; for a shared
    /// lock, that they may read.
    Subtree,
}

/// A lock that is held or, if not `granted`, asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockStatus {
    pub path: Vec<u8>,
    pub mode: LockMode,
    pub scope: LockScope,
    pub granted: bool,
}

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    #[error("the transaction has ended")]
    Ended,
    #[error("cannot lock '{path}': {errno}", errno = reason(errno))]
    Path { path: String, errno: Errno },
    /// Others hold locks, and the caller would not wait longer.
    #[error("locked by others")]
    Held(Vec<Waits>),
    /// Each waits for the next, and the last for the first, which is told.
    #[error("deadlock")]
    Deadlock(Vec<Waits>),
    /// The snapshot does not show what the lock would protect.
    #[error("changed since the transaction began")]
    Changed(Vec<Conflict>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How a request waits. Its caller does that, and knows who may give up and when.
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
    /// Whoever changes the table calls [`Locks::wake_all`] before letting go of it.
    pub fn table(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.table)
    }

    /// Those who wait look at the table again.
    pub fn wake_all(&self) {
        self.waiters.wake_all();
    }

    /// Until the result is dropped, `wake` is called whenever the table changes.
    pub fn add_waiter(&self, wake: &Arc<dyn Fn() + Send + Sync>) -> Waiter<'_> {
        self.waiters.add(wake)
    }

    /// Locks of others that forbid a change.
    pub fn forbid(&self, transaction: TransactionId, changes: &[Target]) -> Vec<Waits> {
        self.table().forbid(transaction, changes)
    }

    /// A transaction has ended.
    pub fn ended(&self, transaction: TransactionId) {
        let mut table = self.table();
        if !table.is_empty() {
            table.release_all(transaction);
            self.wake_all();
        }
    }
}
