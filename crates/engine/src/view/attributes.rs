//! Reading and setting attributes.

use atomdir_disk::{Disk, Errno, Kind, Result, Stat};

use super::View;
use super::node::OwnBody;
use super::types::{Caller, NodeAttributes, SetAttributes, SetTime};
use crate::base::acl::{self, AccessControlList};
use crate::base::privileges::{CAPABILITY, without_set_id};
use crate::ids::NodeId;

impl<D: Disk> View<D> {
    pub fn attributes(&mut self, id: NodeId) -> Result<NodeAttributes> {
        let node = self.node(id)?;
        let Some(own) = node.own() else {
            let base = node.base.as_ref().ok_or(Errno::STALE)?;
            let stat = self.show_stat(base)?;
            let attributes = self.report(id, &stat)?;
            return Ok(self.with_stored(id, attributes));
        };
        let mut attributes = own.attributes;
        if let OwnBody::File(contents) = &own.body
            && own.staged.is_some()
        {
            let below = if contents.base_limit > 0 {
                attributes.blocks
            } else {
                0
            };
            let file = self.staged_file(id)?;
            attributes.blocks = below.max(self.core.disk.stat(&file)?.blocks);
        }
        Ok(self.with_stored(id, attributes))
    }

    /// The length of a file that the transaction has made or changed. Looks at no file.
    pub(crate) fn length(&self, id: NodeId) -> Result<u64> {
        let own = self.node(id)?.own().ok_or(Errno::STALE)?;
        Ok(own.attributes.length)
    }

    /// Programs take a file without blocks for one hole, though a program may
    /// have stored to it through a mapping (see [`super::sparse`]). Such a file
    /// gets blocks here.
    fn with_stored(&self, id: NodeId, attributes: NodeAttributes) -> NodeAttributes {
        let blocks_min = if self.holes_read.is_any(id) { 8 } else { 0 };
        NodeAttributes {
            blocks: attributes.blocks.max(blocks_min),
            ..attributes
        }
    }

    /// Returns the attributes of a node without changes, from those in the
    /// snapshot.
    pub(super) fn report(&mut self, id: NodeId, stat: &Stat) -> Result<NodeAttributes> {
        let shown = self.note_shown(id, stat)?;
        let attributes = self.core.inode_numbers.attributes_of(&shown);
        let reported = (attributes.mode, attributes.owner);
        self.node_mut(id)?.reported.get_or_insert(reported);
        Ok(attributes)
    }

    pub fn read_link(&mut self, id: NodeId) -> Result<Vec<u8>> {
        let node = self.node(id)?;
        match (node.own().map(|own| &own.body), &node.base) {
            (Some(OwnBody::Symlink(target)), _) => Ok(target.clone()),
            (_, Some(base)) if node.kind == Kind::Symlink => self.snapshot().read_link(base),
            _ => Err(Errno::INVAL),
        }
    }

    /// The kernel checks permissions against attributes that it has cached. If
    /// an outside writer has withdrawn the permission since, a service with more
    /// rights than the caller must not read the file for them.
    pub fn check_readable(&self, id: NodeId, caller: Caller) -> Result<()> {
        if caller.user == 0 || !self.core.options.privileges.all {
            return Ok(());
        }
        let node = self.node(id)?;
        let (Some(base), Some(reported)) = (&node.base, node.reported) else {
            return Ok(());
        };
        let Ok(present) = self.core.stat_now(base) else {
            return Ok(());
        };
        let is_same = reported == (present.attributes.mode, present.attributes.owner);
        let is_ours = base
            .state()
            .changed()
            .is_some_and(|changed| changed.attributes > Some(self.at_of(base)));
        if is_same || is_ours {
            Ok(())
        } else {
            Err(Errno::ACCESS)
        }
    }

    pub fn set_attributes(&mut self, id: NodeId, change: SetAttributes) -> Result<NodeAttributes> {
        if let Some(length) = change.length {
            self.set_length(id, length)?;
        }
        let changes_owner = change.user.is_some() || change.group.is_some();
        if change.kill_set_id || changes_owner {
            self.kill_set_id(id)?;
        }
        let now = self.now();
        let own = self.own_mut(id)?;
        let attributes = &mut own.attributes;
        attributes.changed = now;
        if changes_owner {
            attributes.owner.user = change.user.unwrap_or(attributes.owner.user);
            attributes.owner.group = change.group.unwrap_or(attributes.owner.group);
            own.touched.owner = true;
        }
        let moment = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        if let Some(time) = change.accessed {
            attributes.accessed = moment(time);
            own.touched.accessed = true;
        }
        if let Some(time) = change.modified {
            attributes.modified = moment(time);
            own.touched.modified = true;
        }
        if let Some(mode) = change.mode {
            self.set_mode(id, mode & 0o7777)?;
        }
        self.attributes(id)
    }

    fn set_mode(&mut self, id: NodeId, mode: u32) -> Result<()> {
        let acl = match self.xattr(id, acl::ACCESS) {
            Ok(bytes) => Some(bytes),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(error) => return Err(error),
        };
        if let Some(bytes) = acl {
            let mut list = AccessControlList::decode(&bytes)?;
            list.set_mode_bits(mode);
            self.own_mut(id)?
                .xattrs
                .insert(acl::ACCESS.to_vec(), Some(list.encode()));
        }
        let own = self.own_mut(id)?;
        own.attributes.mode = mode;
        own.touched.mode = true;
        Ok(())
    }

    /// Clears the privileges of a file that is written or given away. Returns
    /// true if it had any.
    pub(super) fn kill_set_id(&mut self, id: NodeId) -> Result<bool> {
        let mut is_killed = false;
        if self.node(id)?.kind == Kind::Directory {
            return Ok(is_killed);
        }
        if self.node(id)?.kind == Kind::File {
            match self.xattr(id, CAPABILITY) {
                Ok(_) => {
                    let xattrs = &mut self.own_mut(id)?.xattrs;
                    xattrs.insert(CAPABILITY.to_vec(), None);
                    is_killed = true;
                }
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error),
            }
        }
        let own = self.own_mut(id)?;
        let left = without_set_id(own.attributes.mode);
        if own.attributes.mode != left {
            own.attributes.mode = left;
            own.touched.mode = true;
            is_killed = true;
        }
        Ok(is_killed)
    }
}
