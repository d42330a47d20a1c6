//! Whether a new object is like the one whose name it took. Then the name has not changed, and is
//! not listed: programs replace a file to put it back, as in `rm t; cp -p saved t`.
//!
//! The commit still replaces the object, so it conflicts with others that have changed it.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Result, Stat};

use super::View;
use super::upper::OverlayPrefix;
use crate::base::snapshot::read_xattrs;
use crate::base::{Base, Xattrs};
use crate::ids::NodeId;
use crate::names;

const CHUNK: usize = 256 << 10;

impl<D: Disk> View<D> {
    /// Contents are compared only if all attributes are the same, the modification time among
    /// them.
    pub(super) fn is_alike(&mut self, id: NodeId, before: &Arc<Base>) -> Result<bool> {
        let node = self.node(id)?;
        // An object of the base that took the name was moved, linked, or brought back.
        if node.base.is_some() || node.kind != before.kind {
            return Ok(false);
        }
        match self.is_same(id, before) {
            // A program removes it at this moment from a layer that is only looked at, or nobody
            // but its owner may open it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::ACCESS) => {
                Ok(false)
            }
            compared => compared,
        }
    }

    fn is_same(&mut self, id: NodeId, before: &Arc<Base>) -> Result<bool> {
        let old = self.snapshot_stat(before)?;
        if !self.has_same_attributes(id, &old)? || !self.has_same_xattrs(id, before)? {
            return Ok(false);
        }
        match before.kind {
            Kind::File => self.has_same_contents(id, before, old.length),
            Kind::Symlink => Ok(self.read_link(id)? == self.snapshot().read_link(before)?),
            _ => Ok(true),
        }
    }

    /// The number of names counts for all but directories; their times follow from their entries.
    fn has_same_attributes(&self, id: NodeId, old: &Stat) -> Result<bool> {
        let now = self.node(id)?.own().ok_or(Errno::STALE)?.attributes;
        let is_file = old.kind == Kind::File;
        Ok(now.mode == old.attributes.mode
            && now.owner == old.attributes.owner
            && now.device_number == old.device_number
            && (old.kind == Kind::Directory || now.links == old.links)
            && (!is_file || now.length == old.length)
            && (!is_file || now.modified == old.attributes.times.modified))
    }

    fn has_same_xattrs(&mut self, id: NodeId, before: &Arc<Base>) -> Result<bool> {
        let sorted = |mut xattrs: Xattrs| {
            xattrs.sort();
            xattrs
        };
        let mut now = match self.is_layer {
            true => self.xattrs_in_layer(id)?,
            false => self.all_xattrs(id)?,
        };
        let overlay = OverlayPrefix::of(&self.core.options.privileges);
        now.retain(|(name, _)| !self.is_layer || !overlay.covers(name));
        Ok(sorted(now) == sorted(self.snapshot().xattrs(before)?))
    }

    fn has_same_contents(&mut self, id: NodeId, before: &Arc<Base>, length: u64) -> Result<bool> {
        if !self.is_layer {
            return self.is_run_as_before(id, before, 0, length);
        }
        let file = self.open_in_layer(id, Access::Read)?;
        self.file_has_contents_of(&file, before, length)
    }

    /// Whether a file of the layer begins with the contents of one of the base.
    pub(super) fn file_has_contents_of(
        &self,
        file: &D::Handle,
        base: &Arc<Base>,
        length: u64,
    ) -> Result<bool> {
        let (mut old, mut new) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0;
        while at < length {
            let count = CHUNK.min((length - at) as usize);
            self.snapshot().read(base, at, &mut old[..count])?;
            let read = self.core.disk.read_at(file, &mut new[..count], at)?;
            if read < count || old[..count] != new[..count] {
                return Ok(false);
            }
            at += count as u64;
        }
        Ok(true)
    }

    fn xattrs_in_layer(&mut self, id: NodeId) -> Result<Xattrs> {
        let object = self.open_in_layer(id, Access::Path)?;
        read_xattrs(&self.core.disk, &object)
    }

    /// The layer has the view's paths.
    fn open_in_layer(&self, id: NodeId, access: Access) -> Result<D::Handle> {
        let disk = &self.core.disk;
        let mut names = Vec::new();
        let mut at = id;
        while let Some(name) = &self.node(at)?.name {
            names.push(name);
            at = self.node(at)?.parent;
        }
        let upper = names::fixed(names::UPPER);
        let mut directory = disk.open(&*self.open_stage()?, &upper, Access::Directory)?;
        let (name, above) = names.split_first().ok_or(Errno::STALE)?;
        for name in above.iter().rev() {
            directory = disk.open(&directory, name, Access::Directory)?;
        }
        disk.open(&directory, name, access)
    }
}
