//! What users have said about commits after these were made, and what became of the history. The
//! file holds one frame, and is replaced as a whole.

use atomdir_disk::Timestamp;
use atomdir_types::ForgottenEarly;

/// The sequence of the frame: the file has only one.
pub const SEQUENCE: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations {
    /// In the order of their sequences.
    pub commits: Vec<CommitAnnotation>,
    /// In the order of their sequences. A commit of which this was written may not have happened.
    pub unconfirmed: Vec<UnconfirmedCommit>,
    /// When commits were last forgotten early.
    pub early: Option<ForgottenEarly>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitAnnotation {
    pub sequence: u64,
    /// The history keeps what it replaced.
    pub is_pinned: bool,
    /// What the log says of it instead of its own label.
    pub label: Option<Vec<u8>>,
}

/// A commit that takes itself back unless it is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnconfirmedCommit {
    pub sequence: u64,
    /// Of which it is the commit, if the sequence has become that of another one.
    pub transaction: u64,
    pub due: Timestamp,
    /// How long it has waited at most when it is due.
    pub wait_ms: u64,
    /// If it could not be taken back: in how many places others were in the way.
    pub refused: Option<u64>,
}
