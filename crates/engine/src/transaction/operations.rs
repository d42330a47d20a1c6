//! What programs do in the view of an open transaction.

use atomdir_disk::{Disk, Errno, RenameMode, Result};

use crate::base::credentials::{Credentials, Permission};
use crate::ids::NodeId;
use crate::transaction::Transaction;
use crate::view::{Caller, Entry, ListEntry, NewNode, NodeAttributes, SetAttributes};

impl<D: Disk> Transaction<D> {
    /// Finds the node at a path of the view, and leaves its lookup count
    /// unchanged.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<NodeId>> {
        self.wait_with(|view| self.reading(view, |view| view.resolve(path)))
    }

    /// Finding the name does not count as reading the attributes that are returned
    /// with it: a caller that uses those calls [`Transaction::attributes`].
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        self.with(|view| {
            // A refresh or a commit may have dropped nodes.
            self.share.update_looked_up(view.nodes.count());
            self.share.require_room_to_look()?;
            let found = view.lookup(parent, name);
            self.share.update_looked_up(view.nodes.count());
            let mut entry = found?;
            entry.attributes = view.lower_attributes(entry.attributes);
            Ok(entry)
        })
    }

    pub fn forget(&self, node: NodeId, count: u64) {
        if let Some(left) = self.view.forget(node, count) {
            self.share.update_looked_up(left);
        }
    }

    pub fn attributes(&self, node: NodeId) -> Result<NodeAttributes> {
        self.with(|view| {
            view.note_attributes(node)?;
            let attributes = view.attributes(node)?;
            Ok(view.lower_attributes(attributes))
        })
    }

    /// Fails with `EACCES` unless the mode and the access control list of the object in the view
    /// give the user this permission. For callers whose operations do not go through the
    /// kernel, which checks it in a mounted view. The attributes are those that the same operation
    /// has got when it found the object: like the kernel, it does not ask for them again. A
    /// serializable transaction does, since it may have got another snapshot in between, and its
    /// read set must say what it has used.
    pub fn require(
        &self,
        node: NodeId,
        attributes: &NodeAttributes,
        credentials: &Credentials,
        permission: Permission,
    ) -> Result<()> {
        self.with(|view| {
            if view.reads.is_some() {
                view.note_access(node)?;
                return view.require(node, credentials, permission);
            }
            view.require_shown(node, attributes, credentials, permission)
        })
    }

    /// Whether the object's attributes may be cached: asking for them again would
    /// not add to the read set.
    pub fn attributes_noted(&self, node: NodeId) -> bool {
        let view = self.view.try_lock();
        view.is_ok_and(|view| {
            view.as_ref()
                .is_some_and(|view| view.attributes_noted(node))
        })
    }

    pub fn set_attributes(
        &self,
        node: NodeId,
        change: SetAttributes,
        _caller: Caller,
    ) -> Result<NodeAttributes> {
        self.with_changes(|view| {
            self.announce(view, |view| view.sets_attributes(node, &change))?;
            let charge = change.length.map(|_| self.charge());
            let _charge = charge.transpose()?;
            view.set_attributes(node, change)
        })
    }

    pub fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        self.with(|view| view.read_link(node))
    }

    pub fn create(
        &self,
        parent: NodeId,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<Entry> {
        self.with_names(|view| {
            // The new object may inherit group, mode and access control list from
            // the directory.
            view.note_attributes(parent)?;
            self.announce(view, |view| view.writes_entry(parent, name))?;
            if let NewNode::Symlink(target) = &what {
                self.share.add_bytes(target.len());
            }
            view.create(parent, name, what, mode, umask, caller)
        })
    }

    pub fn create_unnamed(
        &self,
        parent: NodeId,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<Entry> {
        self.with_names(|view| {
            view.note_attributes(parent)?;
            view.create_unnamed(parent, mode, umask, caller)
        })
    }

    pub fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Result<Entry> {
        self.with_names(|view| {
            self.announce(view, |view| view.writes_entry(parent, name))?;
            view.link(node, parent, name)
        })
    }

    pub fn unlink(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.with_names(|view| {
            self.announce(view, |view| view.removes_entry(parent, name))?;
            view.unlink(parent, name)
        })
    }

    pub fn remove_directory(&self, parent: NodeId, name: &[u8]) -> Result<()> {
        self.with_names(|view| {
            self.announce(view, |view| view.removes_entry(parent, name))?;
            view.remove_directory(parent, name)
        })
    }

    pub fn rename(
        &self,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.with_names(|view| {
            self.announce(view, |view| {
                let mut targets = view.writes_entry(parent, name)?;
                targets.extend(match mode {
                    RenameMode::Replace => view.removes_entry(new_parent, new_name)?,
                    _ => view.writes_entry(new_parent, new_name)?,
                });
                Ok(targets)
            })?;
            view.rename(parent, name, new_parent, new_name, mode)
        })
    }

    /// Fills the buffer from the offset on; reads less only at the end of the
    /// file.
    pub fn read(
        &self,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
        caller: Caller,
    ) -> Result<usize> {
        self.read_contents(node, offset, buffer, caller, !self.is_lower())
    }

    /// For a view that has no mount, so that no program has the file mapped.
    pub fn read_unmapped(
        &self,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
        caller: Caller,
    ) -> Result<usize> {
        self.read_contents(node, offset, buffer, caller, false)
    }

    /// Like [`Transaction::read_unmapped`], for the whole file. Asks for its length once.
    pub fn read_whole_unmapped(&self, node: NodeId, caller: Caller) -> Result<Vec<u8>> {
        let plan = self.with(|view| view.checked_plan(node, 0, usize::MAX, caller))?;
        let mut contents = Vec::new();
        // A file with a large hole may be longer than the memory.
        contents
            .try_reserve_exact(plan.length)
            .map_err(|_| Errno::NOMEM)?;
        contents.resize(plan.length, 0);
        plan.read(&self.core, &mut contents)?;
        Ok(contents)
    }

    fn read_contents(
        &self,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
        caller: Caller,
        may_be_mapped: bool,
    ) -> Result<usize> {
        let plan = self.with(|view| view.checked_plan(node, offset, buffer.len(), caller))?;
        let count = plan.read(&self.core, buffer)?;
        if may_be_mapped && plan.may_have_holes(&self.core)? {
            self.with(|view| {
                view.note_hole_read(node, offset, buffer.len() as u64);
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// The length of a file. Unlike [`Transaction::attributes`], it does not count as reading the
    /// time of the last change.
    pub fn length(&self, node: NodeId) -> Result<u64> {
        self.with(|view| {
            let length = view.file_length(node)?;
            view.note_contents(node, length, (length, 0))?;
            Ok(length)
        })
    }

    /// Returns true if the write cleared set-id bits or capabilities.
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8], kill_set_id: bool) -> Result<bool> {
        let end = offset.saturating_add(data.len() as u64);
        self.with_contents(|view| {
            self.announce(view, |view| view.writes_contents(node, offset, end))?;
            view.write(node, offset, data, kill_set_id)
        })
    }

    /// Prefers that the commit changes the pages that were written in place, even in a short file,
    /// of which programs outside may then see a part of the changes. Otherwise, a short file is
    /// replaced as a whole. Call it after a write.
    pub fn prefer_in_place(&self, node: NodeId) -> Result<()> {
        self.with(|view| view.prefer_in_place(node))
    }

    /// `mode` as in fallocate(2).
    pub fn allocate(&self, node: NodeId, mode: u32, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        self.with_contents(|view| {
            self.announce(view, |view| view.writes_contents(node, offset, end))?;
            view.allocate(node, mode, offset, length)
        })
    }

    /// Finds the next data or the next hole at or after the offset.
    pub fn seek(&self, node: NodeId, offset: u64, hole: bool) -> Result<u64> {
        self.with(|view| {
            let total = view.file_length(node)?;
            view.note_contents(node, total, (offset, u64::MAX))?;
            view.seek(node, offset, hole)
        })
    }

    /// Lists every entry except `.` and `..`.
    pub fn list(&self, node: NodeId) -> Result<Vec<ListEntry>> {
        self.with(|view| view.list(node))
    }

    pub fn xattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.with(|view| {
            if view.lower && self.overlay_prefix().covers(name) {
                // At each first look overlayfs asks for its own attributes, and no
                // program does.
                return Err(Errno::NODATA);
            }
            view.note_attributes(node)?;
            match view.lower {
                true => view.lower_xattr(node, name),
                false => view.xattr(node, name),
            }
        })
    }

    pub fn xattr_names(&self, node: NodeId) -> Result<Vec<Vec<u8>>> {
        self.with(|view| {
            view.note_attributes(node)?;
            match view.lower {
                true => view.lower_xattr_names(node),
                false => view.xattr_names(node),
            }
        })
    }

    /// In the lower layer of an overlay: fails if overlayfs must not copy the object.
    pub fn before_copy_up(&self, node: NodeId) -> Result<()> {
        self.with(|view| view.before_copy_up(node))
    }

    /// `flags` as in setxattr(2).
    pub fn set_xattr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()> {
        self.with_changes(|view| {
            self.announce(view, |view| view.writes_attributes(node))?;
            self.share.add_bytes(name.len() + value.len());
            view.set_xattr(node, name, value, flags, kill_set_group_id)
        })
    }

    pub fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Result<()> {
        self.with_changes(|view| {
            self.announce(view, |view| view.writes_attributes(node))?;
            view.remove_xattr(node, name)
        })
    }
}
