//! Takes entries out of a difference.

use std::sync::Arc;

use atomdir_disk::Name;

use crate::ids::NodeId;
use crate::view::node::{EntryDelta, Own, OwnBody, Touched};
use crate::view::nodes::Nodes;

impl Nodes {
    pub(super) fn own_to_change(&mut self, id: NodeId) -> Option<&mut Own> {
        self.get_mut(id)?.own.as_mut().map(Arc::make_mut)
    }

    /// Removes an entry of the difference, and returns it.
    pub(super) fn take_entry(&mut self, directory: NodeId, name: &Name) -> Option<EntryDelta> {
        let own = self.own_to_change(directory)?;
        let OwnBody::Directory(delta) = &mut own.body else {
            return None;
        };
        let taken = delta.entries.remove(name)?;
        delta.is_touched = !delta.entries.is_empty();
        if let Some(now) = taken.now.and_then(|now| self.get_mut(now)) {
            now.lose_entry();
        }
        Some(taken)
    }

    /// Makes a node of the base look as in the snapshot. A directory keeps the entries that
    /// are left in its difference.
    pub(super) fn forget_changes(&mut self, id: NodeId) {
        let Some(own) = self.own_to_change(id) else {
            return;
        };
        own.touched = Touched::default();
        own.xattrs.clear();
        own.staged = None;
        if let OwnBody::Directory(delta) = &mut own.body {
            delta.removed = false;
            delta.default_acl = None;
            if !delta.entries.is_empty() {
                return;
            }
        }
        self.forget_own(id);
    }

    pub(super) fn move_to(&mut self, id: NodeId, parent: NodeId, name: Name) {
        let Some(node) = self.get_mut(id) else {
            return;
        };
        let old = std::mem::replace(&mut node.parent, parent);
        node.name = Some(name);
        if let Some(parent) = self.get_mut(parent) {
            parent.children += 1;
        }
        if let Some(old) = self.get_mut(old) {
            old.lose_child();
        }
    }

    pub(in crate::view) fn forget_own(&mut self, id: NodeId) {
        if let Some(node) = self.get_mut(id) {
            node.own = None;
        }
        self.changed.remove(&id);
    }
}
