//! Numbers that name something.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a transaction, by which conflicts and commands name it. A store never uses one
/// twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TransactionId(pub u64);

/// A commit's place in the commit order, counted from 1; 0 means before the first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Later than every commit. A snapshot as of it shows the newest state.
    pub const AFTER_ALL: Sequence = Sequence(u64::MAX);

    /// The place after this one.
    pub fn next(self) -> Sequence {
        Sequence(self.0 + 1)
    }
}

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
