//! Refuses a commit that conflicts with others.

use atomdir_disk::Disk;

use crate::commit::resolve::Accepted;
use crate::commit::validate::Validation;
use crate::error::{CommitError, Conflict};
use crate::seen::Seen;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::View;
use crate::write_set::WriteSet;

impl<D: Disk> Store<D> {
    /// To be called with the commit lock held, so that the answer stays true. Returns what
    /// validation has seen.
    pub(super) fn refuse_conflicts(
        &self,
        transaction: &Transaction<D>,
        view: &View<D>,
        (set, accepted): (&mut WriteSet, Accepted),
    ) -> Result<Seen, CommitError> {
        let only_reads = set.is_empty();
        let found = self.find_conflicts(transaction, view, (set, accepted), only_reads)?;
        let (conflicts, seen) = found;
        match conflicts.is_empty() {
            true => Ok(seen),
            false => Err(CommitError::Conflict(conflicts)),
        }
    }

    /// `only_reads`: commits of others do not conflict with the transaction's reads.
    pub(super) fn find_conflicts(
        &self,
        transaction: &Transaction<D>,
        view: &View<D>,
        (set, accepted): (&mut WriteSet, Accepted),
        only_reads: bool,
    ) -> Result<(Vec<Conflict>, Seen), CommitError> {
        let core = &*self.0.core;
        let began = transaction.began_change_time();
        let oldest_began = || self.oldest_begin().unwrap_or(began);
        let at = (transaction.at(), &*view.landed);
        let mut validation = Validation::new(core, at, (began, &oldest_began), transaction.owner());
        validation.accepted = accepted;
        validation.is_undo = transaction.uses_past();
        validation
            .run(set)
            .map_err(|(path, errno)| CommitError::io("look at", &path, errno))?;
        if let Some(reads) = &view.reads {
            validation
                .run_reads(reads, only_reads, &|base| view.path_of_base(base))
                .map_err(|errno| CommitError::io("validate", b"the read set", errno))?;
        }
        Ok((validation.conflicts, validation.seen))
    }
}
