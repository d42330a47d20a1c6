//! How much the transactions of one user together may make the engine remember.
//!
//! Changed objects are kept in memory while a transaction is open, and so are the extended
//! attributes and link targets that it sets: each kilobyte of these that was ever set counts
//! as one more object, whether or not it was replaced since. The engine knows no
//! users: whoever begins transactions says which of them share a budget.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use atomdir_disk::{Errno, Result};

/// About what a changed object takes.
const OBJECT_BYTES: u64 = 1024;

#[derive(Debug)]
pub struct Budget {
    changed_objects_max: u64,
    changed_objects: AtomicU64,
}

impl Budget {
    pub fn new(changed_objects_max: u64) -> Budget {
        Budget {
            changed_objects_max,
            changed_objects: AtomicU64::new(0),
        }
    }

    /// What open transactions have changed.
    pub fn changed_objects(&self) -> u64 {
        self.changed_objects.load(Ordering::Relaxed)
    }
}

/// A transaction's share of a budget, if it has one; given back with the transaction.
#[derive(Debug, Default)]
pub(crate) struct Share {
    budget: OnceLock<Arc<Budget>>,
    changed_objects: AtomicU64,
    /// Of attributes and link targets.
    bytes_set: AtomicU64,
}

impl Share {
    pub fn set(&self, budget: Arc<Budget>) {
        let _ = self.budget.set(budget);
    }

    /// `EDQUOT` when all is used up.
    pub fn require_room(&self) -> Result<()> {
        match self.budget.get() {
            Some(budget) if budget.changed_objects() >= budget.changed_objects_max => {
                Err(Errno::DQUOT)
            }
            _ => Ok(()),
        }
    }

    /// So much of an attribute or a link target is about to be kept in memory.
    pub fn add_bytes(&self, length: usize) {
        self.bytes_set.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// The transaction has so many changed objects now.
    pub fn update(&self, changed_objects: usize) {
        let bytes_set = self.bytes_set.load(Ordering::Relaxed);
        self.set_used(changed_objects as u64 + bytes_set / OBJECT_BYTES);
    }

    fn set_used(&self, now: u64) {
        let Some(budget) = self.budget.get() else {
            return;
        };
        let before = self.changed_objects.swap(now, Ordering::Relaxed);
        // One at a time: the transaction's view is locked. Subtracting wraps likewise.
        let difference = now.wrapping_sub(before);
        budget
            .changed_objects
            .fetch_add(difference, Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set_used(0);
    }
}
