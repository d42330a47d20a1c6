//! The paths of many nodes and old names, each made once. They share what they begin with, so that
//! a list takes memory in proportion to its names.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Disk, Name};
use atomdir_types::TreePath;

use super::View;
use super::node::Node;
use crate::base::{Base, Place};
use crate::ids::NodeId;

/// Made for one list: names must not change meanwhile.
#[derive(Default)]
pub(crate) struct Paths {
    nodes: HashMap<NodeId, TreePath>,
    /// The present paths of base objects, by serial; `None` if they are not in the base.
    bases: HashMap<u64, Option<TreePath>>,
}

impl Paths {
    /// The node's path in the view, or its last path.
    pub fn node<D: Disk>(&mut self, view: &View<D>, id: NodeId) -> TreePath {
        let mut below = Vec::new();
        let mut at = id;
        let mut path = loop {
            if let Some(known) = self.nodes.get(&at) {
                break known.clone();
            }
            let Ok(Node {
                parent,
                name: Some(name),
                ..
            }) = view.node(at)
            else {
                break TreePath::default();
            };
            below.push((at, name));
            at = *parent;
        };
        for (node, name) in below.into_iter().rev() {
            path = path.join(name.as_bytes());
            self.nodes.insert(node, path.clone());
        }
        path
    }

    pub fn entry<D: Disk>(&mut self, view: &View<D>, directory: NodeId, name: &Name) -> TreePath {
        self.node(view, directory).join(name.as_bytes())
    }

    /// The old path of a name in a directory that may itself have been moved in the view.
    pub fn old<D: Disk>(
        &mut self,
        view: &View<D>,
        before: &Arc<Base>,
        directory: NodeId,
        name: &Name,
    ) -> TreePath {
        let above = view.node(directory).ok();
        let above = above.and_then(|node| node.base.clone());
        match above.and_then(|above| self.base(&above)) {
            Some(above) => above.join(name.as_bytes()),
            None => self
                .base(before)
                .unwrap_or_else(|| self.entry(view, directory, name)),
        }
    }

    /// The object's present path in the base; `None` if it, or a directory above it, is no longer
    /// there.
    fn base(&mut self, base: &Arc<Base>) -> Option<TreePath> {
        let mut below = Vec::new();
        let mut at = base.clone();
        let mut path = loop {
            if let Some(known) = self.bases.get(&at.serial) {
                break known.clone();
            }
            let place = at.state().place.clone();
            match place {
                Place::Root => break Some(TreePath::default()),
                Place::Limbo(_) | Place::Held => break None,
                Place::Entry { parent, name } => {
                    below.push((at.serial, name));
                    at = parent;
                }
            }
        };
        for (serial, name) in below.into_iter().rev() {
            path = path.map(|above| above.join(name.as_bytes()));
            self.bases.insert(serial, path.clone());
        }
        path
    }
}
