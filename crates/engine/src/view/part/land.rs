//! Adapts a view after a part of its changes has landed in the base.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Disk, Kind};

use super::Part;
use crate::base::Base;
use crate::base::handles::HandleKey;
use crate::ids::{NodeId, Sequence};
use crate::view::node::StagedParent;
use crate::view::{Outdated, View};
use crate::write_set::{Object, Staging, WriteSet};

/// A part of a view's changes that a commit has brought into the base.
pub(crate) struct LandedPart<'a> {
    pub part: &'a Part,
    pub set: &'a WriteSet,
    pub staging: Staging,
    pub sequence: Sequence,
    /// The base objects of the new nodes.
    pub created: Vec<(NodeId, Arc<Base>)>,
}

impl<D: Disk> View<D> {
    /// From now on the view shows the part as it is in the base. Returns what caches of the
    /// view must drop.
    pub fn land_part(&mut self, landed: LandedPart<'_>) -> Vec<Outdated> {
        self.note_landed(&landed);
        let LandedPart { part, created, .. } = &landed;
        for (directory, name) in part.entries() {
            self.nodes.take_entry(directory, name);
        }
        for (id, base) in created {
            self.nodes.by_base.insert(base.serial, *id);
            if let Some(node) = self.nodes.get_mut(*id) {
                node.base = Some(base.clone());
            }
        }
        self.drop_carried(&landed);
        let nodes = part.nodes();
        let written = landed.set.objects.iter().filter(|one| !one.is_implied);
        let written = written.map(|object| object.node);
        let written: HashSet<NodeId> = written.chain(created.iter().map(|one| one.0)).collect();
        for &id in &nodes {
            self.land_node(id, written.contains(&id));
        }
        self.nodes.dying.retain(|serial, _| !part.has_base(*serial));
        self.drop_unneeded();
        self.assert_nothing_staged_in_base();
        nodes.into_iter().map(Outdated::Node).collect()
    }

    /// Otherwise a change of the view could reach into the base.
    fn assert_nothing_staged_in_base(&self) {
        let mut staged = self.nodes.staged();
        let is_in_base = |parent: StagedParent| match parent {
            StagedParent::Slots => false,
            StagedParent::Node(id) => self.nodes.get(id).is_none_or(|node| node.base.is_some()),
        };
        assert!(
            !staged.any(|(staged, _)| is_in_base(staged.parent)),
            "what stays open is staged outside of what has landed"
        );
    }

    fn note_landed(&mut self, landed: &LandedPart<'_>) {
        let noted = Arc::make_mut(&mut self.landed);
        let sequence = landed.sequence;
        noted.note_commit(sequence);
        for entry in &landed.set.entries {
            if let Object::Base(directory) = &entry.directory {
                noted.note_entry(directory, &entry.name, sequence);
                self.resolved.forget(directory, &entry.name);
            }
        }
        for object in landed.set.objects.iter().filter(|one| !one.is_implied) {
            noted.note_object(&object.base, sequence);
            self.old_texts.forget(&object.base);
        }
        // The view may know them longer than the kernel does.
        for (_, base) in &landed.created {
            noted.note_object(base, sequence);
        }
    }

    /// `is_written`: its contents or attributes have landed, or the whole object.
    fn land_node(&mut self, id: NodeId, is_written: bool) {
        self.core.handles.remove(HandleKey::Staged(self.id, id));
        self.holes_read.forget(id);
        let Some(node) = self.nodes.get(id) else {
            return;
        };
        let Some(own) = node.own.clone() else { return };
        if node.is_removed_directory() {
            self.land_removed_directory(id);
            return;
        }
        if own.attributes.links == 0 {
            // A program may have the file open. The snapshot has its contents.
            return;
        }
        if node.base.is_none() {
            self.lose(id);
            return;
        }
        if !is_written && node.kind != Kind::Directory {
            // It has got or lost a name. The snapshot does not have that number of names.
            return;
        }
        let inode = node
            .base
            .as_ref()
            .map(|base| self.core.inode_numbers.shown(base.identity().inode));
        if let Some(reported) = self
            .nodes
            .get_mut(id)
            .and_then(|node| node.reported.as_mut())
        {
            *reported = (own.attributes.mode, own.attributes.owner);
        }
        self.nodes.forget_changes(id);
        if let (Some(own), Some(inode)) = (self.nodes.own_to_change(id), inode) {
            own.attributes.inode = inode;
        }
    }

    /// An outside writer has removed the new object as soon as it was in the base.
    fn lose(&mut self, id: NodeId) {
        if let Some(own) = self.nodes.own_to_change(id) {
            own.attributes.links = 0;
            own.staged = None;
        }
    }

    /// Removes the staged files of changes in place. If the record does not have their
    /// contents, recovery may still need them.
    fn drop_carried(&mut self, landed: &LandedPart<'_>) {
        if landed.staging != Staging::Carried {
            return;
        }
        for object in &landed.set.objects {
            let contents = object.contents.as_ref();
            if contents.is_some_and(|contents| contents.replacement.is_none())
                && let Ok(Some(staged)) = self.staged(object.node)
            {
                self.remove_staged(&staged, object.base.kind);
            }
        }
    }

    /// The base does not have the directory any more. Processes may still be in it.
    fn land_removed_directory(&mut self, id: NodeId) {
        let serial = self
            .nodes
            .get(id)
            .and_then(|node| Some(node.base.as_ref()?.serial));
        if let Some(serial) = serial {
            self.nodes.by_base.remove(&serial);
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.base = None;
        }
    }
}
