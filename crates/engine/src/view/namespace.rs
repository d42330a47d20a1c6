//! Operations on names: create, link, unlink, rename.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Owner, RenameMode, Result};

use super::View;
use super::node::{Contents, DirectoryDelta, Dress, Own, OwnBody, Touched};
use super::tree::parse_name;
use super::types::{Caller, Entry, NewNode, NodeAttributes};
use crate::base::Base;
use crate::base::acl::{self, AccessControlList};
use crate::database;
use crate::ids::NodeId;

const SET_GROUP_ID: u32 = 0o2000;
/// The lowest limit of the file systems in use: ext4's.
pub(crate) const LINKS_MAX: u32 = 65_000;

impl<D: Disk> View<D> {
    pub fn create(
        &mut self,
        parent: NodeId,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<Entry> {
        let name = self.free_name(parent, name)?;
        let is_directory = what == NewNode::Directory;
        let id = self.new_node(parent, Some(&name), what, mode, umask, caller)?;
        self.set_entry(parent, &name, Some(id))?;
        if is_directory {
            self.own_mut(parent)?.attributes.count_subdirectory(true);
        }
        self.entry(id)
    }

    /// Creates a file without a name (O_TMPFILE); `link` may give it one.
    pub fn create_unnamed(
        &mut self,
        parent: NodeId,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<Entry> {
        self.live_directory(parent)?;
        self.refuse_mount_point(parent, Errno::ROFS)?;
        let id = self.new_node(parent, None, NewNode::File, mode, umask, caller)?;
        self.own_mut(id)?.attributes.links = 0;
        self.entry(id)
    }

    /// Checks that a name may be created in a directory.
    fn free_name(&mut self, parent: NodeId, name: &[u8]) -> Result<Name> {
        let name = parse_name(name)?;
        if self.child(parent, &name)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.refuse_hidden(parent, &name)?;
        self.refuse_mount_point(parent, Errno::ROFS)?;
        Ok(name)
    }

    /// Fails for the control directory's name.
    pub(super) fn refuse_hidden(&self, parent: NodeId, name: &Name) -> Result<()> {
        if parent == NodeId::ROOT && self.core.hidden.as_ref() == Some(name) {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn new_node(
        &mut self,
        parent: NodeId,
        name: Option<&Name>,
        what: NewNode,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<NodeId> {
        let above = self.attributes(parent)?;
        let kind = what.kind();
        let mut mode = mode & 0o7777;
        let mut group = caller.group;
        if above.mode & SET_GROUP_ID != 0 {
            group = above.owner.group;
            if kind == Kind::Directory {
                mode |= SET_GROUP_ID;
            }
        }
        let mut own = Own {
            attributes: self.new_attributes(
                kind,
                Owner {
                    user: caller.user,
                    group,
                },
            ),
            touched: Touched::ALL,
            stamp: None,
            xattrs: Default::default(),
            body: OwnBody::Special,
            staged: None,
            dress: Dress::Bare,
        };
        own.attributes.mode = self.inherit_acl(parent, kind, mode, umask, &mut own)?;
        match what {
            NewNode::File => own.body = OwnBody::File(Contents::default()),
            NewNode::Directory => own.body = OwnBody::Directory(DirectoryDelta::default()),
            NewNode::Symlink(target) => {
                own.attributes.length = target.len() as u64;
                own.body = OwnBody::Symlink(target);
            }
            NewNode::CharacterDevice(number) | NewNode::BlockDevice(number) => {
                own.attributes.device_number = number;
            }
            NewNode::Fifo | NewNode::Socket => {}
        }
        let id = self.insert(kind, None, name.map(|name| (parent, name.clone())));
        self.node_mut(id)?.own = Some(Arc::new(own));
        self.note_changed(id);
        Ok(id)
    }

    fn new_attributes(&self, kind: Kind, owner: Owner) -> NodeAttributes {
        let now = self.now();
        NodeAttributes {
            inode: self.core.inode_numbers.new_object(),
            kind,
            mode: 0,
            links: if kind == Kind::Directory { 2 } else { 1 },
            owner,
            device_number: 0,
            length: 0,
            blocks: 0,
            accessed: now,
            modified: now,
            changed: now,
        }
    }

    /// The mode of a new object under its directory's default ACL, which replaces the
    /// umask, or else under the umask.
    fn inherit_acl(
        &mut self,
        parent: NodeId,
        kind: Kind,
        mode: u32,
        umask: u32,
        own: &mut Own,
    ) -> Result<u32> {
        if kind == Kind::Symlink {
            return Ok(0o777);
        }
        let Some(default) = self.default_acl(parent)? else {
            return Ok(mode & !umask);
        };
        let list = AccessControlList::decode(&default)?;
        let (access, mode) = list.inherit(mode);
        if !access.is_minimal() {
            own.xattrs
                .insert(acl::ACCESS.to_vec(), Some(access.encode()));
        }
        if kind == Kind::Directory {
            own.xattrs
                .insert(acl::DEFAULT.to_vec(), Some(default.to_vec()));
        }
        Ok(mode)
    }

    pub fn link(&mut self, id: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry> {
        if self.node(id)?.kind == Kind::Directory {
            return Err(Errno::PERM);
        }
        let name = self.free_name(parent, name)?;
        let now = self.now();
        let own = self.own_mut(id)?;
        if own.attributes.links >= LINKS_MAX {
            return Err(Errno::MLINK);
        }
        let unnamed = own.attributes.links == 0;
        own.attributes.links += 1;
        own.attributes.changed = now;
        self.set_entry(parent, &name, Some(id))?;
        if unnamed {
            self.reparent(id, parent, &name)?;
        }
        self.entry(id)
    }

    pub fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.unplace_before_removal()?;
        let name = parse_name(name)?;
        let (id, found) = self.find_child(parent, &name)?.ok_or(Errno::NOENT)?;
        if self.node(id)?.kind == Kind::Directory {
            return Err(Errno::ISDIR);
        }
        self.refuse_mount_point(id, Errno::BUSY)?;
        self.refuse_part_locked(parent, (&name, id))?;
        if let Some(found) = found {
            self.own_as_found(id, &found)?;
        }
        self.drop_link(id)?;
        self.set_entry(parent, &name, None)?;
        self.drop_if_unneeded(id);
        Ok(())
    }

    /// A database removes the files beside it when its last user closes it, and in a view it does not see
    /// the locks of the users outside.
    fn refuse_part_locked(&mut self, parent: NodeId, (name, id): (&Name, NodeId)) -> Result<()> {
        let Some(file) = self.old_file(id)? else {
            return Ok(());
        };
        let mut protecting = vec![file];
        for name in database::locked_for(name) {
            if let Some(id) = self.child(parent, &name)? {
                protecting.extend(self.old_file(id)?);
            }
        }
        let mut locks = protecting.iter().map(|file| self.core.part_lock(file));
        match locks.any(|lock| lock.is_some()) {
            true => Err(Errno::BUSY),
            false => Ok(()),
        }
    }

    fn old_file(&self, id: NodeId) -> Result<Option<Arc<Base>>> {
        let node = self.node(id)?;
        Ok(node.base.clone().filter(|base| base.kind == Kind::File))
    }

    pub fn remove_directory(&mut self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.unplace_before_removal()?;
        let name = parse_name(name)?;
        let id = self.child(parent, &name)?.ok_or(Errno::NOENT)?;
        if self.node(id)?.kind != Kind::Directory {
            return Err(Errno::NOTDIR);
        }
        self.refuse_mount_point(id, Errno::BUSY)?;
        if !self.is_empty_directory(id)? {
            return Err(Errno::NOTEMPTY);
        }
        self.drop_directory(id, parent)?;
        self.set_entry(parent, &name, None)?;
        self.drop_if_unneeded(id);
        Ok(())
    }

    /// Removes one name of a file or other object that is not a directory.
    pub(super) fn drop_link(&mut self, id: NodeId) -> Result<()> {
        let now = self.now();
        let own = self.own_mut(id)?;
        own.attributes.links = own.attributes.links.saturating_sub(1);
        own.attributes.changed = now;
        if own.attributes.links == 0 {
            self.set_dying(id)?;
        }
        Ok(())
    }

    /// Removes the name of an empty directory.
    fn drop_directory(&mut self, id: NodeId, parent: NodeId) -> Result<()> {
        self.delta_mut(id)?.removed = true;
        self.own_mut(id)?.attributes.links = 0;
        self.own_mut(parent)?.attributes.count_subdirectory(false);
        self.set_dying(id)
    }

    pub(super) fn set_dying(&mut self, id: NodeId) -> Result<()> {
        if let Some(base) = self.node(id)?.base.clone() {
            let noted = base.clone();
            self.nodes
                .note_unlogged(|unlogged| unlogged.dying.push(noted));
            self.nodes.dying.insert(base.serial, base);
        }
        Ok(())
    }

    pub fn rename(
        &mut self,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.unplace_before_removal()?;
        let from = (parent, parse_name(name)?);
        let to = (new_parent, parse_name(new_name)?);
        let source = self.child(from.0, &from.1)?.ok_or(Errno::NOENT)?;
        let target = self.child(to.0, &to.1)?;
        self.refuse_hidden(to.0, &to.1)?;
        self.refuse_mount_point(to.0, Errno::ROFS)?;
        for moved in [Some(source), target].into_iter().flatten() {
            self.refuse_mount_point(moved, Errno::BUSY)?;
        }
        if self.is_ancestor(source, to.0)? {
            return Err(Errno::INVAL);
        }
        let replaced = target.filter(|target| *target != source);
        if let Some(replaced) = replaced.filter(|_| mode == RenameMode::Replace) {
            self.refuse_part_locked(to.0, (&to.1, replaced))?;
        }
        let now = self.now();
        // These nodes now hold changes, so they stay when other nodes are dropped
        // below.
        self.delta_mut(from.0)?;
        self.delta_mut(to.0)?;
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => Err(Errno::EXIST),
            (RenameMode::Exchange, None) => Err(Errno::NOENT),
            (_, Some(target)) if target == source => Ok(()),
            (RenameMode::Exchange, Some(target)) => {
                if self.is_ancestor(target, from.0)? {
                    return Err(Errno::INVAL);
                }
                // Before any node is dropped: the parent of one may be the other.
                self.own_mut(target)?.attributes.changed = now;
                self.own_mut(source)?.attributes.changed = now;
                self.move_node(target, to.0, (from.0, &from.1))?;
                self.move_node(source, from.0, (to.0, &to.1))
            }
            (_, target) => {
                if let Some(target) = target {
                    self.drop_target(source, target, to.0)?;
                }
                self.own_mut(source)?.attributes.changed = now;
                self.move_node(source, from.0, (to.0, &to.1))?;
                self.set_entry(from.0, &from.1, None)?;
                if let Some(target) = target {
                    self.drop_if_unneeded(target);
                }
                Ok(())
            }
        }
    }

    /// Removes the name of the object that a rename replaces.
    fn drop_target(&mut self, source: NodeId, target: NodeId, parent: NodeId) -> Result<()> {
        let source_is_directory = self.node(source)?.kind == Kind::Directory;
        let target_is_directory = self.node(target)?.kind == Kind::Directory;
        match (source_is_directory, target_is_directory) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (false, false) => self.drop_link(target),
            (true, true) => {
                if !self.is_empty_directory(target)? {
                    return Err(Errno::NOTEMPTY);
                }
                self.drop_directory(target, parent)
            }
        }
    }

    fn move_node(&mut self, id: NodeId, from: NodeId, to: (NodeId, &Name)) -> Result<()> {
        if self.node(id)?.kind == Kind::Directory && from != to.0 {
            self.own_mut(from)?.attributes.count_subdirectory(false);
            self.own_mut(to.0)?.attributes.count_subdirectory(true);
        }
        self.set_entry(to.0, to.1, Some(id))?;
        self.reparent(id, to.0, to.1)
    }
}
