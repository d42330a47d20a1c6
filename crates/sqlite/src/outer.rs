//! An outer transaction: everything between `atomdir_begin()` and `atomdir_commit()`. It holds
//! several transactions of SQLite, of one connection or several, and changes of plain files.
//!
//! A commit of SQLite leaves its changes in the outer transaction. Connections in it see each
//! other's changes, so inside it SQLite's locks have their usual meaning.
//!
//! Invariants
//! 1. While one connection in it writes a database, no other connection in it has a lock on it.
//! 2. If a rollback of SQLite could not restore the pages that it had written, the outer
//!    transaction cannot be committed any more.

use crate::abi::{self, LOCK_NONE, LOCK_RESERVED};
use crate::failure::{Failure, Result};
use atomdir::SharedTransaction;
use atomdir::hosting::sync;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

static OPEN: Mutex<Vec<Weak<Outer>>> = Mutex::new(Vec::new());
static NUMBERS: AtomicU64 = AtomicU64::new(1);

pub(crate) struct Outer {
    pub(crate) number: u64,
    /// The store's root.
    pub(crate) root: PathBuf,
    pub(crate) transaction: SharedTransaction,
    /// The path and the lock of each database that is locked, by its `key`.
    locks: Mutex<BTreeMap<u64, (PathBuf, c_int)>>,
    has_ended: AtomicBool,
    is_damaged: AtomicBool,
}

/// A new number, for a database or an outer transaction.
pub(crate) fn key() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

fn open() -> MutexGuard<'static, Vec<Weak<Outer>>> {
    sync::lock(&OPEN)
}

impl Outer {
    pub(crate) fn new(root: &Path, transaction: SharedTransaction) -> Arc<Outer> {
        let outer = Arc::new(Outer {
            number: key(),
            root: root.to_owned(),
            transaction,
            locks: Mutex::default(),
            has_ended: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        });
        let mut open = open();
        open.retain(|outer| outer.strong_count() > 0);
        open.push(Arc::downgrade(&outer));
        outer
    }

    pub(crate) fn find(number: u64) -> Option<Arc<Outer>> {
        let found = open().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        let mut found = found.into_iter();
        found.find(|outer| outer.number == number && !outer.has_ended())
    }

    pub(crate) fn lock(&self, key: u64, path: &Path, level: c_int) -> Result<()> {
        let mut locks = sync::lock(&self.locks);
        let in_the_way = locks.iter().any(|(other, (locked, theirs))| {
            *other != key
                && locked == path
                && (*theirs >= LOCK_RESERVED || level >= LOCK_RESERVED && *theirs != LOCK_NONE)
        });
        if in_the_way {
            return Err(Failure::new(
                abi::BUSY,
                "the database is locked by another connection in the same transaction",
            ));
        }
        let lock = locks
            .entry(key)
            .or_insert_with(|| (path.to_owned(), LOCK_NONE));
        lock.1 = lock.1.max(level);
        Ok(())
    }

    pub(crate) fn unlock(&self, key: u64, level: c_int) {
        let mut locks = sync::lock(&self.locks);
        if level == LOCK_NONE {
            locks.remove(&key);
        } else if let Some(lock) = locks.get_mut(&key) {
            lock.1 = level;
        }
    }

    pub(crate) fn damage(&self) {
        self.is_damaged.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn refuse_locked(&self) -> Result<()> {
        match sync::lock(&self.locks).is_empty() {
            true => Ok(()),
            false => Err(Failure::new(
                abi::ERROR,
                "a transaction of SQLite is still open; commit it or roll it back first",
            )),
        }
    }

    /// Commits. If that fails, aborts, unless a transaction of SQLite is still open.
    pub(crate) fn commit(&self) -> Result<()> {
        self.refuse_locked()?;
        self.has_ended.store(true, Ordering::Release);
        if self.is_damaged.load(Ordering::Acquire) {
            self.transaction.abort();
            return Err(Failure::new(
                abi::IOERR,
                "SQLite could not roll back one of its transactions, so the whole transaction was \
                 aborted; run it again",
            ));
        }
        let committed = self.transaction.commit();
        committed.map(drop).map_err(|error| {
            self.transaction.abort();
            Failure::of_commit(&error)
        })
    }

    pub(crate) fn abort(&self) -> Result<()> {
        self.refuse_locked()?;
        self.has_ended.store(true, Ordering::Release);
        self.transaction.abort();
        Ok(())
    }
}
