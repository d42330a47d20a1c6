//! Changes that an undo makes to a view: names that change all at once, objects that come back
//! from limbo, and attributes and contents as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};
use atomdir_format::record::{AttributesChange, ContentChange, Former, Run};

use super::View;
use super::node::Touched;
use super::types::NodeAttributes;
use crate::base::Base;
use crate::ids::NodeId;

const PUNCH_HOLE_KEEP_SIZE: u32 = 0x03;

/// A name that shall be another object's, or nobody's.
pub(crate) struct NameChange {
    pub directory: NodeId,
    pub name: Name,
    pub before: Option<NodeId>,
    pub after: Option<NodeId>,
}

impl<D: Disk> View<D> {
    /// Returns the node of an object that the history keeps in limbo.
    pub(crate) fn adopt(&mut self, base: Arc<Base>) -> NodeId {
        self.restored.insert(base.serial);
        if let Some(known) = self.nodes.by_base.get(&base.serial) {
            return *known;
        }
        let serial = base.serial;
        let id = self.insert(base.kind, Some(base), None);
        self.nodes.by_base.insert(serial, id);
        id
    }

    /// Changes the names all at once. Directories that are left without a name are removed with
    /// everything in them.
    pub(crate) fn change_names(&mut self, changes: &[NameChange]) -> Result<()> {
        // By object: how many names it loses, and how many it gets.
        let mut counts: BTreeMap<NodeId, (u32, u32)> = BTreeMap::new();
        for change in changes {
            self.delta_mut(change.directory)?;
            for node in [change.before, change.after].into_iter().flatten() {
                // Now that it holds changes, the node stays.
                self.own_mut(node)?;
            }
            counts.entry(change.directory).or_default();
        }
        for change in changes {
            if let Some(before) = change.before {
                counts.entry(before).or_default().0 += 1;
                self.set_entry(change.directory, &change.name, None)?;
                self.count_subdirectory(before, change.directory, false)?;
            }
        }
        for change in changes {
            if let Some(after) = change.after {
                counts.entry(after).or_default().1 += 1;
                self.set_entry(change.directory, &change.name, Some(after))?;
                self.reparent(after, change.directory, &change.name)?;
                self.count_subdirectory(after, change.directory, true)?;
            }
        }
        self.refuse_loops(changes)?;
        let is_directory = |view: &Self, node| Ok(view.node(node)?.kind == Kind::Directory);
        let mut staying = BTreeSet::new();
        let mut leaving = Vec::new();
        for (node, (lost, gained)) in counts {
            if gained > 0 {
                staying.insert(node);
            }
            if (lost, gained) == (0, 0) {
                continue;
            }
            if !is_directory(self, node)? {
                self.count_names(node, lost, gained)?;
            } else if gained == 0 {
                leaving.push(node);
            }
        }
        for node in leaving {
            self.remove_tree(node, &staying)?;
        }
        Ok(())
    }

    fn count_subdirectory(&mut self, node: NodeId, directory: NodeId, is_new: bool) -> Result<()> {
        if self.node(node)?.kind == Kind::Directory {
            let own = self.own_mut(directory)?;
            own.attributes.count_subdirectory(is_new);
        }
        Ok(())
    }

    fn count_names(&mut self, node: NodeId, lost: u32, gained: u32) -> Result<()> {
        let base = self.node(node)?.base.clone().ok_or(Errno::STALE)?;
        // Its name in limbo is not a name that programs see.
        let in_limbo = u32::from(self.restored.contains(&base.serial));
        let now = self.now();
        let attributes = &mut self.own_mut(node)?.attributes;
        attributes.changed = now;
        let links = (attributes.links + gained).saturating_sub(lost + in_limbo);
        attributes.links = links;
        if links == 0 {
            self.set_dying(node)?;
        }
        Ok(())
    }

    fn refuse_loops(&self, changes: &[NameChange]) -> Result<()> {
        for change in changes {
            let mut at = change.directory;
            let mut steps = 0;
            while at != NodeId::ROOT {
                at = self.node(at)?.parent;
                steps += 1;
                if steps > self.nodes.len() {
                    return Err(Errno::LOOP);
                }
            }
        }
        Ok(())
    }

