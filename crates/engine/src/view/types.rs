//! Arguments and results of the view's operations.

pub use atomdir_disk::{ListEntry, NewNode, NodeAttributes, SetAttributes, SetTime};

use atomdir_types::Partner;

use crate::ids::NodeId;

/// What a transaction is to those of other stores while they are being committed together. Its view is
/// read-only meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Joint {
    /// Others may be in doubt until it has ended. So it is committed as a whole or not at all.
    Coordinates,
    /// It has voted for the commit. Only what becomes of the coordinator ends it.
    InDoubt(Partner),
    /// It has nothing to commit.
    Unchanged,
}

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
