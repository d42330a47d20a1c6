//! Looking at a store that nobody serves, changing nothing.

use crate::store::{self, Directories};
use crate::{ServiceError, convert};
use atomdir_engine::{Damage, TornTail};
use atomdir_protocol::CommitSummary;
use std::path::Path;

/// What recovery would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// What it would refuse to touch the store for; empty when all is well.
    pub damage: Vec<Damage>,
    /// What it would bring into the base, oldest first.
    pub commits: Vec<CommitSummary>,
    /// Of the log up to the end of its last whole record.
    pub log_bytes: u64,
    /// What it would cut off the log.
    pub torn_tail: Option<TornTail>,
    /// Transactions that were open when the store was last used.
    pub transactions_unfinished: u64,
    /// What it would remove of the staging directory and of limbo.
    pub leftovers: u64,
}

/// Looks at the store whose root is `store`, as its owner: root gives up its
/// rights for that. [`ServiceError::AlreadyRunning`] if it is in use.
pub fn inspect(store: &Path) -> Result<Inspection, ServiceError> {
    let directories = Directories::open(store::locate(store)?)?;
    let found = directories.inspect()?;
    Ok(Inspection {
        damage: found.damage,
        commits: found.commits.iter().map(convert::whole_summary).collect(),
        log_bytes: found.log_bytes,
        torn_tail: found.torn_tail,
        transactions_unfinished: found.transactions_unfinished,
        leftovers: found.leftovers,
    })
}
