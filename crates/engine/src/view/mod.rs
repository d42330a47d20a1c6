//! One transaction's view: its tree, as the difference to its snapshot.
//!
//! `node` holds the shape, `tree` finds and keeps nodes, and each group of
//! operations has a module. Nothing here changes the base.

pub(crate) mod acl;
mod attributes;
mod changes;
mod contents;
mod namespace;
pub(crate) mod node;
mod staging;
mod tree;
mod types;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::{Disk, Timestamp};

use node::Node;
pub use types::{Caller, Entry, ListEntry, NewNode, NodeAttributes, SetAttributes, SetTime};

use crate::base::Base;
use crate::core::Core;
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::snapshot::Snapshot;

pub(crate) struct View<D: Disk> {
    pub core: Arc<Core<D>>,
    pub id: TransactionId,
    /// The newest commit that the snapshot holds.
    pub at: Sequence,
    /// Indexed by node id; 0 is never used.
    nodes: Vec<Option<Node>>,
    free: Vec<NodeId>,
    by_base: HashMap<u64, NodeId>,
    /// Nodes with changes of their own.
    changed: BTreeSet<NodeId>,
    /// Base objects that have no name left in the view, by serial.
    pub dying: BTreeMap<u64, Arc<Base>>,
    stage: Option<Arc<D::Handle>>,
    next_slot: u64,
    next_inode: u64,
}

/// New objects get inode numbers from here on until they are committed: above
/// what file systems use, and exact in a double for programs that need that.
const NEW_INODE_FIRST: u64 = 1 << 52;

impl<D: Disk> View<D> {
    pub fn new(core: Arc<Core<D>>, id: TransactionId, at: Sequence) -> View<D> {
        let root = Node {
            kind: atomdir_disk::Kind::Directory,
            base: Some(core.root_base.clone()),
            parent: NodeId::ROOT,
            name: None,
            // The root is never forgotten.
            lookups: 1,
            told: None,
            children: 0,
            listed: 0,
            own: None,
        };
        View {
            by_base: HashMap::from([(core.root_base.serial, NodeId::ROOT)]),
            core,
            id,
            at,
            nodes: vec![None, Some(root)],
            free: Vec::new(),
            changed: BTreeSet::new(),
            dying: BTreeMap::new(),
            stage: None,
            next_slot: 0,
            next_inode: NEW_INODE_FIRST,
        }
    }

    fn snapshot(&self) -> Snapshot<'_, D> {
        Snapshot {
            core: &self.core,
            at: self.at,
        }
    }

    pub fn snapshot_stat(&self, base: &Arc<Base>) -> atomdir_disk::Result<atomdir_disk::Stat> {
        self.snapshot().stat(base)
    }

    fn now(&self) -> Timestamp {
        self.core.options.clock.now()
    }

    pub fn changed_nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.changed.iter().copied()
    }
}
