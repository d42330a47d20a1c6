//! Finding nodes, making them, and dropping them.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, NameError, Result, Stat};

use super::View;
use super::node::{DirectoryDelta, Dress, EntryDelta, Node, Own, OwnBody, Touched};
use super::types::{Entry, ListEntry, NodeAttributes};
use crate::base::credentials::Permission;
use crate::base::snapshot::Found;
use crate::base::{Base, Stamp};
use crate::ids::NodeId;

pub(super) fn parse_name(bytes: &[u8]) -> Result<Name> {
    Name::new(bytes).map_err(|error| match error {
        NameError::TooLong => Errno::NAMETOOLONG,
        NameError::Invalid => Errno::INVAL,
    })
}

impl<D: Disk> View<D> {
    pub(crate) fn node(&self, id: NodeId) -> Result<&Node> {
        self.nodes.get(id).ok_or(Errno::STALE)
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Result<&mut Node> {
        self.nodes.get_mut(id).ok_or(Errno::STALE)
    }

    /// Returns a directory that still has a name.
    pub(super) fn live_directory(&self, id: NodeId) -> Result<&Node> {
        let node = self.node(id)?;
        if node.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if node.is_removed_directory() {
            return Err(Errno::NOENT);
        }
        Ok(node)
    }

    /// Refuses to change a mount point. Changes in it or of its attributes fail
    /// with EROFS, as in a read-only mount. Changes of its name fail with EBUSY,
    /// as they do in the base.
    pub(super) fn refuse_mount_point(&self, id: NodeId, errno: Errno) -> Result<()> {
        match &self.node(id)?.base {
            Some(base) if base.is_mount_point() => Err(errno),
            _ => Ok(()),
        }
    }

    pub fn lookup(&mut self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        let name = parse_name(name)?;
        if self.lower {
            // overlayfs would let a program create it in the upper layer.
            self.refuse_hidden(parent, &name)?;
        }
        let (node, stat) = self.find_child(parent, &name)?.ok_or(Errno::NOENT)?;
        let attributes = match stat {
            // The lookup has just read the object's attributes.
            Some(stat) if self.node(node)?.own().is_none() => self.report(node, &stat)?,
            _ => self.attributes(node)?,
        };
        if let Err(errno) = self.refuse_whiteout(&attributes) {
            self.drop_if_unneeded(node);
            return Err(errno);
        }
        Ok(self.known(node, attributes))
    }

    /// Returns the reply to a lookup, after which the kernel knows the node.
    pub(super) fn entry(&mut self, node: NodeId) -> Result<Entry> {
        let attributes = self.attributes(node)?;
        Ok(self.known(node, attributes))
    }

    fn known(&mut self, node: NodeId, attributes: NodeAttributes) -> Entry {
        self.raise_lookups(node);
        let has_names = attributes.kind != Kind::Directory && attributes.links > 1;
        if has_names && self.lower {
            // This lookup is never subtracted again.
            self.raise_lookups(node);
        }
        Entry {
            node,
            generation: self.generation(node),
            attributes,
        }
    }

    pub fn forget(&mut self, id: NodeId, count: u64) {
        if let Some(lookups) = self.lookups.get_mut(id.0 as usize) {
            *lookups = lookups.saturating_sub(count);
            if *lookups == 0 {
                self.holes_read.forget(id);
            }
            self.drop_if_unneeded(id);
        }
    }

    pub(super) fn raise_lookups(&mut self, id: NodeId) {
        let place = id.0 as usize;
        if self.lookups.len() <= place {
            self.lookups.resize(place + 1, 0);
        }
        self.lookups[place] += 1;
    }

    /// Tells a node apart from earlier ones with the same id.
    pub(super) fn generation(&self, id: NodeId) -> u32 {
        self.generations.get(id.0 as usize).copied().unwrap_or(0)
    }

    fn renew_generation(&mut self, id: NodeId) {
        let place = id.0 as usize;
        if self.generations.len() <= place {
            self.generations.resize(place + 1, 0);
        }
        self.generations[place] = self.generations[place].wrapping_add(1);
    }

    /// Whether the kernel knows the node. It never forgets the root.
    pub(super) fn is_known(&self, id: NodeId) -> bool {
        let lookups = self.lookups.get(id.0 as usize);
        id == NodeId::ROOT || lookups.is_some_and(|lookups| *lookups > 0)
    }

    pub fn known_nodes(&self) -> Vec<NodeId> {
        let nodes = (1..self.lookups.len().max(2) as u64).map(NodeId);
        nodes.filter(|id| self.is_known(*id)).collect()
    }

    pub(crate) fn child(&mut self, parent: NodeId, name: &Name) -> Result<Option<NodeId>> {
        let found = self.find_child(parent, name)?;
        Ok(found.map(|(node, _)| node))
    }

    /// Finds the child, and its state in the snapshot if that was read.
    pub(super) fn find_child(
        &mut self,
        parent: NodeId,
        name: &Name,
    ) -> Result<Option<(NodeId, Option<Stat>)>> {
        let directory = self.live_directory(parent)?;
        let delta = directory.directory_delta();
        if let Some(entry) = delta.and_then(|delta| delta.entries.get(name)) {
            return Ok(entry.now.map(|node| (node, None)));
        }
        let Some(base) = directory.base.clone() else {
            return Ok(None);
        };
        self.require_present(&base, &[Permission::Search])?;
        let found = match self.show_name(&base, name) {
            Err(Errno::STALE) => {
                let changed = self.changed_at(parent, name).ok_or(Errno::STALE)?;
                return Ok(Some((changed, None)));
            }
            found => found?,
        };
        if let Some(reads) = &mut self.reads
            && !self.core.is_hidden(&base, name)
        {
            reads.name(&base, name, found.as_ref().map(|found| &found.base));
        }
        Ok(found.map(|found| {
            let stat = found.stat;
            (self.node_of_base(found, parent, name), Some(stat))
        }))
    }

    pub(super) fn node_of_base(&mut self, found: Found, parent: NodeId, name: &Name) -> NodeId {
        let serial = found.base.serial;
        if let Some(known) = self.nodes.by_base.get(&serial).copied() {
            self.renew_place(known, parent, name);
            return known;
        }
        let kind = found.base.kind;
        let id = self.insert(kind, Some(found.base), Some((parent, name.clone())));
        self.nodes.by_base.insert(serial, id);
        id
    }

    /// Updates the place of a file that has lost its known name and still has
    /// this one.
    fn renew_place(&mut self, id: NodeId, parent: NodeId, name: &Name) {
        let Ok(Node {
            parent: old,
            name: Some(old_name),
            ..
        }) = self.node(id)
        else {
            return;
        };
        let delta = self.node(*old).ok().and_then(Node::directory_delta);
        let entry = delta.and_then(|delta| delta.entries.get(old_name));
        if entry.is_some_and(|entry| entry.now != Some(id)) {
            // This fails only if the node is gone.
            let _ = self.reparent(id, parent, name);
        }
    }

    /// The unchanged entry of the base by which a node is known.
    pub(crate) fn base_place(&self, id: NodeId) -> Option<(Arc<Base>, Name)> {
        let node = self.node(id).ok()?;
        let (parent, name) = (self.node(node.parent).ok()?, node.name.clone()?);
        let is_changed = parent
            .directory_delta()
            .is_some_and(|d| d.entries.contains_key(&name));
        if is_changed {
            None
        } else {
            Some((parent.base.clone()?, name))
        }
    }

    pub(super) fn insert(
        &mut self,
        kind: Kind,
        base: Option<Arc<Base>>,
        place: Option<(NodeId, Name)>,
    ) -> NodeId {
        let id = self.new_id();
        assert!(
            self.nodes.get(id).is_none(),
            "two nodes of a view have one id"
        );
        self.renew_generation(id);
        let (parent, name) = match place {
            Some((parent, name)) => (parent, Some(name)),
            None => (NodeId::ROOT, None),
        };
        if let Ok(parent) = self.node_mut(parent) {
            parent.children += 1;
        }
        let node = Node {
            kind,
            base,
            parent,
            name,
            reported: None,
            children: 0,
            listed: 0,
            own: None,
            is_watched: false,
        };
        self.nodes.put(id, Arc::new(node));
        id
    }

    pub(super) fn reparent(&mut self, id: NodeId, parent: NodeId, name: &Name) -> Result<()> {
        let node = self.node_mut(id)?;
        let old = std::mem::replace(&mut node.parent, parent);
        node.name = Some(name.clone());
        self.node_mut(parent)?.children += 1;
        self.node_mut(old)?.lose_child();
        self.drop_if_unneeded(old);
        Ok(())
    }

    /// Drops the node if nothing needs it any more, and then its parent likewise.
    pub(super) fn drop_if_unneeded(&mut self, mut id: NodeId) {
        while id != NodeId::ROOT {
            let Ok(node) = self.node(id) else { return };
            if self.is_known(id) || !node.is_disposable() || self.is_kept_for_others(id, node) {
                return;
            }
            let Some(node) = self.nodes.take(id) else {
                return;
            };
            if let Some(own) = &node.own {
                self.discard_staged(id, own);
            }
            if let (Some(shown), Some(base), true) = (&self.shown, &node.base, self.lower) {
                shown.forget(base);
            }
            if !self.is_forked() && id >= self.reusable_from {
                self.free.push(id);
            }
            id = node.parent;
            if let Ok(parent) = self.node_mut(id) {
                parent.lose_child();
            }
        }
    }

    /// Returns the node's changes. A node without changes gets an empty set of
    /// them.
    pub(super) fn own_mut(&mut self, id: NodeId) -> Result<&mut Own> {
        if self.node(id)?.own.is_none() {
            self.refuse_mount_point(id, Errno::ROFS)?;
            let base = self.node(id)?.base.clone().ok_or(Errno::STALE)?;
            let stat = self.shown_stat(&base)?;
            self.own_as_found(id, &stat)?;
        }
        let own = self.own_in_place(id)?;
        if own.dress == Dress::Complete {
            own.dress = Dress::Outdated;
        }
        Ok(own)
    }

    /// For a node of the base that was just found to be so, unless it has changes of its own already.
    pub(super) fn own_as_found(&mut self, id: NodeId, stat: &Stat) -> Result<()> {
        let node = self.node(id)?;
        if node.own.is_some() || node.base.is_none() {
            return Ok(());
        }
        self.watch_stores(id, stat);
        let own = Own {
            attributes: self.core.inode_numbers.attributes_of(stat),
            touched: Touched::default(),
            stamp: Some(Stamp::of(stat)),
            xattrs: Default::default(),
            body: OwnBody::Unchanged,
            staged: None,
            dress: Dress::Bare,
        };
        self.node_mut(id)?.own = Some(Arc::new(own));
        self.note_changed(id);
        Ok(())
    }

    /// Returns the changes of a node that has some, for callers that keep its
    /// staged object up to date.
    pub(super) fn own_in_place(&mut self, id: NodeId) -> Result<&mut Own> {
        let own = self.node_mut(id)?.own.as_mut();
        own.map(Arc::make_mut).ok_or(Errno::STALE)
    }

    pub(super) fn note_changed(&mut self, id: NodeId) {
        self.nodes.changed.insert(id);
    }

    pub(super) fn delta_mut(&mut self, id: NodeId) -> Result<&mut DirectoryDelta> {
        let own = self.own_mut(id)?;
        if let OwnBody::Unchanged = own.body {
            own.body = OwnBody::Directory(DirectoryDelta::default());
        }
        match &mut own.body {
            OwnBody::Directory(delta) => Ok(delta),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// Makes an entry name a node or nothing, and updates the directory's times.
    pub(super) fn set_entry(
        &mut self,
        parent: NodeId,
        name: &Name,
        now: Option<NodeId>,
    ) -> Result<()> {
        let known = self.delta_mut(parent)?.entries.contains_key(name);
        self.nodes.note_unlogged(|unlogged| {
            unlogged.entries.insert((parent, name.clone()));
        });
        let before = match self.node(parent)?.base.clone() {
            Some(base) if !known => self.object_before(&base, name)?,
            _ => None,
        };
        let now_base = match now {
            Some(id) => self.node(id)?.base.as_ref().map(|base| base.serial),
            None => None,
        };
        let time = self.now();
        let own = self.own_mut(parent)?;
        own.attributes.modified = time;
        own.attributes.changed = time;
        let delta = self.delta_mut(parent)?;
        delta.is_touched = true;
        let entry = delta
            .entries
            .entry(name.clone())
            .or_insert(EntryDelta { before, now: None });
        let old = std::mem::replace(&mut entry.now, now);
        // An entry that equals the snapshot's is no difference.
        let same = entry.before.as_ref().map(|base| base.serial) == now_base
            && (entry.before.is_some() || now.is_none());
        if same {
            delta.entries.remove(name);
        }
        if let (Some(id), false) = (now, same) {
            self.node_mut(id)?.listed += 1;
        }
        if let Some(id) = old {
            self.node_mut(id)?.lose_entry();
        }
        Ok(())
    }

    pub fn list(&mut self, id: NodeId) -> Result<Vec<ListEntry>> {
        let directory = self.node(id)?;
        if directory.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        if directory.is_removed_directory() {
            return Ok(Vec::new());
        }
        let base = directory.base.clone();
        let below = match &base {
            Some(base) => {
                self.require_present(base, &[Permission::Read])?;
                self.show_listing(base)?
            }
            None => Vec::new(),
        };
        if let (Some(reads), Some(base)) = (&mut self.reads, &base) {
            reads.listing(base, &below);
        }
        let delta = self.node(id)?.directory_delta();
        let changed = |name: &Name| delta.is_some_and(|delta| delta.entries.contains_key(name));
        let may_show = |name: &Name, inode| {
            base.as_ref()
                .is_none_or(|base| self.note_listed(base, name, inode))
        };
        let mut listing: Vec<ListEntry> = below
            .into_iter()
            .filter(|(name, inode, _)| !changed(name) && may_show(name, *inode))
            .map(|(name, inode, kind)| ListEntry {
                name,
                inode: self.core.inode_numbers.shown(inode),
                kind,
            })
            .collect();
        let entries = delta.into_iter().flat_map(|delta| &delta.entries);
        let added = entries.filter_map(|(name, entry)| Some((name.clone(), entry.now?)));
        for (name, now) in added.collect::<Vec<_>>() {
            let NodeAttributes { inode, kind, .. } = self.attributes(now)?;
            listing.push(ListEntry { name, inode, kind });
        }
        Ok(listing)
    }

    pub(super) fn is_empty_directory(&mut self, id: NodeId) -> Result<bool> {
        Ok(self.list(id)?.is_empty())
    }

    /// Whether `ancestor` is `node` or a directory above it.
    pub(super) fn is_ancestor(&self, ancestor: NodeId, node: NodeId) -> Result<bool> {
        let mut at = node;
        loop {
            if at == ancestor {
                return Ok(true);
            }
            if at == NodeId::ROOT {
                return Ok(false);
            }
            at = self.node(at)?.parent;
        }
    }

    pub fn resolve(&mut self, path: &[u8]) -> Result<Option<NodeId>> {
        let mut at = NodeId::ROOT;
        for part in path
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
        {
            let name = parse_name(part)?;
            match self.child(at, &name) {
                Ok(Some(child)) => at = child,
                Ok(None) | Err(Errno::NOTDIR) => return Ok(None),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(at))
    }

    /// The object of the snapshot that has this name in the view. Nothing of it is kept in the view.
    pub fn base_at(&mut self, path: &[u8]) -> Result<Option<Arc<Base>>> {
        let Some(node) = self.resolve(path)? else {
            return Ok(None);
        };
        let base = self.node(node)?.base.clone();
        self.drop_if_unneeded(node);
        Ok(base)
    }
}
