//! Lays a view's difference over a newer snapshot.
//!
//! A node says what is different from the snapshot, so it mostly holds over another one as well.
//! The caller has found no conflict: the entries that the view changes are as they were, and so
//! are the files that it changes (`changed_by_others`). It remains to renew what a node has copied
//! from its snapshot: attributes that the view has not changed, numbers of links, and places of
//! objects that others have moved.
//!
//! A node's attributes in the new snapshot are read before the caller validates. An outside writer
//! may change them right afterwards. Validation or the commit then finds them different, and
//! nothing overwrites that writer's changes.
//!
//! Invariants
//! 1. Afterwards each node is as if its changes had been made over the new snapshot.
//! 2. Nodes with changes keep their ids. All others are dropped, and their ids are not used again:
//!    a request from before the refresh finds the object that it means, or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result, Stat};

use super::View;
use super::node::{Node, OwnBody};
use super::sparse::HolesRead;
use crate::base::snapshot::{Snapshot, SnapshotPoint};
use crate::base::{Base, Place, Stamp};
use crate::ids::{NodeId, Sequence};

/// The data that a node with changes takes over: the attributes of its object in the old snapshot
/// and in the new one.
pub(crate) struct Renewal {
    node: NodeId,
    before: Stat,
    now: Stat,
}

impl<D: Disk> View<D> {
    /// To be called before the changes are validated.
    pub fn renewals(&self, new: SnapshotPoint) -> Result<Vec<Renewal>> {
        let landed = Arc::default();
        let (old, new) = (
            self.snapshot(),
            Snapshot::with_landed(&self.core, new.at, &landed),
        );
        let mut renewals = Vec::new();
        for node in self.changed_nodes() {
            let Some(base) = &self.node(node)?.base else {
                continue;
            };
            if let (Some(before), Some(now)) =
                (if_there(old.stat(base))?, if_there(new.stat(base))?)
            {
                renewals.push(Renewal { node, before, now });
            }
        }
        Ok(renewals)
    }

    /// The files that the view changes or removes and that others have changed by commits since the
    /// snapshot, each with the newest such commit.
    pub fn changed_by_others(&mut self) -> Result<Vec<(Vec<u8>, Sequence)>> {
        let put_back = self.put_back()?;
        let unchanged = self.files_without_changes();
        let changed = self
            .changed_nodes()
            .filter(|id| !put_back.contains(id) && !unchanged.contains(id));
        let files = changed.filter_map(|id| {
            let base = self.nodes.get(id)?.base.as_ref()?;
            (base.kind != Kind::Directory).then(|| (self.path(id), base))
        });
        let origins = self.nodes.origins();
        let dying = self.nodes.dying.values().map(|base| {
            let origin = origins.get(&base.serial);
            let path = origin.map(|(directory, name)| self.path_of_entry(*directory, name));
            (path.unwrap_or_default(), base)
        });
        let is_known = |sequence| sequence <= self.at || self.landed.is_own(sequence);
        let newest = |base: &Base| base.state().changed()?.newest_but(is_known);
        let found = files
            .chain(dying)
            .filter_map(|(path, base)| Some((path, newest(base)?)));
        Ok(found.collect())
    }

    /// From now on the view shows the new snapshot and its own changes. If it is kept on disk,
    /// the caller has it recorded.
    pub fn refresh(&mut self, new: SnapshotPoint, renewals: Vec<Renewal>) -> Result<()> {
        let put_back = self.put_back()?;
        // From here on nothing fails: an object that cannot be looked at stays as it was.
        for id in put_back {
            self.forget_put_back(id);
        }
        for id in self.files_without_changes() {
            self.nodes.forget_own(id);
        }
        self.at = new.at;
        self.landed = Arc::default();
        self.resolved = Arc::new(self.resolved.without_names());
        self.old_texts.begin(new.began);
        self.change_log_begin(|begin| {
            begin.at = new.at.0;
            begin.began_change_time = new.began;
        });
        for Renewal { node, before, now } in renewals {
            self.renew_own(node, &before, &now);
            self.watch_again(node, &now);
        }
        self.lookups.clear();
        self.holes_read = HolesRead::default();
        let reusable_from = NodeId(self.numbers.fork_point().next_node);
        assert!(
            reusable_from >= self.reusable_from,
            "ids from before a refresh are used again"
        );
        self.reusable_from = reusable_from;
        self.free.clear();
        self.drop_unneeded();
        let left: Vec<NodeId> = self.nodes.ids().collect();
        for id in left {
            self.forget_reported(id);
            self.renew_base_place(id);
        }
        self.drop_unneeded();
        Ok(())
    }

    /// Old files that have nothing left to commit: their new or lost names have landed, and only
    /// their number of names was not that of the snapshot.
    fn files_without_changes(&self) -> BTreeSet<NodeId> {
        let mut found: BTreeSet<NodeId> = self.changed_nodes().collect();
        found.retain(|id| {
            self.node(*id).is_ok_and(|node| {
                let has_names = node.own().is_some_and(|own| own.attributes.links > 0);
                let is_old_file = node.base.is_some() && node.kind != Kind::Directory;
                is_old_file && has_names && !node.is_modified()
            })
        });
        let mut serials: BTreeMap<u64, NodeId> = BTreeMap::new();
        for id in &found {
            let base = self.node(*id).ok().and_then(|node| node.base.as_ref());
            serials.extend(base.map(|base| (base.serial, *id)));
        }
        for directory in self.changed_nodes() {
            let delta = self.node(directory).ok().and_then(Node::directory_delta);
            for entry in delta.into_iter().flat_map(|delta| delta.entries.values()) {
                let before = entry.before.as_ref();
                let before = before.and_then(|before| serials.get(&before.serial));
                for id in entry.now.iter().chain(before) {
                    found.remove(id);
                }
            }
        }
        found
    }

