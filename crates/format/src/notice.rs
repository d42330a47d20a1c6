//! Notices: which transactions are open, and which have ended otherwise than their users wanted.

use atomdir_disk::Timestamp;
use atomdir_types::EndedHow;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeRecord {
    /// The record's place in its file, from 1, without gaps.
    pub sequence: u64,
    pub notice: Notice,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The transaction is open.
    Open(OpenNotice),
    /// Only a commit with a sequence above this one ends the transaction: those up to it have
    /// landed parts of it.
    Parts { transaction: u64, up_to: u64 },
    /// The transaction has ended as its user wanted.
    Done { transaction: u64 },
    /// The transaction has ended otherwise.
    Ended(EndedNotice),
    /// These readers know of the end of the transaction.
    Reported {
        transaction: u64,
        reported: Reported,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenNotice {
    pub transaction: u64,
    /// The numeric user id of its owner.
    pub user: u32,
    pub began: Timestamp,
    pub label: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedNotice {
    pub open: OpenNotice,
    pub ended: Timestamp,
    pub how: EndedHow,
    /// About how many objects it had changed, if that is known.
    pub changes: Option<u64>,
    pub reported: Reported,
}

/// Who knows of the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reported {
    /// The user of the transaction.
    pub user: bool,
    /// The store's owner or root.
    pub administrator: bool,
}
