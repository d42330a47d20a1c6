//! Arguments and results of the view's operations.

pub use atomdir_disk::{ListEntry, NewNode, NodeAttributes, SetAttributes, SetTime};

use crate::ids::NodeId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub user: u32,
    pub group: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub node: NodeId,
    /// Tells apart nodes that had the same id one after the other.
    pub generation: u32,
    pub attributes: NodeAttributes,
}
