//! The part of a commit that is kept after the log has been emptied.

use atomdir_disk::Timestamp;
use atomdir_types::{ChangeLine, CommitDetails, CommitSummary, Sequence, TransactionId};

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
    pub lines: Vec<ChangeLine>,
}

impl SummaryRecord {
    /// The commit, if there was one.
    pub fn details(self) -> Option<CommitDetails> {
        let (sequence, time) = (self.sequence, self.time);
        self.commit.map(|commit| commit.details(sequence, time))
    }
}

impl Summary {
    fn details(self, sequence: u64, time: Timestamp) -> CommitDetails {
        CommitDetails {
            summary: CommitSummary {
                sequence: Sequence(sequence),
                transaction: TransactionId(self.transaction),
                time,
                user: self.user,
                label: self.label,
                changes: self.lines.len() as u64,
            },
            changes: self.lines,
        }
    }
}

impl From<CommitRecord> for CommitDetails {
    fn from(record: CommitRecord) -> CommitDetails {
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
        }
    }
}
