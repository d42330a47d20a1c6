//! What the store knows of a transaction whose commit was set aside: see `commit::aside`.

use atomdir_disk::Timestamp;

use crate::ids::{Sequence, TransactionId};

pub(crate) struct Aside {
    /// The place that the commit had in the commit order.
    pub sequence: Sequence,
    pub reason: String,
    /// When it was last tried again.
    pub tried: Timestamp,
    /// Others have changed what it had written.
    pub is_left: bool,
}

/// A lazy commit that was cancelled, since an obstacle in the base appeared after it had returned.
/// Its transaction is open with all its changes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "commit {sequence} is set aside, and its transaction {transaction} is open again: {reason}{next}",
    next = self.next()
)]
pub struct SetAside {
    pub transaction: TransactionId,
    /// The numeric id of the user it belongs to.
    pub owner: u32,
    /// The place that the commit had in the commit order.
    pub sequence: Sequence,
    pub reason: String,
    /// Whether the store tries it again by itself. If not, only the user commits or aborts it.
    pub is_retried: bool,
}

impl SetAside {
    fn next(&self) -> &'static str {
        match self.is_retried {
            true => "; it is tried again until it succeeds",
            false => "; it is tried again no more: commit or abort it",
        }
    }
}
