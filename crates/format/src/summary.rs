//! The part of a commit that is kept after the log has been emptied.

use atomdir_disk::Timestamp;
use atomdir_types::{ChangeLine, CommitDetails, CommitSummary, Sequence, TransactionId};

use crate::record::CommitRecord;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRecord {
    pub sequence: u64,
    pub transaction: u64,
    pub time: Timestamp,
    /// The numeric user id of the transaction's owner.
    pub user: u32,
    pub label: Vec<u8>,
    pub lines: Vec<ChangeLine>,
}

impl SummaryRecord {
    /// Whether the sequence belongs to no commit: the commit did not happen, or the record only
    /// cancelled another one.
    pub fn is_cancelled(&self) -> bool {
        self.transaction == CommitRecord::NO_TRANSACTION
    }
}

impl From<CommitRecord> for SummaryRecord {
    fn from(record: CommitRecord) -> SummaryRecord {
        SummaryRecord {
            sequence: record.sequence,
            transaction: record.transaction,
            time: record.time,
            user: record.user,
            label: record.label,
            lines: record.summary,
        }
    }
}

impl From<SummaryRecord> for CommitDetails {
    fn from(record: SummaryRecord) -> CommitDetails {
        CommitDetails {
            summary: CommitSummary {
                sequence: Sequence(record.sequence),
                transaction: TransactionId(record.transaction),
                time: record.time,
                user: record.user,
                label: record.label,
                changes: record.lines.len() as u64,
            },
            changes: record.lines,
        }
    }
}
