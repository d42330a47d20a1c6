//! Writes nodes, entries and base objects down as changes of the view log.

use std::sync::Arc;

use atomdir_disk::{Disk, Name};
use atomdir_format::view::{
    EntryDifference, ObjectPlace, ViewBody, ViewChange, ViewNode, ViewObject, ViewOwn, ViewStaged,
};

use super::ViewLog;
use crate::base::{Base, Place};
use crate::ids::NodeId;
use crate::view::View;
use crate::view::node::{Dress, EntryDelta, Node, Own, OwnBody, Staged, StagedParent, Touched};
use crate::view::nodes::Unlogged;

pub(super) const TOUCHED_MODE: u8 = 1;
pub(super) const TOUCHED_OWNER: u8 = 2;
pub(super) const TOUCHED_ACCESSED: u8 = 4;
pub(super) const TOUCHED_MODIFIED: u8 = 8;

pub(super) const DRESS_BARE: u8 = 0;
pub(super) const DRESS_COMPLETE: u8 = 1;
pub(super) const DRESS_OUTDATED: u8 = 2;

/// The changes of one record.
pub(super) struct Writing<'a, D: Disk> {
    view: &'a View<D>,
    log: &'a mut ViewLog<D>,
    changes: Vec<ViewChange>,
}

impl<'a, D: Disk> Writing<'a, D> {
    pub fn new(view: &'a View<D>, log: &'a mut ViewLog<D>) -> Writing<'a, D> {
        Writing {
            view,
            log,
            changes: Vec::new(),
        }
    }

    /// The whole view.
    pub fn whole(mut self) -> Vec<ViewChange> {
        let begin = Box::new(self.log.begin.clone());
        self.changes.push(ViewChange::Begin(begin));
        let note = self.log.note.clone();
        self.changes.push(ViewChange::Note(note));
        let (view, nodes) = (self.view, &self.view.nodes);
        for id in nodes.ids() {
            self.node(id, true);
        }
        for id in &nodes.changed {
            let delta = nodes.get(*id).and_then(Node::directory_delta);
            for (name, entry) in delta.into_iter().flat_map(|delta| &delta.entries) {
                self.entry(*id, name, Some(entry));
            }
        }
        for base in nodes.dying.values() {
            self.dying(base);
        }
        for serial in &view.restored {
            let node = nodes.by_base.get(serial).and_then(|id| nodes.get(*id));
            if let Some(base) = node.and_then(|node| node.base.as_ref()) {
                let object = self.object(base);
                self.changes.push(ViewChange::Restored { object });
            }
        }
        for (base, stamp) in self.log.brought.clone() {
            let object = self.object(&base);
            let stamp = stamp.to_log();
            self.changes.push(ViewChange::Brought { object, stamp });
        }
        for (before, after) in &view.successions {
            let (before, after) = (self.object(before), self.object(after));
            self.changes.push(ViewChange::Succession { before, after });
        }
        self.changes
    }

    /// What has changed since the last record.
    pub fn changes(mut self, unlogged: &Unlogged) -> Vec<ViewChange> {
        let nodes = &self.view.nodes;
        for id in &unlogged.gone {
            if self.log.nodes.remove(id) {
                self.changes.push(ViewChange::Gone { node: id.0 });
            }
        }
        // A node that the log does not have yet comes with all of its pages.
        let is_known = |id: &NodeId| self.log.nodes.contains(id);
        let known: Vec<_> = unlogged
            .pages
            .iter()
            .filter(|(id, ..)| is_known(id) && !unlogged.contents.contains(id))
            .copied()
            .collect();
        for &id in &unlogged.nodes {
            let is_new = !self.log.nodes.contains(&id);
            self.node(id, is_new || unlogged.contents.contains(&id));
        }
        for (id, name) in &unlogged.entries {
            let Some(node) = nodes.get(*id) else { continue };
            let delta = node.directory_delta();
            self.entry(*id, name, delta.and_then(|delta| delta.entries.get(name)));
        }
        for (id, start, end) in known {
            if nodes.get(id).and_then(Node::contents).is_some() {
                let node = id.0;
                self.changes.push(ViewChange::Pages { node, start, end });
            }
        }
        for base in &unlogged.dying {
            self.dying(base);
        }
        self.changes
    }

    /// Writes a node that has changes or is named by an entry, or that the log already has.
    fn node(&mut self, id: NodeId, with_pages: bool) {
        let Some(node) = self.view.nodes.get(id) else {
            return;
        };
        if node.own.is_some() || node.listed > 0 || self.log.nodes.contains(&id) {
            self.node_itself(id, node, with_pages);
            self.above(node);
        }
    }

    fn node_itself(&mut self, id: NodeId, node: &Node, with_pages: bool) {
        self.log.nodes.insert(id);
        let object = node.base.as_ref().map(|base| self.object(base));
        let own = node.own().map(|own| own_state(own, with_pages));
        self.changes.push(ViewChange::Node(Box::new(ViewNode {
            node: id.0,
            kind: node.kind,
            object,
            parent: node.parent.0,
            name: node.name.clone(),
            reported: node.reported,
            own,
        })));
    }

    /// Writes the nodes above one, as far as the log does not have them.
    fn above(&mut self, node: &Node) {
        let mut id = node.parent;
        while id != NodeId::ROOT
            && !self.log.nodes.contains(&id)
            && let Some(above) = self.view.nodes.get(id)
        {
            self.node_itself(id, above, true);
            id = above.parent;
        }
    }

    fn entry(&mut self, directory: NodeId, name: &Name, entry: Option<&EntryDelta>) {
        let difference = entry.map(|entry| EntryDifference {
            before: entry.before.as_ref().map(|base| self.object(base)),
            now: entry.now.map(|id| id.0),
        });
        self.changes.push(ViewChange::Entry {
            directory: directory.0,
            name: name.clone(),
            difference,
        });
    }

    fn dying(&mut self, base: &Arc<Base>) {
        let object = self.object(base);
        self.changes.push(ViewChange::Dying { object });
    }

    /// Writes a base object, after the directories above it, unless the log has it. Returns the
    /// number by which the log mentions it.
    fn object(&mut self, base: &Arc<Base>) -> u64 {
        let mut missing = Vec::new();
        let mut at = base.clone();
        while self.log.objects.insert(at.serial) {
            // Later commits may have given it another inode.
            let identity = at.identity_at(self.view.at);
            let place = at.state().place.clone();
            let (place, above) = match place {
                Place::Root => (ObjectPlace::Root, None),
                Place::Entry { parent, name } => {
                    let directory = parent.serial;
                    (ObjectPlace::Entry { directory, name }, Some(parent))
                }
                Place::Limbo(_) | Place::Held => (ObjectPlace::Limbo, None),
            };
            missing.push(ViewChange::Object(ViewObject {
                number: at.serial,
                identity,
                kind: at.kind,
                place,
            }));
            match above {
                Some(above) => at = above,
                None => break,
            }
        }
        self.changes.extend(missing.into_iter().rev());
        base.serial
    }
}

