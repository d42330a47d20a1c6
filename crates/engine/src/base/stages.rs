//! The staging directories of transactions: making, reusing and dropping them.
//!
//! A small commit leaves its directory empty behind, and the next transaction takes it over under the
//! name that it has. To make and remove one for each would cost more than all the rest of a small
//! commit on ext4, which looks for a free inode among all those that were freed within the last
//! seconds; to rename it would cost a twelfth of such a commit. A directory has the id of the
//! transaction that made it, and records say which one they mean.
//!
//! A transaction with an overlay that has changed nothing leaves the overlay's own directories. To remove
//! them takes milliseconds where each freed block is discarded at once (ext4 without a journal, mounted
//! with `discard`), so a caller with threads has that done later. What others have staged is removed before their
//! abort returns: then its space is free.
//!
//! Invariants
//! 1. Transactions that have used one directory have named nothing in it alike, so a record never
//!    leads to another one's object.
//! 2. A transaction that survives its service, or that has an overlay, has a directory with its own
//!    id: others find it by that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use atomdir_disk::{Access, Disk, Errno, NewNode, RenameMode, Result, reason};

use crate::base::core::Core;
use crate::base::handles::HandleKey;
use crate::control::{self, PRIVATE_DIRECTORY};
use crate::ids::TransactionId;
use crate::lock;
use crate::names;

/// More would be a listing that grows.
const SPARE_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Stages {
    state: Mutex<State>,
    /// No slot in a directory that was left is higher.
    last_slot: AtomicU64,
    /// Whether the caller looks after what transactions leave.
    is_tended: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Empty directories that transactions have left. The next checkpoint removes them.
    spare: Vec<TransactionId>,
    /// The directories of transactions that are open, or not in the base yet.
    taken: HashMap<TransactionId, TransactionId>,
    /// Ended transactions whose directories are still there, and still taken.
    left: Vec<TransactionId>,
}

impl Stages {
    /// To be called before the transaction's commit is logged.
    pub fn note_slots(&self, last: u64) {
        self.last_slot.fetch_max(last, Ordering::Relaxed);
    }

    /// The id of the directory that a transaction uses. That of a directory is its own.
    pub fn of(&self, transaction: TransactionId) -> TransactionId {
        let state = lock(&self.state);
        *state.taken.get(&transaction).unwrap_or(&transaction)
    }

    /// The transaction has ended. Returns its directory, which others may need.
    pub fn release(&self, transaction: TransactionId) -> TransactionId {
        let taken = lock(&self.state).taken.remove(&transaction);
        taken.unwrap_or(transaction)
    }

    /// Whether a transaction uses the directory that was not brought into the base yet.
    pub fn is_taken(&self, directory: TransactionId) -> bool {
        let state = lock(&self.state);
        state.taken.values().any(|taken| *taken == directory)
    }

    /// From now on [`Core::leave_stage`] leaves directories to [`Core::drop_left_stages`].
    pub fn tend(&self) {
        self.is_tended.store(true, Ordering::Relaxed);
    }

    pub fn has_left(&self) -> bool {
        !lock(&self.state).left.is_empty()
    }

    /// From now on no transaction takes one over.
    pub fn forget_spare(&self) {
        lock(&self.state).spare.clear();
    }
}

impl<D: Disk> Core<D> {
    /// Gives the transaction a directory, unless it has one. One that `may_take_over` must have used
    /// no slot yet, and uses only slots after the one that is returned.
    pub fn make_stage(&self, transaction: TransactionId, may_take_over: bool) -> Result<u64> {
        let last_slot = || self.stages.last_slot.load(Ordering::Relaxed);
        let mut state = lock(&self.stages.state);
        if state.taken.contains_key(&transaction) {
            // The outer transaction or another nested one has come first.
            return Ok(last_slot());
        }
        if may_take_over && let Some(directory) = state.spare.pop() {
            state.taken.insert(transaction, directory);
            return Ok(last_slot());
        }
        self.make_own_stage(transaction)?;
        state.taken.insert(transaction, transaction);
        Ok(0)
    }

