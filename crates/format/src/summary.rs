//! The part of a commit that is kept after the log has been emptied.

use atomdir_disk::Timestamp;

use crate::record::{CommitRecord, SummaryLine};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRecord {
    pub sequence: u64,
    pub transaction: u64,
    pub time: Timestamp,
    /// The numeric user id of the transaction's owner.
    pub user: u32,
    pub label: Vec<u8>,
    pub lines: Vec<SummaryLine>,
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
