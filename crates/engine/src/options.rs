//! Settings and services that the caller hands to the engine. The engine looks up none of them
//! itself.

use std::sync::Arc;

use atomdir_disk::{Owner, Timestamp};
pub use atomdir_types::{Conflicts, Durability, Isolation};

use crate::ids::TransactionId;

/// The real-time clock, for the times of files and of the log's entries. It
/// never decides what conflicts: the file system's own clock does.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

pub(crate) fn milliseconds_between(from: Timestamp, to: Timestamp) -> i128 {
    let nanoseconds =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    (nanoseconds(to) - nanoseconds(from)) / 1_000_000
}

pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// How many file descriptors may be kept open for speed.
    pub handles_max: usize,
    pub privileges: Privileges,
    /// A commit that stages at most this many bytes carries them in the log.
    pub carried_bytes_max: u64,
    /// The log's file grows by this many bytes at a time.
    pub log_step: u64,
    /// How much is kept of what commits replace; `None`: nothing, except for open snapshots.
    pub history: Option<HistoryLimits>,
}

/// How much is kept of what commits replace, so that they can be undone. The oldest commits
/// are forgotten first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryLimits {
    /// By the clock of [`Options::clock`].
    pub age_seconds_max: u64,
    /// The space in the control directory.
    pub bytes_max: u64,
    /// While the file system has less free space than this, commits are forgotten early.
    pub free_bytes_min: u64,
}

/// Carried bytes are written twice, to save flushes. So there is a bound.
pub const CARRIED_BYTES_MAX: u64 = 256 << 10;

/// A record holds at most so many old bytes. A checkpoint writes them once more, to the past, but a
/// file in limbo takes two more flushes: of the file and of its name.
pub(crate) const OLD_BYTES_CARRIED_MAX: u64 = 128 << 10;

/// Up to so many objects are flushed one by one, and more by one flush of the file system.
pub(crate) const SYNC_EACH_MAX: usize = 16;

/// Larger steps are rarer, but the commit that makes one writes more.
pub const LOG_STEP: u64 = 128 << 10;

/// What the process may do. This decides whether a file can be replaced by a
/// new one with the same owner and attributes, or must be changed in place.
#[derive(Debug, Clone)]
pub struct Privileges {
    pub user: u32,
    pub groups: Vec<u32>,
    /// Root in the initial user namespace.
    pub all: bool,
}

impl Privileges {
    pub(crate) fn can_own_as(&self, owner: Owner) -> bool {
        self.all || (owner.user == self.user && self.groups.contains(&owner.group))
    }
}

#[derive(Debug, Clone)]
pub struct BeginOptions {
    /// The numeric id of the user the transaction belongs to.
    pub owner: u32,
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    /// The first of several tries, if this is a later one. The transaction with
    /// the oldest first try wins.
    pub first_try: Option<TransactionId>,
    pub label: Vec<u8>,
}