    fn make_own_stage(&self, transaction: TransactionId) -> Result<()> {
        let name = names::transaction(transaction);
        let (stage, node) = (&self.control.stage, NewNode::Directory);
        match self.disk.make(stage, &name, &node, PRIVATE_DIRECTORY) {
            // A transaction that has survived has made it.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Sees that the transaction's directory has its id.
    pub fn own_stage(&self, transaction: TransactionId) -> Result<()> {
        self.make_stage(transaction, false)?;
        let mut state = lock(&self.stages.state);
        let taken = state.taken.insert(transaction, transaction);
        let Some(directory) = taken.filter(|directory| *directory != transaction) else {
            return Ok(());
        };
        let (from, to) = (
            names::transaction(directory),
            names::transaction(transaction),
        );
        let stage: &D::Handle = &self.control.stage;
        let (from, to) = ((stage, &from), (stage, &to));
        let renamed = self.disk.rename(from, to, RenameMode::NoReplace);
        if renamed.is_err() {
            state.taken.insert(transaction, directory);
        }
        drop(state);
        self.handles.remove(HandleKey::Stage(directory));
        renamed
    }

    /// Leaves the directory to a later transaction, or to the next checkpoint. `is_filled`: contents are
    /// left in it.
    pub fn spare_stage(&self, directory: TransactionId, is_filled: bool) {
        let emptied = self.open_stage(directory).and_then(|handle| {
            if is_filled {
                control::purge(&self.disk, &handle, |_| false)?;
            }
            Ok(self.disk.list(&handle)?.is_empty())
        });
        let mut state = lock(&self.stages.state);
        if emptied == Ok(true) && state.spare.len() < SPARE_MAX {
            state.spare.push(directory);
        }
    }

    /// Opens the directory, or takes the handle that is still open.
    pub fn open_stage(&self, transaction: TransactionId) -> Result<Arc<D::Handle>> {
        let directory = self.stages.of(transaction);
        let key = HandleKey::Stage(directory);
        if let Some(handle) = self.handles.get(key) {
            return Ok(handle);
        }
        let name = names::transaction(directory);
        let opened = self
            .disk
            .open(&self.control.stage, &name, Access::Directory);
        opened.map(Arc::new)
    }

    /// Like [`Core::open_stage`], for a transaction that will open it again: the handle is kept for a
    /// while, and dropped with the directory.
    pub fn keep_stage_open(&self, transaction: TransactionId) -> Result<Arc<D::Handle>> {
        let key = HandleKey::Stage(self.stages.of(transaction));
        if let Some(handle) = self.handles.get(key) {
            return Ok(handle);
        }
        let handle = self.open_stage(transaction)?;
        self.handles.insert(key, handle.clone());
        Ok(handle)
    }

    /// Removes a transaction's staging directory once nobody needs it any more.
    pub fn drop_stage(&self, transaction: TransactionId) {
        let directory = self.stages.of(transaction);
        self.handles.remove(HandleKey::Stage(directory));
        let name = names::transaction(directory);
        // Mostly a commit has moved everything out of it.
        if self.disk.remove_directory(&self.control.stage, &name) != Ok(())
            && let Err(error) = control::remove_tree(&self.disk, &self.control.stage, &name)
        {
            tracing::warn!(error = %reason(error), %transaction, "staged files are left until the next start");
        }
        // Only now, or a checkpoint could remove it at the same time.
        self.stages.release(transaction);
    }

    /// Like [`Core::drop_stage`], but perhaps only later.
    pub fn leave_stage(&self, transaction: TransactionId) {
        if !self.stages.is_tended.load(Ordering::Relaxed) {
            return self.drop_stage(transaction);
        }
        let directory = self.stages.of(transaction);
        let name = names::transaction(directory);
        match self.disk.remove_directory(&self.control.stage, &name) {
            Ok(()) | Err(Errno::NOENT) => {
                self.handles.remove(HandleKey::Stage(directory));
                self.stages.release(transaction);
            }
            Err(_) => lock(&self.stages.state).left.push(transaction),
        }
    }

    pub fn drop_left_stages(&self) {
        let left = std::mem::take(&mut lock(&self.stages.state).left);
        for transaction in left {
            self.drop_stage(transaction);
        }
    }

    /// Like [`Core::drop_stage`], for a directory in which perhaps staged files are left. A handle
    /// that is still open saves finding the directory again.
    pub fn drop_emptied_stage(&self, transaction: TransactionId, is_filled: bool) {
        let open = self.handles.get(HandleKey::Stage(transaction));
        if let Some(directory) = open.filter(|_| is_filled) {
            // If this fails, the code below finds the remaining files.
            let _ = control::purge(&self.disk, &directory, |_| false);
        }
        self.drop_stage(transaction);
    }
}
