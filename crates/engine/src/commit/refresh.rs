//! Gives an open transaction a newer snapshot, so that long work can go on.
//!
//! This is the first half of a commit: the write set is prepared and validated against what
//! others have changed since. If nothing conflicts, the view's difference is laid over the
//! newest commit (`view/refresh.rs`) instead of being logged.
//!
//! **Why not a new view made of the write set, or of the view log?** A node is a difference
//! already, and keeps its staged files where they are. To make nodes again from another form of
//! the same difference would need a second way to make each kind of them.
//!
//! Invariants
//! 1. The commit lock is held, with no commit pending, from the look at the clock until the
//!    transaction has its new snapshot. So the snapshot is a point in the commit order again, also
//!    of a transaction that has landed parts.
//! 2. The clock and the attributes that nodes take over are read before anything is validated:
//!    what an outside writer changes in between counts as changed since the new snapshot.
//! 3. Nobody has changed what a serializable transaction has read, even if it has written nothing.
//!    So its read set holds for the new snapshot.
//! 4. No part of a file comes from one snapshot and another part from the other. A file that
//!    both have changed, in different parts, is a conflict here: only a commit merges it.
//! 5. The commits in the new snapshot are in the base durably, if recovery may open the
//!    transaction again (see `Store::survive`), or if the transaction has left in its
//!    staging directory what the log needs.

use atomdir_disk::Disk;

use crate::commit::at_its_expense;
use crate::commit::prepare::{Chosen, prepare};
use crate::commit::resolve::{Accepted, seen};
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind, RefreshError, StoreError};
use crate::ids::{NodeId, Sequence};
use crate::lock;
use crate::progress::Meter;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::transaction::listed::Listed;
use crate::view::View;
use crate::write_set::WriteSet;

/// A transaction's snapshot was brought up to date.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// The newest commit in the snapshot before.
    pub from: Sequence,
    /// The newest commit in the snapshot now.
    pub to: Sequence,
    /// The nodes that the kernel has known. Their ids are not used for other objects.
    pub known: Vec<NodeId>,
}

impl<D: Disk> Store<D> {
    /// Gives the transaction a snapshot of the newest commit, under its own changes, unless these
    /// conflict with changes that others have made since its snapshot. Drops all savepoints, as
    /// every try to commit does, and remembers conflicts as [`Store::list_conflicts`] does.
    ///
    /// Node ids from before lead to objects that the transaction has changed, or fail with
    /// `ESTALE`. A caller that caches data of the view must drop all of it.
    pub fn refresh(&self, transaction: &Transaction<D>) -> Result<Refreshed, RefreshError> {
        self.try_refresh(transaction).map_err(|error| match error {
            RefreshError::Commit(error) => self.with_authors(error).into(),
            error => error,
        })
    }

    fn try_refresh(&self, transaction: &Transaction<D>) -> Result<Refreshed, RefreshError> {
        if transaction.outer().is_some() {
            return Err(RefreshError::InOuter);
        }
        if let Some(at) = transaction.past() {
            return Err(CommitError::Past { at }.into());
        }
        let met = transaction.met();
        if !met.is_empty() {
            return Err(CommitError::Conflict(met).into());
        }
        let mut committing = transaction.view.take_for_commit();
        transaction.leave_to_user();
        let view = committing.view.as_mut().ok_or(CommitError::Ended)?;
        self.refuse_if_poisoned()?;
        self.retry_stalled()?;
        if self.is_removed() {
            return Err(StoreError::Removed.into());
        }
        match view.nested() {
            Some(nested) => return Err(CommitError::Nested { nested }.into()),
            None if view.lower => return Err(RefreshError::Native),
            None if view.frozen => return Err(RefreshError::Frozen),
            None => {}
        }
        view.release_savepoints();
        let mut report = |_| {};
        let mut meter = Meter::new(&mut report);
        let prepared = at_its_expense(transaction, || prepare(view, Chosen::default(), &mut meter));
        let mut set = prepared.map_err(|error| self.heed_flush(error))?.set;
        let mut state = self.lock_without_pending()?;
        let snapshot = self.present(&mut state)?;
        if view.log.is_some() || transaction.has_landed() {
            self.checkpoint_locked(&mut state)?;
        }
        crate::commit::merge::correct_places(view, &set);
        let failed = |errno| CommitError::io("look at the changes of", b"", errno);
        let renewals = view.renewals(snapshot).map_err(failed)?;
        self.refuse_to_refresh(transaction, view, &mut set)?;
        let (from, known) = (transaction.at(), view.known_nodes());
        view.refresh(snapshot, renewals).map_err(failed)?;
        transaction.set_snapshot(snapshot);
        lock(&transaction.listed).clear();
        transaction.share.update(|| view.kept_objects());
        // Perhaps of other objects than before.
        transaction.note_writes(view);
        drop(state);
        drop(committing);
        self.prune_versions();
        Ok(Refreshed {
            from,
            to: snapshot.at,
            known,
        })
    }

    fn refuse_to_refresh(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        set: &mut WriteSet,
    ) -> Result<(), CommitError> {
        let accepted = Accepted::default();
        let found = self.find_conflicts(transaction, view, (set, accepted), false)?;
        let (mut conflicts, _) = found;
        let merged = view.changed_by_others();
        let merged = merged.map_err(|errno| CommitError::io("look at", b"", errno))?;
        for (path, sequence) in merged {
            if !conflicts.iter().any(|known| known.path == path) {
                conflicts.push(Conflict {
                    path,
                    what: ConflictKind::Unmerged,
                    by: ChangedBy::commit(sequence),
                });
            }
        }
        if conflicts.is_empty() {
            return Ok(());
        }
        conflicts.sort_by(|one, other| one.path.cmp(&other.path));
        self.remember(transaction, set, &conflicts);
        Err(CommitError::Conflict(conflicts))
    }

    /// Remembers conflicts for a commit that takes sides in them.
    pub(crate) fn remember(
        &self,
        transaction: &Transaction<D>,
        set: &WriteSet,
        conflicts: &[Conflict],
    ) {
        let listed = conflicts.iter().map(|conflict| Listed {
            conflict: conflict.clone(),
            seen: seen(&self.0.core, set, &conflict.path),
        });
        *lock(&transaction.listed) = listed.collect();
    }
}
