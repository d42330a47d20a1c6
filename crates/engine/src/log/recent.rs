//! The newest commits by their transactions. So a question for one commit reads no history, which
//! may be long.

use std::collections::VecDeque;

use atomdir_format::record::CommitRecord;

use crate::ids::{Sequence, TransactionId};

const COMMITS_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentCommit {
    pub sequence: Sequence,
    pub transaction: TransactionId,
    pub user: u32,
}

impl From<&CommitRecord> for RecentCommit {
    fn from(record: &CommitRecord) -> RecentCommit {
        RecentCommit {
            sequence: Sequence(record.sequence),
            transaction: TransactionId(record.transaction),
            user: record.user,
        }
    }
}

/// In the order of the commits. One that programs outside have made is noted before those that are
/// still on their way to the base.
#[derive(Default)]
pub(crate) struct RecentCommits(VecDeque<RecentCommit>);

impl RecentCommits {
    pub fn note(&mut self, commit: RecentCommit) {
        if self.0.len() == COMMITS_MAX {
            self.0.pop_front();
        }
        let later = self.0.iter().rev();
        let later = later.take_while(|one| one.sequence > commit.sequence);
        let place = self.0.len() - later.count();
        self.0.insert(place, commit);
    }

    pub fn newest(&self) -> Option<RecentCommit> {
        self.0.back().copied()
    }

    /// The newest commit of a transaction.
    pub fn of(&self, transaction: TransactionId) -> Option<RecentCommit> {
        let mut newest_first = self.0.iter().rev();
        newest_first
            .find(|one| one.transaction == transaction)
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_commits_are_found_and_older_ones_are_forgotten() {
        let mut recent = RecentCommits::default();
        let commit = |sequence: u64, transaction: u64| RecentCommit {
            sequence: Sequence(sequence),
            transaction: TransactionId(transaction),
            user: 0,
        };
        let count = COMMITS_MAX as u64 + 10;
        for sequence in 1..=count {
            // Each transaction has two commits: a part, and then the rest.
            recent.note(commit(sequence, sequence / 2));
        }
        assert_eq!(recent.of(TransactionId(4)), None);
        assert_eq!(recent.of(TransactionId(100)), Some(commit(201, 100)));
        assert_eq!(recent.of(TransactionId(count)), None);
    }
}
