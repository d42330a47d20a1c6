//! The commit of a transaction that is nested in one with a native view, in two phases.
//!
//! First its changes become steps (`view::merge`), and its view becomes read-only. Then the
//! process that mounted the overlay carries the steps out, and the nested transaction ends.
//! If that process dies in between, so does the outer transaction, with all that either has
//! changed. If it can carry out no step, the nested transaction is as it was before.
//!
//! Several can be nested in one overlay. To each of them the commits of the others are changes by
//! programs of the outer transaction: it conflicts with those that meet its own.
//!
//! The caller must see to it that while one of these commits is on its way, from its plan to its
//! end, no other one begins, and no transaction begins to be nested there: it would see a part of
//! the steps.

use atomdir_disk::Disk;
use atomdir_types::MergeStep;

use crate::commit::Committed;
use crate::commit::nested::changed_in;
use crate::error::CommitError;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::conflicts;

impl<D: Disk> Store<D> {
    /// Begins the commit of a transaction nested in one with a native view. Until
    /// [`Transaction::thaw`] its view is read-only.
    pub fn plan_merge(&self, transaction: &Transaction<D>) -> Result<Vec<MergeStep>, CommitError> {
        self.refuse_if_poisoned()?;
        let outer = transaction.outer().ok_or(CommitError::Ended)?;
        let failed = |errno| CommitError::io("compare the changes in", b".", errno);
        let reader = {
            let mut outer_guard = outer.view.lock();
            let outer_view = outer_guard.as_mut().ok_or(CommitError::Ended)?;
            outer_view.reader_of_upper().map_err(failed)?
        };
        let began = outer.began_change_time();
        let seen = reader.see_upper(&outer.view, began).map_err(failed)?;
        let mut outer_guard = outer.view.lock();
        let outer_view = outer_guard.as_mut().ok_or(CommitError::Ended)?;
        let mut guard = transaction.view.lock();
        let view = guard.as_mut().ok_or(CommitError::Ended)?;
        if let Some(nested) = view.nested() {
            return Err(CommitError::Nested { nested });
        }
        let begun = outer_view.begun_over(view.id);
        let begun = begun.ok_or(CommitError::Ended)?;
        let plan = view.plan_since(&begun.nodes).map_err(failed)?;
        let conflicts = conflicts(&plan.touched, &seen.since(&begun.seen));
        if !conflicts.is_empty() {
            return Err(changed_in(outer.id(), conflicts));
        }
        view.frozen = true;
        Ok(plan.steps)
    }

    /// Ends the commit after all steps were carried out.
    pub fn finish_merge(&self, transaction: &Transaction<D>) -> Result<Committed, CommitError> {
        let changes = transaction
            .changed_paths()
            .map_or(0, |lines| lines.len() as u64);
        match self.abort(transaction) {
            true => Ok(Committed {
                changes,
                ..Committed::default()
            }),
            false => Err(CommitError::Ended),
        }
    }
}
