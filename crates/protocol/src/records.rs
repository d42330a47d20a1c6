//! The values that requests and replies contain.

use crate::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u64);

/// A commit's place in the commit order, from 1.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Isolation {
    #[default]
    Snapshot,
    Serializable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Durability {
    #[default]
    Durable,
    Lazy,
}

/// When a transaction learns that another has written the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Conflicts {
    /// Of those that have committed, at its own commit.
    #[default]
    AtCommit,
    /// Of those that are open, at the write.
    Early,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockMode {
    Shared,
    Exclusive,
}

/// How much of what is at a path is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockScope {
    /// A file; a directory's own entries.
    Object,
    /// The pages of a file that hold these bytes, half-open.
    Bytes { start: u64, end: u64 },
    /// All that is at and below the path.
    Subtree,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockStatus {
    /// Relative to the store's root.
    pub path: Vec<u8>,
    pub mode: LockMode,
    pub scope: LockScope,
    /// Else it is waited for.
    pub granted: bool,
}

/// How a transaction's programs see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum View {
    /// In a file system of the service's.
    #[default]
    Exact,
    /// In an overlay that the client mounts over the snapshot.
    Native,
}

/// Which kind of view a transaction is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ViewChoice {
    #[default]
    Exact,
    Native,
    /// A native one where it can be had and no option needs an exact one.
    Auto,
    /// What the store's settings say.
    Configured,
}

/// Since 1970, of the real-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    Added,
    Modified,
    Deleted,
    Renamed,
    TypeChanged,
}

impl Change {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeLine {
    pub change: Change,
    /// Relative to the store's root, without a leading slash.
    pub path: Vec<u8>,
    /// Where a renamed object was before.
    pub from: Option<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Relative to the store's root, without a leading slash.
    pub path: Vec<u8>,
    /// What of it was changed, in words.
    pub what: String,
    pub by: ChangedBy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChangedBy {
    Commit {
        sequence: Sequence,
        transaction: TransactionId,
        /// Empty when the reader may not see another user's.
        label: Vec<u8>,
    },
    /// One that is still open.
    Open {
        transaction: TransactionId,
        /// Empty when the reader may not see another user's.
        label: Vec<u8>,
    },
    /// An outside writer.
    Outside,
    /// The transaction that the one that conflicts is nested in.
    Outer { transaction: TransactionId },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub transaction: TransactionId,
    /// The view's root directory: an absolute path. Of a native view: the
    /// snapshot beneath it.
    pub view_path: Vec<u8>,
    /// Of a native view.
    pub layers: Option<Layers>,
    /// Why the view is exact although a native one would have been taken.
    pub exact_because: Option<String>,
    /// For programs in the view, which do not see the control directory.
    /// `None`: they cannot reach the service.
    pub within: Option<Within>,
}

/// How a program in a view reaches the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// Where the service listens: an absolute path.
    pub socket: Vec<u8>,
    /// For [`Request::Enter`](crate::Request::Enter). Whoever knows it acts on
    /// the transaction as its programs may.
    pub secret: Vec<u8>,
}

/// What an overlay is mounted with, above the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Where the directories `upper` and `work` are: relative to the control directory.
    pub path: Vec<u8>,
    /// overlayfs has to keep its notes where ordinary users may (`userxattr`).
    pub user_marks: bool,
    /// If the overlay cannot be mounted, the transaction shall fail and not take an
    /// exact view.
    pub is_required: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// `None`: the transaction had changed nothing, or its changes are now
    /// those of the one it was nested in.
    pub sequence: Option<Sequence>,
    pub changes: u64,
    /// The commit is durable, and why the base does not show it yet.
    pub stalled: Option<String>,
}

/// How far a commit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionStatus {
    pub transaction: TransactionId,
    /// The numeric user id.
    pub owner: u32,
    pub label: Vec<u8>,
    pub began: Timestamp,
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    pub locks: Vec<LockStatus>,
    /// Met at its writes, with early conflicts: it can only be aborted.
    pub met: Vec<Conflict>,
    /// Lives until it is committed or aborted, not only as long as a connection.
    pub detached: bool,
    pub view: View,
    pub view_path: Vec<u8>,
    /// The transaction it is nested in.
    pub outer: Option<TransactionId>,
    /// The open transaction that is nested in it.
    pub nested: Option<TransactionId>,
    /// Process ids of those who hold it.
    pub holders: Vec<u32>,
    /// Their names, oldest first.
    pub savepoints: Vec<Vec<u8>>,
    /// Only the process that began it may commit it.
    pub sealed: bool,
}

/// What `path` was in a transaction's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotObject {
    pub kind: Kind,
    /// As the view's inodes have it.
    pub inode: u64,
    /// How many names it has.
    pub links: u32,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub length: u64,
    pub modified: Timestamp,
    pub device_number: u64,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes that the reader may see, by name.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The file is longer than was asked for; its contents were not sent.
    pub too_long: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitSummary {
    pub sequence: Sequence,
    pub transaction: TransactionId,
    pub time: Timestamp,
    pub user: u32,
    /// Empty when the reader may not see another user's.
    pub label: Vec<u8>,
    /// How many lines `Show` lists.
    pub changes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecoveryReport {
    pub commits_replayed: u64,
    pub bytes_replayed: u64,
    pub transactions_discarded: u64,
    /// What the log ended in that was never a whole commit.
    pub torn_tail_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    pub problems_count: u64,
    pub commits_in_log: u64,
    pub log_bytes: u64,
    pub commits_in_history: u64,
    pub staging_directories: u64,
    pub limbo_objects: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    pub process: u32,
    /// The numeric user id it runs as.
    pub user: u32,
    /// The program's version.
    pub version: String,
    pub started: Timestamp,
    pub age_seconds: u64,
    pub store: Vec<u8>,
    /// Where views are, or why there are none.
    pub views: Result<Vec<u8>, Failure>,
    /// Whether the kernel's requests for views come over io_uring.
    pub views_over_io_uring: bool,
    /// What the kernel has asked of the views' file system, since its mount.
    pub view_requests: u64,
    pub connections: u64,
    pub open_transactions: u64,
    /// After so long without a transaction or a connection it ends; `None`: it stays.
    pub idle_ms: Option<u64>,
    pub limits: Limits,
    /// Of the newest commit.
    pub sequence: Sequence,
    pub log_bytes: u64,
    /// Why the store takes no more commits until it is recovered.
    pub poisoned: Option<String>,
    /// Which commit waits to be applied to the base, and why.
    pub stalled: Option<String>,
    /// What the service found when it opened the store.
    pub recovery: RecoveryReport,
}

/// What the service gives at most; those of a user bind neither root nor the store's
/// owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub connections_max: u64,
    pub transactions_max: u64,
    pub user_connections_max: u64,
    pub user_transactions_max: u64,
    /// In all open transactions of a user.
    pub user_changed_objects_max: u64,
    /// After so long without a request a connection of a user is closed, unless it
    /// holds a transaction.
    pub connection_idle_seconds: u64,
    /// How many descriptors the process may have open.
    pub descriptors_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReport {
    pub transactions_aborted: u64,
}