    /// Removes the remaining objects in a directory, and the directory itself, which has lost its
    /// name. Directories in it that have got another name stay.
    fn remove_tree(&mut self, directory: NodeId, staying: &BTreeSet<NodeId>) -> Result<()> {
        let mut open = vec![directory];
        let mut found = Vec::new();
        while let Some(directory) = open.pop() {
            found.push(directory);
            for entry in self.list(directory)? {
                let child = self.child(directory, &entry.name)?.ok_or(Errno::STALE)?;
                match entry.kind {
                    Kind::Directory if staying.contains(&child) => {
                        self.set_entry(directory, &entry.name, None)?;
                    }
                    Kind::Directory => {
                        self.own_mut(child)?;
                        self.set_entry(directory, &entry.name, None)?;
                        open.push(child);
                    }
                    _ => {
                        self.drop_link(child)?;
                        self.set_entry(directory, &entry.name, None)?;
                        self.drop_if_unneeded(child);
                    }
                }
            }
        }
        for directory in found.into_iter().rev() {
            self.delta_mut(directory)?.removed = true;
            self.own_mut(directory)?.attributes.links = 0;
            self.set_dying(directory)?;
        }
        Ok(())
    }

    /// Gives an object the attributes back that a commit has changed. It may have set one to the value that
    /// was there already, and others may have changed that since.
    pub(crate) fn restore_attributes(
        &mut self,
        node: NodeId,
        changed: &AttributesChange,
        former: &Former,
    ) -> Result<()> {
        let now = self.now();
        let own = self.own_mut(node)?;
        own.attributes.changed = now;
        let was = former.attributes;
        if changed.mode.is_some_and(|mode| mode != was.mode) {
            own.attributes.mode = was.mode;
            own.touched.mode = true;
        }
        let is_given = changed.user.is_some_and(|user| user != was.owner.user)
            || changed.group.is_some_and(|group| group != was.owner.group);
        if is_given {
            own.attributes.owner = was.owner;
            own.touched.owner = true;
        }
        if changed.accessed.is_some() {
            own.attributes.accessed = was.times.accessed;
            own.touched.accessed = true;
        }
        if changed.modified.is_some() {
            own.attributes.modified = was.times.modified;
            own.touched.modified = true;
        }
        let xattrs = former.xattrs.iter().cloned();
        own.xattrs.extend(xattrs);
        Ok(())
    }

    /// Whether a directory is in the tree still.
    pub(crate) fn is_live_directory(&self, node: NodeId) -> bool {
        let is_removed = |node| {
            self.node(node)
                .is_ok_and(|node| node.is_removed_directory())
        };
        let mut at = node;
        while at != NodeId::ROOT {
            let Ok(found) = self.node(at) else {
                return false;
            };
            if is_removed(at) {
                return false;
            }
            at = found.parent;
        }
        true
    }

    /// Gives an object these of the attributes, and extended attributes.
    pub(crate) fn dress_as(
        &mut self,
        node: NodeId,
        wanted: &NodeAttributes,
        which: Touched,
        xattrs: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    ) -> Result<()> {
        let is_any = which.mode || which.owner || which.accessed || which.modified;
        if !is_any && xattrs.is_empty() {
            return Ok(());
        }
        let now = self.now();
        let own = self.own_mut(node)?;
        own.attributes.changed = now;
        if which.mode {
            own.attributes.mode = wanted.mode;
        }
        if which.owner {
            own.attributes.owner = wanted.owner;
        }
        if which.accessed {
            own.attributes.accessed = wanted.accessed;
        }
        if which.modified {
            own.attributes.modified = wanted.modified;
        }
        own.touched.mode |= which.mode;
        own.touched.owner |= which.owner;
        own.touched.accessed |= which.accessed;
        own.touched.modified |= which.modified;
        own.xattrs.extend(xattrs);
        Ok(())
    }

    /// Gives a file the contents back that a commit has overwritten in place. `read` calls its
    /// argument with the old bytes of an extent, without its holes.
    pub(crate) fn restore_contents(
        &mut self,
        node: NodeId,
        changed: &ContentChange,
        former: &Former,
        mut next: impl FnMut() -> Result<Option<Run>>,
    ) -> Result<()> {
        let is_cut = changed.keep.is_some_and(|keep| keep < former.length);
        if changed.length != former.length || is_cut {
            self.set_length(node, former.length)?;
        }
        for extent in &former.extents {
            self.allocate(node, PUNCH_HOLE_KEEP_SIZE, extent.offset, extent.length)?;
        }
        while let Some(run) = next()? {
            self.write(node, run.offset, &run.bytes, false)?;
        }
        Ok(())
    }
}
