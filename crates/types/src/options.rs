//! How a transaction behaves.

use serde::{Deserialize, Serialize};

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
    /// Once it survives a power cut and is in the base.
    #[default]
    Durable,
    /// Once it survives a power cut: it is in the log, and in the base 100 ms later. Whoever uses
    /// Atomdir sees it at once.
    Deferred,
    /// At once. It survives the death of every process, and soon a power cut, too.
    Lazy,
}

/// When a transaction learns that another one has written the same object or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Conflicts {
    /// At its own commit, if the other has committed.
    #[default]
    AtCommit,
    /// At the write, if the other is open.
    Early,
}
