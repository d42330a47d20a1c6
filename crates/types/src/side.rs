use serde::{Deserialize, Serialize};

/// A state of the store that a transaction's view can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The transaction's snapshot.
    Snapshot,
    /// The newest state, with later commits of others and changes of outside writers.
    Newest,
}
