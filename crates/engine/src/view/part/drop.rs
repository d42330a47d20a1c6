//! Drops a part of the changes, as if they had not been made.

use atomdir_disk::{Disk, Kind, Result};

use super::Part;
use crate::ids::NodeId;
use crate::view::node::{DirectoryDelta, Node};
use crate::view::nodes::Nodes;
use crate::view::{Outdated, View};

impl<D: Disk> View<D> {
    /// Returns what caches of the view must drop.
    pub fn drop_part(&mut self, part: &Part) -> Result<Vec<Outdated>> {
        // An object that stays may have been staged in a directory that goes.
        self.unplace_staged()?;
        let mut rest = self.without(part);
        let revived = self.revived(&rest);
        rest.renumber(&revived);
        let old = self.replace(rest, &revived);
        let outdated = self.outdated(&old);
        self.discard_unneeded([&old].into_iter());
        self.drop_unneeded();
        Ok(outdated)
    }

    fn without(&self, part: &Part) -> Nodes {
        let mut rest = self.nodes.clone();
        let origins = self.nodes.origins();
        let kind = |id: NodeId| self.nodes.get(id).map(|node| node.kind);
        for (directory, name) in part.entries() {
            let Some(entry) = rest.take_entry(directory, name) else {
                continue;
            };
            let before = entry.before.as_ref().map(|base| base.kind);
            let after = entry.now.and_then(kind);
            if let Some(own) = rest.own_to_change(directory) {
                if before == Some(Kind::Directory) {
                    own.attributes.count_subdirectory(true);
                }
                if after == Some(Kind::Directory) {
                    own.attributes.count_subdirectory(false);
                }
            }
        }
        for id in part.nodes() {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            let Some(base) = &node.base else {
                remove(&mut rest, id);
                continue;
            };
            if let Some((parent, name)) = origins.get(&base.serial) {
                rest.move_to(id, *parent, name.clone());
            }
            rest.forget_changes(id);
        }
        // A directory in which nothing is left to change is as in the snapshot.
        for (directory, _) in part.entries() {
            if rest.get(directory).is_some_and(is_unchanged) {
                rest.forget_own(directory);
            }
        }
        rest.dying.retain(|serial, _| !part.has_base(*serial));
        rest
    }
}

fn is_unchanged(node: &Node) -> bool {
    let is_empty = |delta: &DirectoryDelta| delta.entries.is_empty() && !delta.removed;
    node.base.is_some() && !node.is_modified() && node.directory_delta().is_some_and(is_empty)
}

fn remove(nodes: &mut Nodes, id: NodeId) {
    let parent = nodes.take(id).map(|node| node.parent);
    if let Some(parent) = parent.and_then(|parent| nodes.get_mut(parent)) {
        parent.lose_child();
    }
}
