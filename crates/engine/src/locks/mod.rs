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
//! A lock is granted under the commit lock, when every commit before it is in
//! the base, and only if nothing it covers has changed since the snapshot: its
//! holder works on what others see, and nobody's commit can come between.
//!
//! A request that must wait looks again only when something has changed (`waiters`):
//! when a lock ends, a request comes or goes, or the store is poisoned.

mod changes;
mod reach;
mod resolve;
mod table;
mod target;
#[cfg(test)]
mod tests;
mod waiters;

use atomdir_disk::{Disk, Errno, reason};
use std::sync::{Arc, Mutex, MutexGuard};

pub use table::{LockMode, Waits};
pub(crate) use target::{Extent, Target};

use self::table::{Asker, Lock, LockTable, Progress, Ticket};
use self::waiters::Waiters;
use crate::commit::CommitState;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::Credentials;
use crate::write_set::WriteSet;

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
    fn table(&self) -> MutexGuard<'_, LockTable> {
        lock(&self.table)
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
            self.waiters.wake_all();
        }
    }

    /// Nobody gets a lock any more: those who wait are to learn why.
    pub fn store_is_poisoned(&self) {
        self.waiters.wake_all();
    }
}

impl<D: Disk> Store<D> {
    /// Locks for a transaction, until it ends.
    pub fn lock(
        &self,
        transaction: &Transaction<D>,
        request: &LockRequest,
        credentials: &Credentials,
        patience: &mut Patience<'_>,
    ) -> Result<(), LockError> {
        self.refuse_if_poisoned()?;
        let wanted = {
            let mut guard = transaction.view.lock();
            let view = guard.as_mut().ok_or(LockError::Ended)?;
            resolve::locks(view, request, credentials)?
        };
        let locks = &self.0.core.locks;
        let ticket = {
            let mut table = locks.table();
            let holder = transaction.outermost();
            if self.transaction(holder.id()).is_none() {
                return Err(LockError::Ended);
            }
            let asker = Asker {
                transaction: holder.id(),
                age: holder.age(),
            };
            let ticket = table.ask(asker, wanted.clone());
            // Someone may now pass a request that came before.
            locks.waiters.wake_all();
            ticket
        };
        // What changes from here on wakes it, and before each wait it looks once.
        let _waiter = locks.waiters.add(&patience.wake);
        loop {
            let sound = self.refuse_if_poisoned();
            let settled = sound.and_then(|()| self.lock_settled());
            let mut table = locks.table();
            if settled.is_err() {
                // Nobody else is to wait for a request that nobody makes any more.
                table.withdraw(ticket);
                locks.waiters.wake_all();
            }
            let state = settled?;
            match table.progress(ticket) {
                Progress::Granted => {
                    // Others may have been overtaken, and wait for this one now.
                    locks.waiters.wake_all();
                    drop(table);
                    return self.confirm(transaction, &wanted, &state);
                }
                Progress::Ended => return Err(LockError::Ended),
                Progress::Deadlock(cycle) => {
                    locks.waiters.wake_all();
                    return Err(LockError::Deadlock(cycle));
                }
                Progress::Waiting => {}
            }
            drop(state);
            drop(table);
            if !(patience.wait)() {
                return self.give_up(ticket);
            }
        }
    }

    fn give_up(&self, ticket: Ticket) -> Result<(), LockError> {
        let mut table = self.0.core.locks.table();
        let waits = table.waits_for(ticket);
        table.withdraw(ticket);
        self.0.core.locks.waiters.wake_all();
        Err(LockError::Held(waits))
    }

    /// A lock on what has changed since the snapshot would be of no use.
    fn confirm(
        &self,
        transaction: &Transaction<D>,
        locks: &[Lock],
        state: &CommitState<D>,
    ) -> Result<(), LockError> {
        let changed = locks
            .iter()
            .filter_map(|lock| self.changed_since(lock, transaction.at));
        let changed: Vec<(Vec<u8>, Sequence)> = changed.collect();
        if changed.is_empty() {
            return Ok(());
        }
        let mut table = self.0.core.locks.table();
        table.release(transaction.outermost().id(), |held| {
            locks
                .iter()
                .any(|lock| lock.path == held.path && lock.target.extent == held.target.extent)
        });
        self.0.core.locks.waiters.wake_all();
        let conflicts = changed.into_iter().map(|(path, by)| Conflict {
            path,
            what: ConflictKind::ChangedBeforeLock,
            by: ChangedBy::commit(by),
        });
        let mut conflicts: Vec<Conflict> = conflicts.collect();
        state.describe(&self.0.core, &mut conflicts);
        Err(LockError::Changed(conflicts))
    }

    /// The newest commit after `at` that changed what a lock covers.
    fn changed_since(&self, lock: &Lock, at: Sequence) -> Option<(Vec<u8>, Sequence)> {
        let Target { base, extent } = &lock.target;
        let mut newest = changes::newest(base, extent);
        if *extent == Extent::Subtree {
            let retained: Vec<_> = crate::lock(&self.0.retained).values().cloned().collect();
            for below in retained {
                let target = Target {
                    base: below,
                    extent: Extent::Object,
                };
                if target.is_below(base) && lock.reaches(&target) {
                    newest = newest.max(changes::newest(&target.base, &target.extent));
                }
            }
        }
        newest
            .filter(|changed| *changed > at)
            .map(|changed| (lock.path.clone(), changed))
    }

    /// Ends locks of a transaction on these paths, or all of them; returns how
    /// many there were.
    pub fn unlock(&self, transaction: &Transaction<D>, paths: Option<&[Vec<u8>]>) -> u64 {
        let mut table = self.0.core.locks.table();
        let released = table.release(transaction.outermost().id(), |lock| {
            paths.is_none_or(|paths| paths.contains(&lock.path))
        });
        self.0.core.locks.waiters.wake_all();
        released
    }

    /// The locks a transaction holds, and those it waits for, by path.
    pub fn locks(&self, transaction: &Transaction<D>) -> Vec<LockStatus> {
        let transaction = transaction.outermost().id();
        let table = self.0.core.locks.table();
        let status = |lock: Lock, granted| LockStatus {
            scope: resolve::scope(&lock.target.extent),
            path: lock.path,
            mode: lock.mode,
            granted,
        };
        let held = table.held_by(transaction).into_iter();
        let awaited = table.awaited_by(transaction).into_iter();
        let mut all: Vec<LockStatus> = held
            .map(|lock| status(lock, true))
            .chain(awaited.map(|lock| status(lock, false)))
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    /// A commit is refused while others have locked what it changes.
    pub(crate) fn refuse_locked(
        &self,
        transaction: &Transaction<D>,
        set: &WriteSet,
    ) -> Result<(), CommitError> {
        let held = {
            let table = self.0.core.locks.table();
            if table.is_empty() {
                return Ok(());
            }
            table.forbid(transaction.id(), &changes::of(set))
        };
        let mut conflicts: Vec<Conflict> = held
            .into_iter()
            .map(|waits| Conflict {
                path: waits.path,
                what: ConflictKind::Locked,
                by: self.open_transaction(waits.holder),
            })
            .collect();
        if conflicts.is_empty() {
            return Ok(());
        }
        conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        conflicts.dedup();
        Err(CommitError::Conflict(conflicts))
    }

    pub(crate) fn open_transaction(&self, id: TransactionId) -> ChangedBy {
        let open = self.transaction(id);
        ChangedBy::Open {
            transaction: id,
            label: open.map_or_else(Vec::new, |open| open.label().to_vec()),
        }
    }
}
