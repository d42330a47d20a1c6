//! Keeps an ordinary user's overlay from changing what it could not change right.
//!
//! Without privileges overlayfs has no index: of a file that has several names it
//! would make a copy for the one, and the others would go on to show the old
//! contents. Nor does it copy what stands where its own notes do. As it copies
//! extended attributes first, one that the lower layer lists and that an ordinary
//! user may not read makes the copy fail, with ENODATA. Programs are not shown the
//! name: overlayfs hides all of `trusted.` from them.
//!
//! A character device of number 0 of the base's own would pass for overlayfs's note that
//! a name is gone: programs would not see it, and remove it with its directory. Looking
//! it up fails instead.
//!
//! Mount points are barred likewise, for root too, whom reading the attribute tells
//! why: EROFS.

use atomdir_disk::{Disk, Errno, Kind, Result};

use super::Marking;
use crate::ids::NodeId;
use crate::view::{NodeAttributes, View};

const BAR: &[u8] = b"trusted.atomdir.unchangeable";

impl<D: Disk> View<D> {
    /// Of an object of the lower layer.
    pub(crate) fn lower_xattr_names(&mut self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        let mut names = self.xattr_names(id)?;
        if self.is_mount_point(id)? {
            names.push(BAR.to_vec());
            return Ok(names);
        }
        let marking = Marking::of(&self.core.options.privileges);
        if marking == Marking::User && self.node(id)?.kind != Kind::Directory {
            let is_marked = names.iter().any(|name| marking.is_mark(name));
            if is_marked || self.attributes(id)?.links > 1 {
                names.push(BAR.to_vec());
            }
        }
        Ok(names)
    }

    pub(in crate::view) fn refuse_whiteout(&self, attributes: &NodeAttributes) -> Result<()> {
        let NodeAttributes {
            kind,
            device_number,
            ..
        } = attributes;
        let is_whiteout = *kind == Kind::CharacterDevice && *device_number == 0;
        if self.lower && is_whiteout {
            return Err(Errno::OPNOTSUPP);
        }
        Ok(())
    }

    pub(crate) fn lower_xattr(&mut self, id: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        if name == BAR && self.is_mount_point(id)? {
            return Err(Errno::ROFS);
        }
        self.xattr(id, name)
    }

    fn is_mount_point(&self, id: NodeId) -> Result<bool> {
        let base = &self.node(id)?.base;
        Ok(base.as_ref().is_some_and(|base| base.is_mount_point()))
    }
}
