//! Commits as lists show them, and reports about all of them.

use crate::{ChangeLine, Sequence, Timestamp, TransactionId, TreePath};
use serde::{Deserialize, Serialize};

/// A commit in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitSummary {
    /// Its place in the commit order, which names it.
    pub sequence: Sequence,
    /// The id of its transaction.
    pub transaction: TransactionId,
    /// When it was made.
    pub time: Timestamp,
    /// Whose transaction it was.
    pub user: u32,
    /// Empty if it is another user's and the reader may not see it.
    pub label: Vec<u8>,
    /// How many paths it changed.
    pub changes: u64,
    /// The commits that it took back, if it is the undo of whole commits.
    pub takes_back: Vec<Sequence>,
    /// What has become of it since.
    pub marks: CommitMarks,
}

/// What has become of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CommitMarks {
    /// What it replaced is not kept, or no longer, so it cannot be undone.
    pub forgotten: bool,
    /// The undo that has taken it back. That undo has not been undone itself.
    pub undone_by: Option<Sequence>,
    /// The history keeps what it replaced until somebody unpins it.
    pub pinned: bool,
    /// It was made on condition that somebody confirms it, and nobody has.
    pub unconfirmed: Option<Unconfirmed>,
}

/// A commit that waits for somebody to confirm it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unconfirmed {
    /// When it takes itself back.
    pub due: Timestamp,
    /// It was due, and could not be taken back, because what it changed was changed since: in so
    /// many places. It stays as it is.
    pub refused: Option<u64>,
}

/// A commit and its changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitDetails<P = Vec<u8>> {
    /// The commit.
    pub summary: CommitSummary,
    /// The changes that it made.
    pub changes: Vec<ChangeLine<P>>,
}

impl CommitDetails<TreePath> {
    /// With paths of their own.
    pub fn written_out(self) -> CommitDetails {
        let changes = self.changes.into_iter();
        CommitDetails {
            summary: self.summary,
            changes: changes.map(ChangeLine::written_out).collect(),
        }
    }
}

/// The extent of the history: commits that can be undone, and the space that this takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HistoryStatus {
    /// How many commits can be undone.
    pub commits: u64,
    /// The space in the control directory, without the log.
    pub bytes: u64,
    /// The oldest commit that can be undone, and when it was made.
    pub oldest: Option<(Sequence, Timestamp)>,
    /// When commits were last forgotten before they had reached the age that the settings name.
    pub early: Option<ForgottenEarly>,
}

/// Commits that were forgotten before their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenEarly {
    /// When they were forgotten.
    pub time: Timestamp,
    /// How many they were.
    pub commits: u64,
    /// The newest of them.
    pub newest: Sequence,
    /// The reason.
    pub why: EarlyReason,
}

/// Why commits were forgotten early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarlyReason {
    /// The history took more space than the settings allow.
    Space,
    /// The file system had too little free space.
    FreeSpace,
    /// The file that says what commits replaced had become too long.
    TooMany,
    /// Somebody asked for it.
    Asked,
}

/// What recovery has done when a store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryReport {
    /// How many commits it has applied again.
    pub commits_replayed: u64,
    /// The length of their records.
    pub bytes_replayed: u64,
    /// How many transactions did not survive that had staged something when the store was last
    /// used.
    pub transactions_discarded: u64,
    /// The length of an incomplete record at the end of the log, which was cut off.
    pub torn_tail_bytes: u64,
}

/// How much a check of an open store has looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckReport {
    /// How many commits the log has.
    pub commits_in_log: u64,
    /// The log's length.
    pub log_bytes: u64,
    /// How many commits the history lists. Those in the log are among them.
    pub commits_in_history: u64,
    /// How many transactions have a staging directory.
    pub staging_directories: u64,
    /// How many objects are in limbo.
    pub limbo_objects: u64,
}

/// The result of a check of an open store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checked {
    /// The numbers of objects and records that were checked.
    pub report: CheckReport,
    /// The faults that were found: one sentence for each.
    pub problems: Vec<String>,
}
