//! The commit of a nested transaction: its changes become the outer one's own.

use atomdir_disk::Disk;

use crate::commit::Committed;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::store::Store;
use crate::transaction::Transaction;

/// The outer transaction has changed something at these paths, too.
pub(crate) fn changed_in(outer: TransactionId, paths: Vec<Vec<u8>>) -> CommitError {
    let conflict = |path| Conflict {
        path,
        what: ConflictKind::Outer,
        by: ChangedBy::Outer { transaction: outer },
    };
    CommitError::Conflict(paths.into_iter().map(conflict).collect())
}

impl<D: Disk> Store<D> {
    pub(crate) fn commit_nested(
        &self,
        outer: &Transaction<D>,
        transaction: &Transaction<D>,
    ) -> Result<Committed, CommitError> {
        self.refuse_if_poisoned()?;
        let mut outer_guard = outer.view.lock();
        let outer_view = outer_guard.as_mut().ok_or(CommitError::Ended)?;
        let mut guard = transaction.view.lock();
        let view = guard.as_mut().ok_or(CommitError::Ended)?;
        if let Some(nested) = view.nested() {
            return Err(CommitError::Nested { nested });
        }
        if outer_view.begun_over(view.id).is_some() {
            let reason = "its changes go into a native view";
            return Err(CommitError::OnlyWhole { reason });
        }
        let joined = outer_view.join_nested(view);
        let joined = joined.map_err(|paths| changed_in(outer.id(), paths))?;
        let changes = view.changes().map_or(0, |lines| lines.len() as u64);
        let outdated = guard
            .take()
            .map(|view| outer_view.take_nested(view, joined));
        outer_view.record_after_commit();
        drop((guard, outer_guard));
        self.ended(transaction.id());
        Ok(Committed {
            stalled: None,
            sequence: None,
            changes,
            outdated: outdated.unwrap_or_default(),
            landed: Vec::new(),
            dropped: Vec::new(),
        })
    }
}
