//! The transactions that conflicts name.

use std::collections::HashMap;

use atomdir_disk::Disk;

use crate::error::{ChangedBy, CommitAuthor, CommitError, Conflict};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Conflicts name commits by their sequence. Adds which transaction made each
    /// commit, as far as that is still known. A long history takes long to read, so no lock is held
    /// meanwhile, and the caller must hold none that others wait for.
    pub(crate) fn describe(&self, conflicts: &mut [Conflict]) {
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
        let summaries = lock(&self.0.commit).journal.summaries(&self.0.core, before);
        let read = summaries.and_then(|summaries| {
            summaries.for_each(&self.0.core.disk, |summary| {
                let sequence = Sequence(summary.sequence);
                let Some(commit) = summary.commit else {
                    return;
                };
                for by in unknown.remove(&sequence).into_iter().flatten() {
                    *by = ChangedBy::Commit {
                        sequence,
                        author: Some(CommitAuthor {
                            transaction: TransactionId(commit.transaction),
                            label: commit.label.clone(),
                            time: summary.time,
                        }),
                    };
                }
            })
        });
        if let Err(error) = read {
            tracing::warn!(%error, "the conflict is reported without the authors of its commits");
        }
    }

    /// The same for an error that may consist of conflicts.
    pub(crate) fn with_authors(&self, mut error: CommitError) -> CommitError {
        if let CommitError::Conflict(conflicts) = &mut error {
            self.describe(conflicts);
        }
        error
    }
}
