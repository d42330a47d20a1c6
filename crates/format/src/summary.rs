//! The part of a commit that is kept after the log has been emptied.

use atomdir_disk::Timestamp;
use atomdir_types::{
    ChangeLine, CommitDetails, CommitMarks, CommitSummary, Sequence, TransactionId, TreePath,
};

use crate::record::{CommitRecord, LogRecord};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRecord {
    pub sequence: u64,
    pub time: Timestamp,
    /// `None` if the sequence belongs to no commit: the commit did not happen, or the record only
    /// cancelled another one.
    pub commit: Option<Summary>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub transaction: u64,
    /// The numeric user id of the transaction's owner.
    pub user: u32,
    pub label: Vec<u8>,
    /// Empty if they were left out to make room for those of others.
    pub lines: Vec<ChangeLine<TreePath>>,
    /// How many lines were left out.
    pub left_out: u64,
    /// The commits that it took back, in ascending order.
    pub takes_back: Vec<u64>,
}

impl SummaryRecord {
    /// The same commit without its list of changes.
    pub fn without_lines(mut self) -> SummaryRecord {
        if let Some(commit) = &mut self.commit {
            commit.left_out += std::mem::take(&mut commit.lines).len() as u64;
        }
        self
    }

    /// The commit, if there was one.
    pub fn details(self) -> Option<CommitDetails<TreePath>> {
        let (sequence, time) = (self.sequence, self.time);
        self.commit.map(|commit| commit.details(sequence, time))
    }
}

impl Summary {
    fn details(self, sequence: u64, time: Timestamp) -> CommitDetails<TreePath> {
        CommitDetails {
            summary: CommitSummary {
                sequence: Sequence(sequence),
                transaction: TransactionId(self.transaction),
                time,
                user: self.user,
                label: self.label,
                changes: self.lines.len() as u64 + self.left_out,
                takes_back: self.takes_back.into_iter().map(Sequence).collect(),
                marks: CommitMarks::default(),
            },
            changes: self.lines,
        }
    }
}

impl From<CommitRecord> for CommitDetails<TreePath> {
    fn from(record: CommitRecord) -> CommitDetails<TreePath> {
        let (sequence, time) = (record.sequence, record.time);
        Summary::from(record).details(sequence, time)
    }
}

impl From<LogRecord> for SummaryRecord {
    fn from(record: LogRecord) -> SummaryRecord {
        SummaryRecord {
            sequence: record.sequence(),
            time: record.time(),
            commit: match record {
                LogRecord::Commit(commit) => Some(commit.into()),
                LogRecord::Cancellation(_) => None,
            },
        }
    }
}

impl From<CommitRecord> for Summary {
    fn from(record: CommitRecord) -> Summary {
        Summary {
            transaction: record.transaction,
            user: record.user,
            label: record.label,
            lines: record.summary,
            left_out: 0,
            takes_back: record
                .before
                .map_or_else(Vec::new, |before| before.takes_back),
        }
    }
}
