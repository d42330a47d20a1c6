//! Inspects a store that no service has open, without changing it.

use crate::ServiceError;
use crate::store::{self, Directories};
use atomdir_engine::{Damage, TornTail};
use atomdir_protocol::CommitSummary;
use std::path::Path;

/// The work that recovery would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Damage because of which recovery would refuse to touch the store.
    pub damage: Vec<Damage>,
    /// Commits that it would bring into the base, oldest first.
    pub commits: Vec<CommitSummary>,
    /// The length of the log up to the end of its last whole record.
    pub log_bytes: u64,
    /// The incomplete end that it would cut off the log.
    pub torn_tail: Option<TornTail>,
    /// Transactions that were open when the store was last used.
    pub transactions_unfinished: u64,
    /// How many objects it would remove from the staging directory and limbo.
    pub leftovers: u64,
}

/// Inspects the store whose root is `store`, as its owner: a process of root
/// gives up root's rights for that. Fails with [`ServiceError::AlreadyRunning`]
/// if it is in use.
pub fn inspect(store: &Path) -> Result<Inspection, ServiceError> {
    let directories = Directories::open(store::locate(store)?)?;
    let found = directories.inspect()?;
    Ok(Inspection {
        damage: found.damage,
        commits: found.commits,
        log_bytes: found.log_bytes,
        torn_tail: found.torn_tail,
        transactions_unfinished: found.transactions_unfinished,
        leftovers: found.leftovers,
    })
}
