//! Keeps an ordinary user's overlay from making changes that would come out wrong.
//!
//! Without privileges overlayfs has no index. If a file has several names, overlayfs
//! would make a copy for one of them, and the others would still show the old contents.
//! Nor does overlayfs copy extended attributes that have the names of overlay
//! attributes. But it copies extended attributes before contents. So for such files the
//! lower layer lists one more attribute, which an ordinary user may not read: the copy
//! then fails with ENODATA. Programs do not see its name, as overlayfs hides all of
//! `trusted.` from them.
//!
//! overlayfs would take a character device of number 0 in the base for its own sign that
//! a name is gone. Programs would not see it, and would remove it with its directory. So
//! looking it up fails.
//!
//! Mount points are barred in the same way, for root, too: root may read the attribute,
//! but that fails with EROFS.

use atomdir_disk::{Disk, Errno, Kind, Result};

use super::OverlayPrefix;
use crate::ids::NodeId;
use crate::view::{NodeAttributes, View};

const BAR: &[u8] = b"trusted.atomdir.unchangeable";

impl<D: Disk> View<D> {
    /// Lists the extended attributes of an object of the lower layer.
    pub(crate) fn lower_xattr_names(&mut self, id: NodeId) -> Result<Vec<Vec<u8>>> {
        self.show_before_copy(id)?;
        let mut names = self.xattr_names(id)?;
        if self.is_mount_point(id)? {
            names.push(BAR.to_vec());
            return Ok(names);
        }
        let overlay_prefix = OverlayPrefix::of(&self.core.options.privileges);
        if overlay_prefix == OverlayPrefix::User && self.node(id)?.kind != Kind::Directory {
            let has_one = names.iter().any(|name| overlay_prefix.covers(name));
            if has_one || self.attributes(id)?.links > 1 {
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
