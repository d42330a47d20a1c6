//! The nodes of a view as a value: a clone shares every node until it changes.
//!
//! Invariants
//! 1. No change of one value shows in its clones: a shared node is copied before it changes.
//! 2. `changed` and `by_base` name only nodes that exist. A node's own changes exist only while
//!    `changed` names it.
//! 3. If the view has a log, [`Unlogged`] has every node whose state was lent out to be changed
//!    since the log was last written. Callers note entries and pages, or everything.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::{Kind, Name};

use super::node::{DirectoryDelta, Node, Own, OwnBody, Staged};
use crate::base::Base;
use crate::ids::NodeId;

#[derive(Clone)]
pub(crate) struct Nodes {
    /// Indexed by node id; 0 is never used.
    by_id: Vec<Option<Arc<Node>>>,
    /// How many there are.
    count: u64,
    pub by_base: HashMap<u64, NodeId>,
    /// Nodes with changes of their own.
    pub changed: BTreeSet<NodeId>,
    /// Base objects that have no name left in the view, by serial.
    pub dying: BTreeMap<u64, Arc<Base>>,
    /// Changes that the view log does not have yet; `None` if the view has no log.
    pub unlogged: Option<Box<Unlogged>>,
}

/// The changes in the nodes since the view log was last written.
#[derive(Clone, Default)]
pub(crate) struct Unlogged {
    /// The log must be written anew.
    pub everything: bool,
    pub nodes: BTreeSet<NodeId>,
    /// Nodes that were dropped; their ids may be in use again.
    pub gone: BTreeSet<NodeId>,
    pub entries: BTreeSet<(NodeId, Name)>,
    /// Files whose set of staged pages has become another one.
    pub contents: BTreeSet<NodeId>,
    /// Pages that were added to the set.
    pub pages: Vec<(NodeId, u64, u64)>,
    pub dying: Vec<Arc<Base>>,
}

impl Nodes {
    pub fn new(root: &Arc<Base>) -> Nodes {
        let mut nodes = Nodes {
            by_id: Vec::new(),
            count: 0,
            by_base: HashMap::from([(root.serial, NodeId::ROOT)]),
            changed: BTreeSet::new(),
            dying: BTreeMap::new(),
            unlogged: None,
        };
        let root = Node {
            kind: Kind::Directory,
            base: Some(root.clone()),
            parent: NodeId::ROOT,
            name: None,
            reported: None,
            children: 0,
            listed: 0,
            own: None,
            is_watched: false,
        };
        nodes.put(NodeId::ROOT, Arc::new(root));
        nodes
    }

    /// The number of nodes.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// An upper bound for the number of nodes.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn get(&self, id: NodeId) -> Option<&Node> {
        self.by_id.get(id.0 as usize)?.as_deref()
    }

    pub fn shared(&self, id: NodeId) -> Option<&Arc<Node>> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.note_node(id);
        self.by_id
            .get_mut(id.0 as usize)?
            .as_mut()
            .map(Arc::make_mut)
    }

    pub fn put(&mut self, id: NodeId, node: Arc<Node>) {
        assert!(id.0 != 0, "a node has the id that is never used");
        self.note_node(id);
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize(place + 1, None);
        }
        let before = self.by_id[place].replace(node);
        self.count += u64::from(before.is_none());
    }

    pub fn take(&mut self, id: NodeId) -> Option<Arc<Node>> {
        assert!(id != NodeId::ROOT, "the root of a view is dropped");
        self.note_unlogged(|unlogged| {
            unlogged.gone.insert(id);
        });
        let node = self.by_id.get_mut(id.0 as usize)?.take()?;
        self.count -= 1;
        if let Some(base) = &node.base {
            self.by_base.remove(&base.serial);
        }
        self.changed.remove(&id);
        Some(node)
    }

    fn note_node(&mut self, id: NodeId) {
        if let Some(unlogged) = &mut self.unlogged {
            unlogged.nodes.insert(id);
        }
    }

    /// Notes a change for the view log, if there is one.
    pub fn note_unlogged(&mut self, note: impl FnOnce(&mut Unlogged)) {
        if let Some(unlogged) = &mut self.unlogged {
            note(unlogged);
        }
    }

    pub fn note_everything(&mut self) {
        self.note_unlogged(|unlogged| unlogged.everything = true);
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> + '_ {
        let places = self.by_id.iter().enumerate();
        places.filter_map(|(place, node)| node.is_some().then_some(NodeId(place as u64)))
    }

    pub fn own(&self, id: NodeId) -> Option<&Arc<Own>> {
        self.get(id)?.own.as_ref()
    }

    /// Whether both have the very same changes of a node.
    pub fn is_same_own(&self, other: &Nodes, id: NodeId) -> bool {
        match (self.own(id), other.own(id)) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    /// All staged objects, each with its kind.
    pub fn staged(&self) -> impl Iterator<Item = (&Staged, Kind)> {
        let owns = self.changed.iter().filter_map(|id| self.own(*id));
        owns.filter_map(|own| Some((own.staged.as_ref()?, own.attributes.kind)))
    }

    /// The entries of the base that differ, by the serial of the object that
    /// they named.
    pub fn origins(&self) -> HashMap<u64, (NodeId, Name)> {
        let mut origins = HashMap::new();
        for id in &self.changed {
            let delta = self.get(*id).and_then(Node::directory_delta);
            for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
                if let Some(before) = &entry.before {
                    origins.insert(before.serial, (*id, name.clone()));
                }
            }
        }
        origins
    }

    /// Gives nodes other ids, which must be free.
    pub fn renumber(&mut self, new_ids: &HashMap<NodeId, NodeId>) {
        if new_ids.is_empty() {
            return;
        }
        self.note_everything();
        let renumbered = |id: &NodeId| new_ids.get(id).copied();
        for (old, new) in new_ids {
            if let Some(node) = self.by_id.get_mut(old.0 as usize).and_then(Option::take) {
                self.count -= 1;
                self.put(*new, node);
            }
        }
        for node in self.by_id.iter_mut().flatten() {
            if let Some(parent) = renumbered(&node.parent) {
                Arc::make_mut(node).parent = parent;
            }
            let names_one = |delta: &DirectoryDelta| {
                let mut named = delta.entries.values().filter_map(|entry| entry.now);
                named.any(|id| new_ids.contains_key(&id))
            };
            if node.directory_delta().is_some_and(names_one) {
                renumber_entries(Arc::make_mut(node), new_ids);
            }
        }
        for id in self.by_base.values_mut() {
            *id = renumbered(id).unwrap_or(*id);
        }
        let changed = std::mem::take(&mut self.changed);
        self.changed = changed
            .into_iter()
            .map(|id| renumbered(&id).unwrap_or(id))
            .collect();
    }
}

fn renumber_entries(node: &mut Node, new_ids: &HashMap<NodeId, NodeId>) {
    let Some(own) = node.own.as_mut() else { return };
    if let OwnBody::Directory(delta) = &mut Arc::make_mut(own).body {
        for entry in delta.entries.values_mut() {
            entry.now = entry.now.map(|id| new_ids.get(&id).copied().unwrap_or(id));
        }
    }
}
