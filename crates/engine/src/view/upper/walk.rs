//! Reads the upper layer, directory by directory.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Result, Stat};

use super::over_base::Matched;
use super::overlay_attributes::OverlayAttributes;
use super::{InLayer, LayerDirectory, Reading};
use crate::base::Base;
use crate::base::rights::{open_closed, opened_mode, with_rights};
use crate::base::snapshot::Found;
use crate::ids::NodeId;
use crate::names;
use crate::view::node::{
    Contents, DirectoryDelta, Dress, Own, OwnBody, Staged, StagedParent, Touched,
};
use crate::view::shown::is_taken;

/// An entry of an upper directory.
pub(super) struct Item {
    pub parent: NodeId,
    pub name: Name,
    pub stat: Stat,
}

impl Item {
    fn in_upper(&self) -> InUpper<'_> {
        InUpper {
            directory: self.parent.into(),
            name: &self.name,
            stat: &self.stat,
        }
    }
}

/// An object in an upper directory or in the index.
pub(super) struct InUpper<'a> {
    pub directory: LayerDirectory,
    pub name: &'a Name,
    pub stat: &'a Stat,
}

impl<D: Disk> Reading<'_, D> {
    pub(super) fn walk(&mut self, root: Stat) -> Result<()> {
        let stage = self.new.stage()?;
        let upper = names::fixed(names::UPPER);
        self.open_up(
            &self.new.core.disk.open(&stage, &upper, Access::Path)?,
            &root,
        )?;
        self.note_opened(NodeId::ROOT, root.attributes.mode);
        let handle = self.open(NodeId::ROOT)?;
        let overlay = self.overlay_attributes(&handle)?;
        self.to_visit.push((NodeId::ROOT, root, overlay));
        while let Some((id, stat, overlay)) = self.to_visit.pop() {
            self.visit(id, stat, overlay)?;
        }
        Ok(())
    }

    pub(super) fn overlay_attributes(&self, object: &D::Handle) -> Result<OverlayAttributes> {
        let disk = &self.new.core.disk;
        let read = || disk.xattrs(object);
        let xattrs = match self.opens_up {
            true => with_rights(disk, &[object], read),
            false => read(),
        };
        Ok(OverlayAttributes::of(xattrs?, self.overlay_prefix))
    }

    /// Those of an object that is no directory; `None` if it is gone.
    fn overlay_attributes_at(
        &self,
        above: &D::Handle,
        name: &Name,
    ) -> Result<Option<OverlayAttributes>> {
        let disk = &self.new.core.disk;
        // While programs work in the layer, each look at the name could be at another object.
        if !self.is_live {
            match disk.xattrs_at(above, name) {
                Err(Errno::ACCESS) if self.opens_up => {}
                xattrs => {
                    let overlay = OverlayAttributes::of(xattrs?, self.overlay_prefix);
                    return Ok(Some(overlay));
                }
            }
        }
        match self.unless_gone(disk.open(above, name, Access::Path))? {
            Some(handle) => self.overlay_attributes(&handle).map(Some),
            None => Ok(None),
        }
    }

    /// The names of the overlay attributes of a file in a new directory. Overlayfs has made them
    /// for what programs have set, which matters only once the programs have ended.
    fn overlay_names_of_new(&self, above: &D::Handle, name: &Name) -> Result<Vec<Vec<u8>>> {
        if self.is_live {
            return Ok(Vec::new());
        }
        let mut names = self.new.core.disk.xattr_names_at(above, name)?;
        names.retain(|name| self.overlay_prefix.covers(name));
        Ok(names)
    }

    fn open_up(&self, directory: &D::Handle, stat: &Stat) -> Result<()> {
        let mode = opened_mode(stat.kind, stat.attributes.mode);
        match self.opens_up && mode != stat.attributes.mode {
            true => self.new.core.disk.set_mode(directory, mode),
            false => Ok(()),
        }
    }

    fn note_opened(&mut self, id: NodeId, mode: u32) {
        if self.opens_up && opened_mode(Kind::Directory, mode) != mode {
            self.moves.opened.push((id, mode));
        }
    }

    fn visit(&mut self, id: NodeId, stat: Stat, overlay: OverlayAttributes) -> Result<()> {
        let may_hold_copies = overlay.impure || !self.is_new(id)?;
        let listed = self.open(id).and_then(|handle| {
            let entries = self.new.core.disk.list(&handle)?;
            Ok((handle, entries))
        });
        if let Some((handle, entries)) = self.unless_gone(listed)? {
            for entry in entries {
                let stat = self.new.core.disk.stat_at(&handle, &entry.name);
                let Some(stat) = self.unless_gone(stat)? else {
                    continue;
                };
                let item = Item {
                    parent: id,
                    name: entry.name,
                    stat,
                };
                self.take_entry(&handle, item, may_hold_copies)?;
            }
        }
        match self.finish_later(id, stat, overlay) {
            Some((stat, overlay)) => self.finish(id, &stat, overlay),
            None => Ok(()),
        }
    }

    /// To be called when the directory's entries have been taken.
    pub(super) fn finish(
        &mut self,
        id: NodeId,
        stat: &Stat,
        overlay: OverlayAttributes,
    ) -> Result<()> {
        self.note_lost_attributes(id, &overlay.names);
        if self.is_new(id)? {
            self.moves.strip(id, overlay.names);
        } else {
            self.compare(id, stat, overlay.xattrs)?;
        }
        self.take_directory_times(id, stat)
    }

    fn take_entry(&mut self, above: &D::Handle, item: Item, may_be_copy: bool) -> Result<()> {
        let hidden = self.new.core.hidden.as_ref();
        if item.parent == NodeId::ROOT && hidden == Some(&item.name) {
            return match self.is_over_base() {
                true => {
                    self.leave_control_name(&item);
                    Ok(())
                }
                false => Err(Errno::PERM),
            };
        }
        if is_whiteout(&item.stat) {
            if self.is_over_base() {
                self.expect_something(&item)?;
            }
            self.see(&item, None, false);
            return self.new.set_entry(item.parent, &item.name, None);
        }
        if item.stat.kind == Kind::Directory {
            let opened = self.new.core.disk.open(above, &item.name, Access::Path);
            let Some(handle) = self.unless_gone(opened)? else {
                return Ok(());
            };
            self.open_up(&handle, &item.stat)?;
            let overlay = self.overlay_attributes(&handle)?;
            let lower = self.lower_directory(&item, &overlay)?;
            let is_merged = lower.is_some() && overlay.redirect.is_none();
            self.see(&item, None, is_merged);
            return match lower {
                Some(found) => self.take_lower_directory(item, found, overlay),
                None => self.take_new(above, item, overlay),
            };
        }
        let overlay = if may_be_copy {
            match self.overlay_attributes_at(above, &item.name)? {
                Some(overlay) => overlay,
                None => return Ok(()),
            }
        } else {
            OverlayAttributes {
                names: self.overlay_names_of_new(above, &item.name)?,
                ..OverlayAttributes::default()
            }
        };
        if self.is_over_base() {
            return match self.matched(&item, &overlay)? {
                Matched::CopyOf(found) => self.take_copy(item, found, overlay),
                Matched::New => self.take_new(above, item, overlay),
                Matched::Later => {
                    self.match_later(item, overlay);
                    Ok(())
                }
            };
        }
        let copied_from = self.copied_from(&item, &overlay)?;
        let serial = copied_from.as_ref().map(|found| found.base.serial);
        self.see(&item, serial, false);
        match copied_from {
            Some(found) => self.take_copy(item, found, overlay),
            None if overlay.metacopy => Err(Errno::STALE),
            None => self.take_new(above, item, overlay),
        }
    }

    fn take_lower_directory(
        &mut self,
        item: Item,
        found: Found,
        overlay: OverlayAttributes,
    ) -> Result<()> {
        if self.is_live
            && let Some(id) = self.new.nodes.by_base.get(&found.base.serial)
            && self.moves.layer.contains_key(&(*id).into())
        {
            // A program has moved it since it was read. It stays at its old place here, since a
            // directory cannot be in two.
            return Ok(());
        }
        let id = self.place(&item, found)?;
        self.add_to_layer(&item, id, overlay);
        if self.is_new(item.parent)? {
            // The new directory lands as it is, and the old one is moved there from its place in the
            // base. What overlayfs has put there is only its copy.
            let slot = names::slot(self.new.new_slot());
            self.moves.move_to_slot(item.parent.into(), item.name, slot);
        }
        Ok(())
    }

    /// Gives an object of the base its present name, and returns its node.
    fn place(&mut self, item: &Item, found: Found) -> Result<NodeId> {
        let mut reported = None;
        self.lower.look(&mut |lower| {
            let id = lower.nodes.by_base.get(&found.base.serial);
            let node = id.and_then(|id| lower.node(*id).ok());
            reported = node.and_then(|node| node.reported);
        });
        let base = found.base.clone();
        let id = self.new.node_of_base(found, item.parent, &item.name);
        let shown = self.new.shown_stat(&base)?.attributes;
        let node = self.new.node_mut(id)?;
        node.reported = node
            .reported
            .or(reported)
            .or(Some((shown.mode, shown.owner)));
        self.new.set_entry(item.parent, &item.name, Some(id))?;
        let node = self.new.node(id)?;
        if node.parent != item.parent || node.name.as_ref() != Some(&item.name) {
            self.new.reparent(id, item.parent, &item.name)?;
        }
        Ok(id)
    }

    fn add_to_layer(&mut self, item: &Item, id: NodeId, overlay: OverlayAttributes) {
        let place = InLayer {
            parent: Some(item.parent.into()),
            name: item.name.clone(),
            identity: item.stat.identity,
        };
        self.moves.layer.insert(id.into(), place);
        self.note_opened(id, item.stat.attributes.mode);
        self.to_visit.push((id, item.stat, overlay));
    }

    /// Takes a file, link or special file of the base that was changed or has a new
    /// name.
    pub(super) fn take_copy(
        &mut self,
        item: Item,
        found: Found,
        overlay: OverlayAttributes,
    ) -> Result<()> {
        let is_in_new = self.is_new(item.parent)?;
        let id = self.place(&item, found)?;
        if !self.take_changes(id, item.in_upper(), overlay)? && is_in_new {
            // A directory that lands as it is may hold only new objects.
            self.moves.unlink(item.parent, item.name);
        }
        Ok(())
    }

    /// Takes the changes of a base object, found by one name of its copy. Returns
    /// true if its contents are staged by that name.
    pub(super) fn take_changes(
        &mut self,
        id: NodeId,
        copy: InUpper<'_>,
        overlay: OverlayAttributes,
    ) -> Result<bool> {
        if self.new.staged(id)?.is_some() {
            // This is another name of the same copy. A second comparison would lose the result of
            // the first.
            return Ok(false);
        }
        self.note_lost_attributes(id, &overlay.names);
        let base = self.new.node(id)?.base.clone().ok_or(Errno::STALE)?;
        let has_contents = copy.stat.kind == Kind::File
            && !overlay.metacopy
            && !self.is_unwritten(&base, &copy)?;
        self.compare(id, copy.stat, overlay.xattrs)?;
        if has_contents {
            let staged = self.stage_in_slot(&copy);
            let own = self.new.own_mut(id)?;
            own.attributes.length = copy.stat.length;
            own.attributes.blocks = copy.stat.blocks;
            own.touched.modified = true;
            own.attributes.modified = copy.stat.attributes.times.modified;
            own.body = OwnBody::File(Contents::default());
            own.staged = Some(staged);
            self.moves.strip(id, overlay.names);
            self.moves.dig(id, base);
        }
        Ok(has_contents)
    }

    /// Plans to move the object from the layer to a slot.
    fn stage_in_slot(&mut self, object: &InUpper<'_>) -> Staged {
        let slot = names::slot(self.new.new_slot());
        self.moves
            .move_to_slot(object.directory, object.name.clone(), slot.clone());
        Staged::in_slot(slot, Some(object.stat.identity))
    }

    /// Whether the file's contents are still the base's: overlayfs copies a file
    /// that is opened for writing even if nobody writes. A write changes the
    /// modification time, so the contents are compared only if the time is the old
    /// one.
    fn is_unwritten(&self, base: &Arc<Base>, copy: &InUpper<'_>) -> Result<bool> {
        let before = self.new.shown_stat(base)?;
        let modified = |stat: &Stat| stat.attributes.times.modified;
        if modified(&before) != modified(copy.stat) || before.length != copy.stat.length {
            return Ok(false);
        }
        self.has_contents_of((base, before.length), (copy.directory, copy.name))
    }

    /// Whether a file in the layer has the contents of one of the base.
    pub(super) fn has_contents_of(
        &self,
        (base, length): (&Arc<Base>, u64),
        (directory, name): (impl Into<LayerDirectory>, &Name),
    ) -> Result<bool> {
        let above = self.open(directory)?;
        let disk = &self.new.core.disk;
        let opened = match self.opens_up {
            true => open_closed(disk, &above, name, Access::Read),
            false => disk.open(&above, name, Access::Read),
        };
        let Some(file) = self.unless_gone(opened)? else {
            return Ok(false);
        };
        match self.new.file_has_contents_of(&file, base, length) {
            // An outside writer has removed the original, or closed it.
            Err(errno) if is_taken(errno) => Ok(false),
            compared => compared,
        }
    }

    fn take_new(
        &mut self,
        above: &D::Handle,
        item: Item,
        overlay: OverlayAttributes,
    ) -> Result<()> {
        self.note_name_apart(&item, &overlay)?;
        let is_directory = item.stat.kind == Kind::Directory;
        let has_names = !is_directory && item.stat.links > 1;
        if has_names && let Some(id) = self.with_names.get(&item.stat.identity.inode) {
            return self.take_another_name(*id, item);
        }
        let body = match item.stat.kind {
            Kind::File => OwnBody::File(Contents::default()),
            Kind::Directory => OwnBody::Directory(DirectoryDelta::default()),
            Kind::Symlink => {
                let target = self.new.core.disk.read_link(above, &item.name);
                match self.unless_gone(target)? {
                    Some(target) => OwnBody::Symlink(target),
                    None => return Ok(()),
                }
            }
            _ => OwnBody::Special,
        };
        let staged = if self.is_new(item.parent)? {
            Staged {
                parent: StagedParent::Node(item.parent),
                name: item.name.clone(),
                identity: Some(item.stat.identity),
            }
        } else {
            self.stage_in_slot(&item.in_upper())
        };
        let mut attributes = self.new.core.inode_numbers.attributes_of(&item.stat);
        // Counted as the names are found.
        attributes.links = if is_directory { 2 } else { 1 };
        let own = Own {
            attributes,
            touched: Touched::ALL,
            stamp: None,
            xattrs: Default::default(),
            body,
            staged: Some(staged),
            dress: Dress::Complete,
        };
        let place = (item.parent, item.name.clone());
        let id = self.new.insert(item.stat.kind, None, Some(place));
        if overlay.origin.is_some() {
            self.new.made_of_old.insert(id);
        }
        self.new.node_mut(id)?.own = Some(Arc::new(own));
        self.new.note_changed(id);
        self.new.set_entry(item.parent, &item.name, Some(id))?;
        if has_names {
            self.with_names.insert(item.stat.identity.inode, id);
        }
        if is_directory {
            self.add_to_layer(&item, id, overlay);
        } else {
            self.note_lost_attributes(id, &overlay.names);
            self.moves.strip(id, overlay.names);
        }
        Ok(())
    }

    fn take_another_name(&mut self, id: NodeId, item: Item) -> Result<()> {
        self.new.set_entry(item.parent, &item.name, Some(id))?;
        self.new.own_in_place(id)?.attributes.links += 1;
        let staged = self.new.staged(id)?.ok_or(Errno::STALE)?;
        if staged.parent != StagedParent::Slots || !self.is_new(item.parent)? {
            // A staged object has one name on disk. The commit makes the others.
            self.moves.unlink(item.parent, item.name);
            return Ok(());
        }
        self.moves.drop_slot(&staged.name);
        let placed = Staged {
            parent: StagedParent::Node(item.parent),
            name: item.name,
            ..staged
        };
        self.new.set_staged(id, placed)
    }

    /// Whether entries were added to or removed from a directory of the base.
    fn had_entries(&self, id: NodeId, stat: &Stat) -> Result<bool> {
        let Some(base) = &self.new.node(id)?.base else {
            return Ok(false);
        };
        let before = self.new.shown_stat(base)?.attributes.times.modified;
        let now = stat.attributes.times.modified;
        Ok(now != before && now >= self.began)
    }

    /// Adding names has changed the directory's times: sets those that it has in the
    /// layer.
    fn take_directory_times(&mut self, id: NodeId, stat: &Stat) -> Result<()> {
        let is_new = self.is_new(id)?;
        let is_as_it_was = !self.moves.is_touched(id);
        let had_entries = self.had_entries(id, stat)?;
        if !had_entries && self.new.node(id)?.own().is_none() {
            return Ok(());
        }
        // Copies of old files in their places are no changes of the directory.
        let delta = self.new.delta_mut(id)?;
        delta.is_touched = had_entries || !delta.entries.is_empty();
        let own = self.new.own_in_place(id)?;
        if is_new && is_as_it_was {
            own.dress = Dress::Complete;
        }
        own.attributes.accessed = stat.attributes.times.accessed;
        own.attributes.modified = stat.attributes.times.modified;
        own.attributes.changed = stat.changed;
        Ok(())
    }
}

pub(super) fn is_whiteout(stat: &Stat) -> bool {
    stat.kind == Kind::CharacterDevice && stat.device_number == 0
}
