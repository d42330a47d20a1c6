//! The commits of the past, as the history and the log list them.

use atomdir_disk::Disk;

use crate::error::StoreError;
use crate::ids::Sequence;
use crate::lock;
use crate::log::history::CommitSummary;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Every commit, oldest first.
    pub fn commits(&self) -> Result<Vec<CommitSummary>, StoreError> {
        let mut commits = Vec::new();
        self.for_each_commit(|commit| commits.push(commit))?;
        Ok(commits)
    }

    /// As [`Store::commits`], one at a time. What `each` does holds up commits.
    pub fn for_each_commit(&self, mut each: impl FnMut(CommitSummary)) -> Result<(), StoreError> {
        let state = lock(&self.0.commit);
        state
            .journal
            .for_each_summary(&self.0.core, Sequence(0), |summary| each(summary.into()))
    }

    /// Drops the oldest commits from the history if it is longer than this, so
    /// that half is left; the newest stays in any case. Commits themselves are
    /// in the base, and stay there.
    pub fn shorten_history(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut state = self.lock_settled()?;
        state.journal.shorten_history(&self.0.core, bytes_max)
    }
}
