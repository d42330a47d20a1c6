//! Requests for commits of several stores: votes, and what has become of a coordinator. `commit::in_doubt`
//! says what they mean.

use atomdir_disk::Disk;
use atomdir_types::{Outcome, Partner};

use crate::error::{CommitError, StoreError};
use crate::ids::TransactionId;
use crate::lock;
use crate::progress::Progress;
use crate::store::Store;
use crate::transaction::Transaction;

impl<D: Disk> Store<D> {
    /// Votes for the commit of a transaction, which becomes durable and read-only, and from then on is
    /// in doubt: [`Store::commit_decided`] or [`Store::withdraw_vote`] ends that. `note` is kept with it as by
    /// [`Store::survive`]. Returns false if it has nothing to commit, and so has not voted.
    ///
    /// Voting again for the same coordinator is harmless. If this fails, the transaction is open.
    pub fn vote(
        &self,
        transaction: &Transaction<D>,
        coordinator: &Partner,
        note: Vec<u8>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<bool, CommitError> {
        transaction.may_survive().map_err(CommitError::NoVote)?;
        if transaction.coordinator().as_ref() == Some(coordinator) {
            return Ok(true);
        }
        if !self.cast_vote(transaction, coordinator, report)? {
            return Ok(false);
        }
        let kept = self.survive(transaction, note);
        let kept = kept.map_err(CommitError::NoVote).and_then(|()| {
            let flushed = transaction.flush();
            flushed.map_err(|errno| CommitError::io("flush", b".", errno))
        });
        if let Err(error) = kept {
            self.withdraw_vote(transaction)?;
            return Err(error);
        }
        Ok(true)
    }

    /// What has become of a transaction of this store. The answer does not change any more unless it is
    /// [`Outcome::Open`].
    pub fn outcome(&self, id: TransactionId) -> Result<Outcome, StoreError> {
        let is_open = || {
            let open = lock(&self.0.open);
            let is_stranded = || lock(&self.0.stranded).iter().any(|one| one.id == id);
            open.with_snapshots().any(|one| one.id() == id) || is_stranded()
        };
        if is_open() {
            return Ok(Outcome::Open);
        }
        // It may have committed since its begin, and then this brings its commit to the disk.
        drop(self.lock_without_pending()?);
        if is_open() {
            return Ok(Outcome::Open);
        }
        if self.recent_commit(id).is_some() {
            return Ok(Outcome::Committed);
        }
        let mut has_committed = false;
        self.for_each_commit(|commit| {
            has_committed |= commit.summary.transaction == id;
        })?;
        Ok(match has_committed {
            true => Outcome::Committed,
            false => Outcome::Aborted,
        })
    }
}
