//! The numbers of nodes and slots, and how far they were when a state of a view was saved.

use std::sync::atomic::{AtomicU64, Ordering};

use super::node::{Staged, StagedParent};
use crate::ids::NodeId;
use crate::names;

/// The next numbers for nodes and slots, shared by all views over one staging
/// directory.
pub(crate) struct Numbers {
    next_node: AtomicU64,
    last_slot: AtomicU64,
}

impl Numbers {
    pub fn new() -> Numbers {
        Numbers {
            next_node: AtomicU64::new(NodeId::ROOT.0 + 1),
            last_slot: AtomicU64::new(0),
        }
    }

    /// For a view that was made again: these numbers are the last in use.
    pub fn after(last_node: NodeId, last_slot: u64) -> Numbers {
        Numbers {
            next_node: AtomicU64::new(last_node.0 + 1),
            last_slot: AtomicU64::new(last_slot),
        }
    }

    /// For a view that shares none of them with the one that it comes from.
    pub fn from(point: ForkPoint) -> Numbers {
        Numbers {
            next_node: AtomicU64::new(point.next_node),
            last_slot: AtomicU64::new(point.last_slot),
        }
    }

    pub fn last_slot(&self) -> u64 {
        self.last_slot.load(Ordering::Relaxed)
    }

    /// From now on higher ones are used.
    pub fn skip_slots(&self, to: u64) {
        self.last_slot.fetch_max(to, Ordering::Relaxed);
    }

    pub fn new_slot(&self) -> u64 {
        self.last_slot.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub fn new_node(&self) -> NodeId {
        NodeId(self.next_node.fetch_add(1, Ordering::Relaxed))
    }

    pub fn fork_point(&self) -> ForkPoint {
        ForkPoint {
            next_node: self.next_node.load(Ordering::Relaxed),
            last_slot: self.last_slot.load(Ordering::Relaxed),
        }
    }
}

/// The numbers as they were when a savepoint was set or a transaction was nested.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForkPoint {
    pub next_node: u64,
    last_slot: u64,
}

impl ForkPoint {
    pub fn is_after(&self, staged: &Staged) -> bool {
        // An object without a slot was put where it is by a failed commit. Only an
        // outermost transaction without savepoints is committed to the base.
        staged.parent != StagedParent::Slots
            || names::slot_number(&staged.name).is_none_or(|slot| slot <= self.last_slot)
    }
}
