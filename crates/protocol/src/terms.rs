//! The words that requests share with the library's interface.

#![deny(missing_docs)]

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a transaction, by which conflicts and commands name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u64);

/// A commit's place in the commit order, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Sequence(pub u64);

impl fmt::Display for TransactionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What a commit compares with the changes that others have made since the transaction began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Isolation {
    /// What the transaction has written.
    #[default]
    Snapshot,
    /// What it has written and what it has read.
    Serializable,
}

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Durability {
    /// Once it survives a power cut.
    #[default]
    Durable,
    /// At once. It survives the death of every process, and soon a power cut, too.
    Lazy,
}

/// When a transaction learns that another one has written the same object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Conflicts {
    /// At its own commit, if the other has committed.
    #[default]
    AtCommit,
    /// At the write, if the other is open.
    Early,
}

/// What others may do with something that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    /// They may hold shared locks on it, too.
    Shared,
    /// They may hold no lock on it, and commit no change of it.
    Exclusive,
}

/// How much of the object at a path is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockScope {
    /// A file, or a directory's own entries.
    Object,
    /// The pages of a file that contain these bytes.
    Bytes {
        /// The first byte.
        start: u64,
        /// The first byte after them.
        end: u64,
    },
    /// Everything at and below the path.
    Subtree,
}

/// The time since 1970, by the real-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Timestamp {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// What is added to them; less than a second.
    pub nanoseconds: u32,
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

/// What has happened to the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// It is new.
    Added,
    /// Its contents or attributes have changed.
    Modified,
    /// It is gone.
    Deleted,
    /// It was at another path before.
    Renamed,
    /// An object of another kind has taken its place.
    TypeChanged,
}

impl Change {
    /// The letter by which commands name it, as git does.
    pub fn letter(self) -> char {
        match self {
            Change::Added => 'A',
            Change::Modified => 'M',
            Change::Deleted => 'D',
            Change::Renamed => 'R',
            Change::TypeChanged => 'T',
        }
    }
}

/// The author of a change that is in conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangedBy {
    /// A commit.
    Commit {
        /// Its place in the commit order.
        sequence: Sequence,
        /// `None` if the store's history no longer has the commit.
        author: Option<CommitAuthor>,
    },
    /// A transaction that is still open.
    Open {
        /// Its id.
        transaction: TransactionId,
        /// Empty if it is another user's and the reader may not see it.
        label: Vec<u8>,
    },
    /// A program in no transaction.
    Outside,
    /// The outer transaction of the one that has the conflict.
    Outer {
        /// Its id.
        transaction: TransactionId,
    },
}

/// The transaction that made a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitAuthor {
    /// Its id.
    pub transaction: TransactionId,
    /// Empty if it is another user's and the reader may not see it.
    pub label: Vec<u8>,
}

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
}
