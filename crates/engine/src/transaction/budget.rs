//! Limits how much the transactions of one user together may make the engine remember.
//!
//! Changed objects are kept in memory while a transaction is open. Other things that the
//! engine must remember count as changed objects, too:
//! - the extended attributes and link targets that it sets: each kilobyte that was ever set,
//!   whether or not it was replaced since;
//! - the objects that each savepoint keeps ([`View::kept_objects`]);
//! - the reads of a serializable transaction: one for every four objects, names and runs of pages;
//! - each lock that it holds.
//!
//! Nodes that were only looked up are in memory until the kernel, or the program that has looked
//! them up, forgets them. They are counted apart: a budget for n changed objects allows
//! n * [`LOOKED_UP_PER_OBJECT`] of them. So are the names that a view has resolved, which it
//! remembers as long as it keeps its snapshot: n * [`NAMES_PER_OBJECT`].
//!
//! The engine knows no users: its caller decides which transactions share a budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use atomdir_disk::{Disk, Errno, Result};

use super::Transaction;
use crate::view::View;

/// About how much memory a changed object takes.
const OBJECT_BYTES: u64 = 1024;
/// About how many nodes without changes take as much.
pub const LOOKED_UP_PER_OBJECT: u64 = 4;
/// About how many names do.
const NAMES_PER_OBJECT: u64 = 16;

#[derive(Debug)]
pub struct Budget {
    changed_objects_max: u64,
    changed_objects: AtomicU64,
    looked_up: AtomicU64,
    /// How many names the views of open transactions have resolved.
    names: Arc<AtomicU64>,
}

impl Budget {
    pub fn new(changed_objects_max: u64) -> Budget {
        Budget {
            changed_objects_max,
            changed_objects: AtomicU64::new(0),
            looked_up: AtomicU64::new(0),
            names: Arc::default(),
        }
    }

    /// How many nodes the open transactions have looked up and not forgotten.
    pub fn looked_up(&self) -> u64 {
        self.looked_up.load(Ordering::Relaxed)
    }

    /// How many changed objects the open transactions use.
    pub fn changed_objects(&self) -> u64 {
        self.changed_objects.load(Ordering::Relaxed)
    }
}

/// A transaction's share of a budget, if it has one. Dropping it returns the share.
#[derive(Debug, Default)]
pub(crate) struct Share {
    budget: OnceLock<Arc<Budget>>,
    changed_objects: AtomicU64,
    /// Bytes of extended attributes and link targets.
    bytes_set: AtomicU64,
    locks: AtomicU64,
    looked_up: AtomicU64,
}

impl Share {
    pub fn set(&self, budget: Arc<Budget>) {
        let _ = self.budget.set(budget);
    }

    /// Fails with `EDQUOT` when the budget is used up.
    pub fn require_room(&self) -> Result<()> {
        match self.budget.get() {
            Some(budget) if budget.changed_objects() >= budget.changed_objects_max => {
                Err(Errno::DQUOT)
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes of an attribute or a link target that will be kept in memory.
    pub fn add_bytes(&self, length: usize) {
        self.bytes_set.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Sets how many changed objects the view keeps.
    pub fn update(&self, kept_objects: impl FnOnce() -> u64) {
        if self.budget.get().is_some() {
            let bytes_set = self.bytes_set.load(Ordering::Relaxed);
            let now = kept_objects() + bytes_set / OBJECT_BYTES;
            self.set_used(&self.changed_objects, now, |budget| &budget.changed_objects);
        }
    }

    /// Fails with `EDQUOT` if no further nodes may be looked up.
    pub fn require_room_to_look(&self) -> Result<()> {
        let Some(budget) = self.budget.get() else {
            return Ok(());
        };
        let most = |per_object: u64| budget.changed_objects_max.saturating_mul(per_object);
        let names = budget.names.load(Ordering::Relaxed);
        let has_room =
            budget.looked_up() < most(LOOKED_UP_PER_OBJECT) && names < most(NAMES_PER_OBJECT);
        match has_room {
            true => Ok(()),
            false => Err(Errno::DQUOT),
        }
    }

    /// Sets how many nodes the view has.
    pub fn update_looked_up(&self, nodes: u64) {
        self.set_used(&self.looked_up, nodes, |budget| &budget.looked_up);
    }

    /// Sets how many locks the transaction holds.
    pub fn update_locks(&self, locks: u64) {
        self.set_used(&self.locks, locks, |budget| &budget.changed_objects);
    }

    fn set_used(&self, used: &AtomicU64, now: u64, of: impl FnOnce(&Budget) -> &AtomicU64) {
        let Some(budget) = self.budget.get() else {
            return;
        };
        let before = used.swap(now, Ordering::Relaxed);
        // No other thread does this at the same time: the caller has locked the
        // transaction's view or the table of locks. If the number falls, the wrapping
        // difference subtracts.
        let difference = now.wrapping_sub(before);
        of(budget).fetch_add(difference, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set_used(&self.changed_objects, 0, |budget| &budget.changed_objects);
        self.update_locks(0);
        self.update_looked_up(0);
    }
}

impl<D: Disk> Transaction<D> {
    /// From now on, everything that the engine remembers for the transaction counts towards this
    /// budget. Call this before anybody else gets the transaction. Once the budget is used up, every
    /// change fails with `EDQUOT`, and so do savepoints, locks, and reads of a serializable
    /// transaction.
    pub fn set_budget(&self, budget: Arc<Budget>) {
        let view = self.view.lock();
        if let Some(view) = view.as_ref() {
            view.count_names_in(&budget.names);
        }
        self.share.set(budget);
        // A fork has changes from the start.
        if let Some(view) = view.as_ref() {
            self.share.update(|| view.kept_objects());
        }
    }

    /// A read set takes memory as well. If there is no room to note a read, the read fails:
    /// a transaction that did not note it would not be serializable.
    pub(super) fn reading<T>(
        &self,
        view: &mut View<D>,
        act: impl FnOnce(&mut View<D>) -> Result<T>,
    ) -> Result<T> {
        match view.reads {
            Some(_) => self.charged(view, act),
            None => act(view),
        }
    }

    pub(super) fn charged<T>(
        &self,
        view: &mut View<D>,
        act: impl FnOnce(&mut View<D>) -> Result<T>,
    ) -> Result<T> {
        self.share.require_room()?;
        let done = act(view);
        self.share.update(|| view.kept_objects());
        done
    }
}