fn own_state(own: &Own, with_pages: bool) -> ViewOwn {
    ViewOwn {
        attributes: own.attributes,
        touched: touched_bits(own.touched),
        stamp: own.stamp.map(|stamp| stamp.to_log()),
        xattrs: own.xattrs.clone().into_iter().collect(),
        body: body_state(&own.body, with_pages),
        staged: own.staged.as_ref().map(staged_state),
        dress: match own.dress {
            Dress::Bare => DRESS_BARE,
            Dress::Complete => DRESS_COMPLETE,
            Dress::Outdated => DRESS_OUTDATED,
        },
    }
}

fn touched_bits(touched: Touched) -> u8 {
    let bit = |is_touched, bit| if is_touched { bit } else { 0 };
    bit(touched.mode, TOUCHED_MODE)
        | bit(touched.owner, TOUCHED_OWNER)
        | bit(touched.accessed, TOUCHED_ACCESSED)
        | bit(touched.modified, TOUCHED_MODIFIED)
}

fn body_state(body: &OwnBody, with_pages: bool) -> ViewBody {
    match body {
        OwnBody::Unchanged => ViewBody::Unchanged,
        OwnBody::File(contents) => ViewBody::File {
            base_limit: contents.base_limit,
            pages: with_pages.then(|| contents.pages.iter().collect()),
        },
        OwnBody::Directory(delta) => ViewBody::Directory {
            is_touched: delta.is_touched,
            is_removed: delta.removed,
        },
        OwnBody::Symlink(target) => ViewBody::Symlink(target.clone()),
        OwnBody::Special => ViewBody::Special,
    }
}

fn staged_state(staged: &Staged) -> ViewStaged {
    ViewStaged {
        parent: match staged.parent {
            StagedParent::Slots => None,
            StagedParent::Node(id) => Some(id.0),
        },
        name: staged.name.clone(),
        identity: staged.identity,
    }
}
