//! The staging directories of transactions: making, reusing and dropping them.
//!
//! A small commit leaves its directory empty behind, and the next transaction takes it over by a
//! rename. To make and remove one for each would cost more than all the rest of a small commit on
//! ext4: it looks for a free inode among all those that were freed within the last seconds.
//!
//! Invariant: transactions that have used one directory have named nothing in it alike, so a record
//! never leads to another one's object, whichever of the renames a crash has kept.

use std::sync::atomic::{AtomicU64, Ordering};
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
pub(crate) struct SpareStages {
    /// Transactions that have ended and left an empty directory. The next checkpoint removes it.
    spare: Mutex<Vec<TransactionId>>,
    /// No slot of theirs is higher.
    last_slot: AtomicU64,
}

impl SpareStages {
    /// To be called before the transaction's commit is logged.
    pub fn note_slots(&self, last: u64) {
        self.last_slot.fetch_max(last, Ordering::Relaxed);
    }
}

impl<D: Disk> Core<D> {
    /// Makes the directory, unless it is there.
    pub fn make_stage(&self, transaction: TransactionId) -> Result<()> {
        let name = names::transaction(transaction);
        let (stage, node) = (&self.control.stage, NewNode::Directory);
        match self.disk.make(stage, &name, &node, PRIVATE_DIRECTORY) {
            // The outer transaction or a nested one made it first.
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Like [`Core::make_stage`], for a transaction of this process's own user that has used no slot
    /// yet. It may take over a directory, and uses only slots after the one that is returned.
    pub fn take_stage(&self, transaction: TransactionId) -> Result<u64> {
        // Until it is renamed, no checkpoint may remove it.
        let mut spare = lock(&self.spare_stages.spare);
        while let Some(last) = spare.pop() {
            let (from, to) = (names::transaction(last), names::transaction(transaction));
            let stage: &D::Handle = &self.control.stage;
            let (from, to) = ((stage, &from), (stage, &to));
            match self.disk.rename(from, to, RenameMode::NoReplace) {
                Ok(()) => {}
                // Another nested transaction of the same outer one has just taken one over.
                Err(Errno::EXIST) => spare.push(last),
                Err(_) => continue,
            }
            return Ok(self.spare_stages.last_slot.load(Ordering::Relaxed));
        }
        drop(spare);
        self.make_stage(transaction).map(|()| 0)
    }

    /// Leaves the directory to a later transaction, or to the next checkpoint. Returns whether there
    /// is one.
    pub fn spare_stage(&self, transaction: TransactionId, is_filled: bool) -> bool {
        let emptied = self.open_stage(transaction).and_then(|directory| {
            if is_filled {
                control::purge(&self.disk, &directory, |_| false)?;
            }
            Ok(self.disk.list(&directory)?.is_empty())
        });
        self.handles.remove(HandleKey::Stage(transaction));
        let mut spare = lock(&self.spare_stages.spare);
        if emptied == Ok(true) && spare.len() < SPARE_MAX {
            spare.push(transaction);
        }
        emptied != Err(Errno::NOENT)
    }

    /// From now on no transaction takes one over.
    pub fn forget_spare_stages(&self) {
        lock(&self.spare_stages.spare).clear();
    }

    /// Opens the directory, or takes the handle that is still open.
    pub fn open_stage(&self, transaction: TransactionId) -> Result<Arc<D::Handle>> {
        let key = HandleKey::Stage(transaction);
        if let Some(handle) = self.handles.get(key) {
            return Ok(handle);
        }
        let name = names::transaction(transaction);
        let opened = self
            .disk
            .open(&self.control.stage, &name, Access::Directory);
        opened.map(Arc::new)
    }

    /// Removes a transaction's staging directory once nobody needs it any more.
    pub fn drop_stage(&self, transaction: TransactionId) {
        let name = names::transaction(transaction);
        // Mostly a commit has moved everything out of it.
        if self.disk.remove_directory(&self.control.stage, &name) == Ok(()) {
            return;
        }
        if let Err(error) = control::remove_tree(&self.disk, &self.control.stage, &name) {
            tracing::warn!(error = %reason(error), %transaction, "staged files are left until the next start");
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
