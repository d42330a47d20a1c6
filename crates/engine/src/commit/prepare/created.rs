//! Makes new objects in the staging directory, puts them in place and sets
//! their attributes.

use std::collections::BTreeMap;

use atomdir_disk::{Attributes, Disk, Errno, Identity, Kind, NewNode, Times};
use atomdir_format::record::AttributesChange;

use super::contents::give_length;
use super::{Outcome, Preparation, StagedObject, attributes_change, failed};
use crate::base::rights::with_rights;
use crate::ids::NodeId;
use crate::names;
use crate::view::dress::dress;
use crate::view::node::{Dress, OwnBody, Staged, StagedParent, Touched};
use crate::write_set::{Created, CreatedPlace};

impl<D: Disk> Preparation<'_, '_, D> {
    /// Moves objects out of new directories where they no longer belong. An
    /// earlier attempt to commit may have put them there.
    pub(super) fn displace(&mut self, changed: &[NodeId]) -> Outcome<()> {
        for &id in changed {
            let staged = self
                .view
                .staged(id)
                .map_err(|errno| failed("stage", b"", errno))?;
            let Some(Staged {
                parent: StagedParent::Node(directory),
                name,
                ..
            }) = staged
            else {
                continue;
            };
            if !self.has_node(directory) && !self.has_node(id) {
                // Neither is committed, so it may stay there.
                continue;
            }
            let delta = self.delta(directory);
            let wanted = delta.and_then(|delta| delta.entries.get(&name)?.now);
            let wanted = wanted.filter(|_| self.has_entry(directory, &name));
            // What is in a directory that others have made, too, gets a name in theirs.
            let wanted = wanted.filter(|_| self.equal_of(directory).is_none());
            if wanted != Some(id) {
                let slot = names::slot(self.view.new_slot());
                let moved = self.view.move_staged(id, StagedParent::Slots, slot);
                moved
                    .and_then(|()| self.view.outdate(directory))
                    .map_err(|errno| failed("stage", &self.path(id), errno))?;
            }
        }
        Ok(())
    }

    /// Makes the staged object of a new node, without its attributes.
    pub(super) fn create(&mut self, id: NodeId) -> Outcome<()> {
        let made = self.make_staged(id);
        let identity = made.map_err(|errno| failed("stage", &self.path(id), errno))?;
        self.register(id, identity);
        Ok(())
    }

    pub(super) fn register(&mut self, id: NodeId, identity: Identity) {
        let kind = self.view.node(id).map_or(Kind::File, |node| node.kind);
        self.created.insert(id, self.staged.len());
        self.staged.push(StagedObject {
            node: id,
            identity,
            kind,
            modified: None,
        });
    }

    fn make_staged(&mut self, id: NodeId) -> Result<Identity, Errno> {
        let own = self.view.node(id)?.own().ok_or(Errno::STALE)?;
        if own.dress == Dress::Complete {
            let identity = own.staged.as_ref().and_then(|staged| staged.identity);
            return identity.ok_or(Errno::STALE);
        }
        let number = own.attributes.device_number;
        let what = match (&own.body, own.attributes.kind) {
            (OwnBody::File(_), _) => return self.complete_file(id),
            (OwnBody::Symlink(target), _) => NewNode::Symlink(target.clone()),
            (OwnBody::Directory(_), _) => NewNode::Directory,
            (_, kind) => NewNode::special(kind, number).ok_or(Errno::INVAL)?,
        };
        if let Some(identity) = own.staged.as_ref().and_then(|staged| staged.identity) {
            return Ok(identity);
        }
        let stage = self.view.stage()?;
        let name = names::slot(self.view.new_slot());
        self.view.core.disk.make(&stage, &name, &what, 0o700)?;
        let identity = self.view.core.disk.stat_at(&stage, &name)?.identity;
        let staged = Staged::in_slot(name, Some(identity));
        self.view.set_staged(id, staged)?;
        Ok(identity)
    }

    /// Completes a regular file that shows nothing of the base.
    fn complete_file(&mut self, id: NodeId) -> Result<Identity, Errno> {
        let file = self.view.staged_file(id)?;
        let length = self.view.length(id)?;
        let stat = give_length(&self.view.core.disk, &file, length)?;
        let staged = self.view.staged(id)?.ok_or(Errno::STALE)?;
        let staged = Staged {
            identity: Some(stat.identity),
            ..staged
        };
        self.view.set_staged(id, staged)?;
        Ok(stat.identity)
    }

