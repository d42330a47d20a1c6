//! The history of commits: those whose log is gone, and those still in the log.
//!
//! It does not grow for ever: when it is long, a checkpoint drops its older half.

use std::collections::HashMap;

use atomdir_disk::{Disk, Errno, RenameMode};
use atomdir_format::record::CommitRecord;
use atomdir_format::summary::SummaryRecord;

use crate::base::core::Core;
use crate::commit::CommitState;
use crate::error::{ChangedBy, Conflict, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::Log;
use crate::names;
use crate::store::{CommitSummary, Store};

/// Who asks for a commit reads the history, and so does who opens the store.
pub(crate) const HISTORY_BYTES_MAX: u64 = 32 << 20;

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
        state.for_each_summary(&self.0.core, Sequence(0), |summary| each(summary.into()))
    }

    /// Drops the oldest commits from the history if it is longer than this, so
    /// that half is left; the newest stays in any case. Commits themselves are
    /// in the base, and stay there.
    pub fn shorten_history(&self, bytes_max: u64) -> Result<(), StoreError> {
        let mut state = self.lock_settled()?;
        state.shorten_history(&self.0.core, bytes_max)
    }
}

impl<D: Disk> CommitState<D> {
    /// Every commit after this one, oldest first.
    pub fn for_each_summary(
        &self,
        core: &Core<D>,
        after: Sequence,
        mut each: impl FnMut(SummaryRecord),
    ) -> Result<(), StoreError> {
        let in_history = self.header.last_sequence;
        let mut newest = after.0;
        let mut take = |summary: SummaryRecord| {
            if summary.sequence > newest {
                newest = summary.sequence;
                each(summary);
            }
        };
        if after.0 < in_history {
            self.history
                .for_each(&core.disk, |summary: SummaryRecord| {
                    // What a checkpoint that was cut short has added is in the log.
                    if summary.sequence <= in_history {
                        take(summary);
                    }
                    Ok(())
                })?;
        }
        self.log.for_each(&core.disk, |record: CommitRecord| {
            take(record.into());
            Ok(())
        })
    }

    /// Tells of the commits that conflicts name by their sequence who made them,
    /// as far as that is still known.
    pub fn describe(&self, core: &Core<D>, conflicts: &mut [Conflict]) {
        let mut unknown: HashMap<Sequence, Vec<&mut ChangedBy>> = HashMap::new();
        for conflict in conflicts {
            if let ChangedBy::Commit { sequence, .. } = conflict.by {
                unknown.entry(sequence).or_default().push(&mut conflict.by);
            }
        }
        let Some(oldest) = unknown.keys().min() else {
            return;
        };
        let before = Sequence(oldest.0.saturating_sub(1));
        let read = self.for_each_summary(core, before, |summary| {
            let sequence = Sequence(summary.sequence);
            for by in unknown.remove(&sequence).into_iter().flatten() {
                *by = ChangedBy::Commit {
                    sequence,
                    transaction: TransactionId(summary.transaction),
                    label: summary.label.clone(),
                };
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, "who made the commits of a conflict is not told");
        }
    }

    pub fn shorten_history(&mut self, core: &Core<D>, bytes_max: u64) -> Result<(), StoreError> {
        let length = self.history.length();
        if length <= bytes_max {
            return Ok(());
        }
        let id = self.header.store_id;
        let file = self.history.file();
        let start = self
            .history
            .start_of_last::<SummaryRecord>(&core.disk, bytes_max / 2)?;
        if start == 0 {
            return Ok(());
        }
        let durable = self.header.last_sequence;
        let shorter = copy_tail(core, &file, start, length).map_err(failed)?;
        // Its name is durable with the next header, which lies beside it and
        // comes after whatever is appended.
        self.history = Log::new(shorter, id, length - start, durable);
        Ok(())
    }
}

/// Puts a copy of the file from `start` on in its place.
fn copy_tail<D: Disk>(
    core: &Core<D>,
    file: &D::Handle,
    start: u64,
    end: u64,
) -> Result<D::Handle, Errno> {
    let (disk, directory) = (&core.disk, &core.control.directory);
    let (new, name) = (
        names::fixed(names::HISTORY_NEW),
        names::fixed(names::HISTORY),
    );
    match disk.unlink(directory, &new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let copy = disk.create(directory, &new, 0o600)?;
    let mut at = start;
    while at < end {
        match disk.copy_range((file, at), (&copy, at - start), end - at)? {
            0 => return Err(Errno::IO),
            count => at += count,
        }
    }
    disk.sync(&copy)?;
    disk.rename((directory, &new), (directory, &name), RenameMode::Replace)?;
    Ok(copy)
}

fn failed(errno: Errno) -> StoreError {
    StoreError::Control {
        step: "shorten the history",
        errno,
    }
}
