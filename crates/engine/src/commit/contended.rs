//! Refuses a commit because of what other open transactions hold: locks, and writes
//! of an older one that wants to know of conflicts early.

use std::sync::Arc;

use atomdir_disk::Disk;

use crate::base::Base;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::locks::{Extent, Target};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::View;
use crate::write_set::{Object, WriteSet};

impl<D: Disk> Store<D> {
    /// Refuses a commit while other transactions hold locks on parts that it changes.
    pub(crate) fn refuse_locked(
        &self,
        transaction: &Transaction<D>,
        set: &WriteSet,
    ) -> Result<(), CommitError> {
        let held = {
            let table = self.0.contention.locks.table();
            if table.is_empty() {
                return Ok(());
            }
            table.forbid(transaction.id(), &changes(set))
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

    fn open_transaction(&self, id: TransactionId) -> ChangedBy {
        let open = self.transaction(id);
        ChangedBy::Open {
            transaction: id,
            label: open.map_or_else(Vec::new, |open| open.label()),
        }
    }

    /// Refuses a commit if its transaction has met a conflict, and while an older one
    /// that wants to know early has written the same parts.
    pub(crate) fn refuse_written(
        &self,
        transaction: &Transaction<D>,
        view: &View<D>,
    ) -> Result<(), CommitError> {
        let writers = &self.0.contention.writers;
        if !writers.is_needed() {
            return Ok(());
        }
        // Writes in a native view were not noted when they happened: note them now.
        let conflicts = writers.enter_commit(&transaction.author(), &view.written());
        match conflicts.is_empty() {
            true => Ok(()),
            false => Err(CommitError::Conflict(conflicts)),
        }
    }
}

/// Every part of the base that the write set changes.
fn changes(set: &WriteSet) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut add = |base: &Arc<Base>, extent| {
        let base = base.clone();
        targets.push(Target { base, extent });
    };
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            add(directory, Extent::Entry(entry.name.clone()));
        }
        if let Some(before) = &entry.before {
            add(before, Extent::Subtree);
        }
        if let Some(Object::Base(after)) = &entry.after {
            add(after, Extent::Attributes);
        }
    }
    for object in set.objects.iter().filter(|object| !object.is_implied) {
        if object.writes_attributes() {
            add(&object.base, Extent::Attributes);
        }
        for (start, end) in object.contents.iter().flat_map(|one| one.written()) {
            add(&object.base, Extent::Pages(start, end));
        }
    }
    for removed in &set.removed_directories {
        add(&removed.base, Extent::Subtree);
    }
    for base in set.dying.values() {
        add(base, Extent::Subtree);
    }
    targets
}