    /// Puts new objects into the staged directories of new directories, so
    /// that a whole new tree lands by one rename.
    pub(super) fn fill_new_directory(&mut self, id: NodeId) -> Outcome<()> {
        if !self.is_new(id) || !self.has_node(id) {
            return Ok(());
        }
        let entries = self.entries_now(id);
        for (name, child) in entries {
            let staged = self.view.staged(child).ok().flatten();
            let is_free = staged.is_some_and(|staged| staged.parent == StagedParent::Slots);
            if self.is_new(child) && is_free {
                let moved = self.view.move_staged(child, StagedParent::Node(id), name);
                moved.map_err(|errno| failed("stage", &self.path(child), errno))?;
                // The move has changed the directory's time.
                self.view
                    .outdate(id)
                    .map_err(|errno| failed("stage", &self.path(id), errno))?;
            }
        }
        Ok(())
    }

    /// Notes the places and sets the attributes of everything new. The times of
    /// a directory come after everything in it.
    pub(super) fn finish_created(&mut self) -> Outcome<()> {
        let mut depths: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let staged = std::mem::take(&mut self.staged);
        self.meter.expect(staged.len());
        for (index, object) in staged.into_iter().enumerate() {
            self.meter.step();
            let id = object.node;
            let finished = self.finish_one(object);
            let created =
                finished.map_err(|errno| failed("set the attributes of", &self.path(id), errno))?;
            self.set.created.push(created);
            if object.kind == Kind::Directory {
                let depth = self.tree_path(id).depth();
                depths.entry(depth).or_default().push(index);
            }
        }
        for index in depths.into_values().rev().flatten() {
            let id = self.set.created[index].node;
            let finished = self.set_directory_times(id);
            finished.map_err(|errno| failed("set the times of", &self.path(id), errno))?;
        }
        Ok(())
    }

    fn finish_one(&mut self, object: StagedObject) -> Result<Created, Errno> {
        let StagedObject {
            node: id,
            identity,
            kind,
            modified,
        } = object;
        let staged = self.view.staged(id)?.ok_or(Errno::STALE)?;
        let place = match staged.parent {
            StagedParent::Slots => {
                CreatedPlace::Slot(names::slot_number(&staged.name).ok_or(Errno::STALE)?)
            }
            StagedParent::Node(directory) => {
                let directory = *self.created.get(&directory).ok_or(Errno::STALE)?;
                CreatedPlace::Entry {
                    directory,
                    name: staged.name.clone(),
                }
            }
        };
        let own = self.view.node(id)?.own().ok_or(Errno::STALE)?;
        let (wanted, present) = (own.attributes, own.dress);
        let mut attributes = AttributesChange {
            modified,
            ..AttributesChange::default()
        };
        if !matches!(kind, Kind::File | Kind::Directory) {
            attributes = attributes_change(&wanted, Touched::ALL);
            if kind == Kind::Symlink {
                attributes.mode = None;
            }
        }
        if kind == Kind::Directory
            && wanted.mode & 0o300 != 0o300
            && !self.view.core.options.privileges.all
        {
            // Apply must open the directory up to put it in place.
            attributes.mode = Some(wanted.mode);
        }
        let created = Created {
            node: id,
            identity,
            kind,
            place,
            attributes,
        };
        if present == Dress::Complete {
            return Ok(created);
        }
        let xattrs = self.view.all_xattrs(id)?;
        let wanted = Attributes {
            mode: wanted.mode,
            owner: wanted.owner,
            times: Times {
                accessed: wanted.accessed,
                modified: wanted.modified,
            },
        };
        if present == Dress::Outdated {
            self.remove_xattrs(id)?;
        }
        if kind == Kind::File {
            let file = self.view.staged_file(id)?;
            dress(&self.view.core, &file, kind, wanted, &xattrs)?;
            return Ok(created);
        }
        let handle = self.view.open_staged(&staged)?;
        dress(&self.view.core, &handle, kind, wanted, &xattrs)?;
        Ok(created)
    }

    /// Removes the extended attributes that the view has removed from an object
    /// it has taken over.
    fn remove_xattrs(&mut self, id: NodeId) -> Result<(), Errno> {
        let own = self.view.node(id)?.own().ok_or(Errno::STALE)?;
        let staged = own.staged.clone().ok_or(Errno::STALE)?;
        let removed = own.xattrs.iter().filter(|(_, value)| value.is_none());
        let removed: Vec<Vec<u8>> = removed.map(|(name, _)| name.clone()).collect();
        let object = self.view.open_staged(&staged)?;
        let disk = &self.view.core.disk;
        for name in removed {
            match with_rights(disk, &[&object], || disk.remove_xattr(&object, &name)) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn set_directory_times(&mut self, id: NodeId) -> Result<(), Errno> {
        let own = self.view.node(id)?.own();
        if own.is_some_and(|own| own.dress == Dress::Complete) {
            return Ok(());
        }
        let wanted = self.view.attributes(id)?;
        let handle = self.view.staged_parent(StagedParent::Node(id))?;
        let times = Times {
            accessed: wanted.accessed,
            modified: wanted.modified,
        };
        self.view.core.disk.set_times(&handle, times)
    }
}
