//! What the engine is handed instead of looking around for it.

use std::sync::Arc;

use atomdir_disk::{Owner, Timestamp};

use crate::ids::TransactionId;

/// The real-time clock, for the times of files and the log's entries. Never
/// used to decide what conflicts: that is the file system's own clock's part.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

pub struct Options {
    pub clock: Arc<dyn Clock>,
    /// How many file descriptors may be kept open for speed.
    pub handles_max: usize,
    pub privileges: Privileges,
    /// A commit that stages no more than so many bytes carries them in the log.
    pub carried_bytes_max: u64,
}

/// What is carried is written twice, to save flushes: so not without a bound.
pub const CARRIED_BYTES_MAX: u64 = 256 << 10;

/// What the process may do: decides whether a file can be replaced by a new
/// one with the same owner and attributes, or must be changed in place.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    Snapshot,
    Serializable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Durable,
    Lazy,
}

/// When a transaction learns that another has written the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    /// Of those that have committed, at its own commit.
    AtCommit,
    /// Of those that are open, at the write.
    Early,
}

#[derive(Debug, Clone)]
pub struct BeginOptions {
    /// The numeric id of the user the transaction belongs to.
    pub owner: u32,
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    /// The first of several tries, of which this is one: the oldest wins.
    pub first_try: Option<TransactionId>,
    pub label: Vec<u8>,
}
