//! Lists past commits from the history and the log.

use atomdir_disk::Disk;
use atomdir_types::{CommitDetails, TreePath};

use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::recent::RecentCommit;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Every commit, oldest first.
    pub fn commits(&self) -> Result<Vec<CommitDetails>, StoreError> {
        let mut commits = Vec::new();
        self.for_each_commit(|commit| commits.push(commit.written_out()))?;
        Ok(commits)
    }

    /// Like [`Store::commits`], one commit at a time. Other commits go on meanwhile, and are not
    /// listed. Lazy commits are applied or set aside first, so none is listed that is set aside
    /// later.
    pub fn for_each_commit(
        &self,
        mut each: impl FnMut(CommitDetails<TreePath>),
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        // Under the lock, so that no lazy commit is appended before they are listed.
        let state = self.lock_without_pending().unwrap_or_else(|error| {
            // A stalled commit is listed: it has happened, and nothing is appended behind it.
            tracing::debug!(%error, "commits are listed that wait to be applied");
            lock(&self.0.commit)
        });
        let summaries = state.journal.summaries(core, Sequence(0))?;
        drop(state);
        summaries.for_each(&core.disk, |summary| {
            if let Some(commit) = summary.details() {
                each(commit);
            }
        })
    }

    /// The newest commit of a transaction, if it is among the newest few thousand of the store.
    /// Reads no history.
    pub fn recent_commit(&self, transaction: TransactionId) -> Option<RecentCommit> {
        let state = self.lock_without_pending();
        let state = state.unwrap_or_else(|_| lock(&self.0.commit));
        // A stalled commit has happened.
        let mut waiting = state.queue.commits.iter().rev();
        let waiting = waiting.find(|pending| pending.record.transaction == transaction.0);
        let waiting = waiting.map(|pending| RecentCommit::from(&pending.record));
        waiting.or_else(|| state.journal.recent.of(transaction))
    }

    /// If the history is longer than this, makes it half as long: the oldest commits of the users
    /// who have the most keep only the number of their changes, or go. It always keeps the newest.
    /// This drops only the list: the commits themselves stay in the base.
    pub fn shorten_history(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut state = self.lock_without_pending()?;
        state.journal.shorten_history(&self.0.core, bytes_max)
    }
}