    /// Others may have changed it since, so that it would not be put back any more.
    fn forget_put_back(&mut self, id: NodeId) {
        let Ok(own) = self.own_in_place(id) else {
            return;
        };
        own.touched = Default::default();
        own.xattrs.clear();
        if let OwnBody::File(_) = own.body {
            own.body = OwnBody::Unchanged;
            let (staged, kind) = (own.staged.take(), own.attributes.kind);
            self.core
                .handles
                .remove(crate::base::handles::HandleKey::Staged(self.id, id));
            if let Some(staged) = staged {
                self.remove_staged(&staged, kind);
            }
        }
    }

    /// Updates the data that the node has copied from its snapshot and not changed.
    fn renew_own(&mut self, id: NodeId, before: &Stat, now: &Stat) {
        let mut renewed = self.core.inode_numbers.attributes_of(now);
        let Ok(node) = self.node_mut(id) else { return };
        let of_snapshot = (now.attributes.mode, now.attributes.owner);
        node.reported = node.reported.map(|_| of_snapshot);
        let Some(own) = node.own.as_mut().map(Arc::make_mut) else {
            return;
        };
        own.stamp = own.stamp.map(|_| Stamp::of(now));
        if own.attributes.links == 0 {
            return;
        }
        let (old, touched) = (own.attributes, own.touched);
        renewed.links = (now.links + old.links).saturating_sub(before.links).max(1);
        renewed.changed = old.changed.max(now.changed);
        if touched.mode {
            renewed.mode = old.mode;
        }
        if touched.owner {
            renewed.owner = old.owner;
        }
        if touched.accessed {
            renewed.accessed = old.accessed;
        }
        let has_changed = match &mut own.body {
            OwnBody::Directory(delta) => {
                delta.default_acl = None;
                delta.is_touched
            }
            OwnBody::File(_) => {
                (renewed.length, renewed.blocks) = (old.length, old.blocks);
                true
            }
            _ => false,
        };
        if touched.modified || has_changed {
            renewed.modified = old.modified;
        }
        own.attributes = renewed;
    }

    /// Other programs may have stored to the file before the new snapshot, so that later stores would
    /// leave no trace.
    fn watch_again(&mut self, id: NodeId, now: &Stat) {
        let is_watched = self.node(id).is_ok_and(|node| node.is_watched);
        if is_watched && let Ok(node) = self.node_mut(id) {
            node.is_watched = false;
            self.watch_stores(id, now);
        }
    }

    /// The kernel asks again for the attributes of a node without changes, and gets those of the
    /// new snapshot.
    fn forget_reported(&mut self, id: NodeId) {
        let is_stale =
            |node: &Node| node.own.is_none() && (node.reported.is_some() || node.is_watched);
        if self.node(id).is_ok_and(is_stale)
            && let Ok(node) = self.node_mut(id)
        {
            node.reported = None;
            node.is_watched = false;
        }
    }

    /// Moves a node to the place that its object has in the new snapshot, unless the view itself
    /// has placed it.
    fn renew_base_place(&mut self, id: NodeId) {
        let Ok(node) = self.node(id) else { return };
        let (Some(base), Some(name), parent) = (node.base.clone(), node.name.clone(), node.parent)
        else {
            return;
        };
        if node.is_unnamed() || self.names(parent, &name, id) {
            return;
        }
        if let Some((directory, name)) = self.base_place(id)
            && let Ok(Some(found)) = self.snapshot().lookup(&directory, &name)
            && Arc::ptr_eq(&found.base, &base)
        {
            return;
        }
        let place = base.state().place.clone();
        if let Place::Entry { parent, name } = place {
            let parent = self.node_in_base(&parent);
            // This fails only if the node is gone.
            let _ = self.reparent(id, parent, &name);
        }
    }

    /// Whether an entry of the difference names the node.
    fn names(&self, directory: NodeId, name: &atomdir_disk::Name, id: NodeId) -> bool {
        let delta = self.node(directory).ok().and_then(Node::directory_delta);
        let entry = delta.and_then(|delta| delta.entries.get(name));
        entry.is_some_and(|entry| entry.now == Some(id))
    }

    fn node_in_base(&mut self, base: &Arc<Base>) -> NodeId {
        if let Some(known) = self.nodes.by_base.get(&base.serial) {
            return *known;
        }
        let place = match base.state().place.clone() {
            Place::Entry { parent, name } => Some((self.node_in_base(&parent), name)),
            Place::Root | Place::Limbo(_) | Place::Held => None,
        };
        let id = self.insert(base.kind, Some(base.clone()), place);
        self.nodes.by_base.insert(base.serial, id);
        id
    }
}

/// `None`: an outside writer has removed the object.
fn if_there(stat: Result<Stat>) -> Result<Option<Stat>> {
    match stat {
        Err(Errno::STALE | Errno::NOENT) => Ok(None),
        stat => stat.map(Some),
    }
}
