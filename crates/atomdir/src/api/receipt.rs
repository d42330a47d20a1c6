//! What a successful commit returns.

use super::error::StoreError;
use super::session::Syncable;
use atomdir_protocol::Committed;
use atomdir_types::{Durability, Sequence};
use std::sync::Arc;

/// When what a transaction commits survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenDurable {
    AtOnce,
    Later,
    WithTheOuter,
}

impl From<Durability> for WhenDurable {
    fn from(durability: Durability) -> WhenDurable {
        match durability {
            Durability::Durable | Durability::Deferred => WhenDurable::AtOnce,
            Durability::Lazy => WhenDurable::Later,
        }
    }
}

/// The result of a successful commit.
#[derive(Clone)]
pub struct Receipt {
    sequence: Option<Sequence>,
    changes: u64,
    stalled: Option<String>,
    when_durable: WhenDurable,
    store: Arc<dyn Syncable>,
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Receipt")
            .field("sequence", &self.sequence)
            .field("changes", &self.changes)
            .field("stalled", &self.stalled)
            .finish_non_exhaustive()
    }
}

impl Receipt {
    pub(super) fn new(
        done: Committed,
        when_durable: WhenDurable,
        store: Arc<dyn Syncable>,
    ) -> Receipt {
        Receipt {
            sequence: done.sequence,
            changes: done.changes,
            stalled: done.stalled,
            when_durable,
            store,
        }
    }

    /// The commit's place in the commit order. `None` if nothing had changed, or if the
    /// transaction was nested and is now part of the outer one.
    pub fn sequence(&self) -> Option<Sequence> {
        self.sequence
    }

    /// How many paths were changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The obstacle that keeps the commit from the base, in words, if there is one. The commit
    /// has happened and is durable, and the base will show it when the obstacle is removed.
    pub fn stalled(&self) -> Option<&str> {
        self.stalled.as_deref()
    }

    /// Whether the commit was durable when it returned. A [lazy](Durability::Lazy) one was not, and
    /// a nested transaction is durable with the outermost one.
    pub fn is_durable(&self) -> bool {
        self.when_durable == WhenDurable::AtOnce
    }

    /// Returns when the commit and all before it are durable. Fails for a lazy commit whose
    /// store was closed and could not be made durable, as closing it has reported. Fails for a
    /// nested transaction, whose changes are not committed yet.
    pub fn wait_until_durable(&self) -> Result<(), StoreError> {
        match self.when_durable {
            WhenDurable::AtOnce => Ok(()),
            WhenDurable::WithTheOuter => {
                let reason = "it becomes durable when the outermost transaction is committed";
                Err(StoreError::Other(reason.to_owned()))
            }
            WhenDurable::Later => self.store.sync(),
        }
    }
}
