//! The transaction's staging directory, which holds its new objects on disk.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Result};

use super::View;
use super::node::{Dress, Own, Staged, StagedParent};
use super::xattrs::set_all;
use crate::base::handles::HandleKey;
use crate::base::rights::{open_closed, with_rights};
use crate::ids::NodeId;
use crate::names;

pub(super) const PRIVATE_FILE: u32 = 0o600;

/// With fewer files, the flush ends before another thread has found them. And files of
/// small commits, which the log carries, should not be written at all.
const WRITTEN_AHEAD_MIN: usize = 256;

impl<D: Disk> View<D> {
    /// Returns the transaction's directory below `stage`, and makes it if it is missing.
    pub(crate) fn stage(&mut self) -> Result<Arc<D::Handle>> {
        if !self.has_stage {
            // Another user's directory stays theirs.
            let may_take_over = self.restricted_to.is_none()
                && self.log.is_none()
                && !self.lower
                && self.numbers.last_slot() == 0;
            let last_slot = self.core.make_stage(self.stage_of, may_take_over)?;
            self.numbers.skip_slots(last_slot);
            self.has_stage = true;
        }
        self.open_stage()
    }

    /// Like [`View::stage`], for a directory that others find by the transaction's id.
    pub(super) fn own_stage(&mut self) -> Result<Arc<D::Handle>> {
        self.core.own_stage(self.stage_of)?;
        self.has_stage = true;
        self.open_stage()
    }

    /// Returns the directory, if it was made. Many transactions can be open, so its
    /// handle is cached only for a while.
    pub(super) fn open_stage(&self) -> Result<Arc<D::Handle>> {
        if !self.has_stage {
            return Err(Errno::STALE);
        }
        self.core.keep_stage_open(self.stage_of)
    }

    pub(crate) fn has_stage(&self) -> bool {
        self.has_stage
    }

    /// Call this when a commit is near. The disk then writes staged objects while the
    /// commit is being prepared, so that its flush has less to wait for.
    pub(crate) fn write_ahead(&mut self) {
        let has_enough = self.changed_nodes().nth(WRITTEN_AHEAD_MIN - 1).is_some();
        // Taking over an upper layer has already started this.
        if has_enough && !self.is_written_ahead {
            self.write_ahead_what_is_found();
        }
    }

    /// Like [`write_ahead`](Self::write_ahead), for an upper layer that is not yet read.
    pub(super) fn write_ahead_what_is_found(&mut self) {
        if let Ok(stage) = self.open_stage() {
            self.is_written_ahead = true;
            self.core.disk.start_writing(&stage, WRITTEN_AHEAD_MIN);
        }
    }

    pub(crate) fn new_slot(&mut self) -> u64 {
        self.numbers.new_slot()
    }

    pub(crate) fn last_slot(&self) -> u64 {
        self.numbers.last_slot()
    }

    pub(crate) fn staged_parent(&mut self, parent: StagedParent) -> Result<Arc<D::Handle>> {
        let StagedParent::Node(id) = parent else {
            return self.stage();
        };
        let staged = self.staged(id)?.ok_or(Errno::STALE)?;
        let identity = staged.identity.ok_or(Errno::STALE)?;
        let key = HandleKey::Directory(identity);
        if let Some(handle) = self.core.handles.get(key) {
            return Ok(handle);
        }
        let above = self.staged_parent(staged.parent)?;
        let handle = open_closed(&self.core.disk, &above, &staged.name, Access::Directory)?;
        let handle = Arc::new(handle);
        let handles = &self.core.handles;
        handles.insert_staged(identity, handle.clone(), self.id);
        Ok(handle)
    }

    pub(crate) fn staged(&self, id: NodeId) -> Result<Option<Staged>> {
        Ok(self.node(id)?.own().and_then(|own| own.staged.clone()))
    }

    /// Opens a staged object for its attributes only.
    pub(crate) fn open_staged(&mut self, staged: &Staged) -> Result<D::Handle> {
        let parent = self.staged_parent(staged.parent)?;
        open_closed(&self.core.disk, &parent, &staged.name, Access::Path)
    }

    pub(crate) fn set_staged(&mut self, id: NodeId, staged: Staged) -> Result<()> {
        self.own_in_place(id)?.staged = Some(staged);
        Ok(())
    }

    /// Notes that the node has changed and its staged object has not.
    pub(crate) fn outdate(&mut self, id: NodeId) -> Result<()> {
        self.own_mut(id).map(|_| ())
    }

    /// Gives every staged object a slot. If states of a view share objects, none may lie
    /// in another, since that one could be committed without it.
    pub(crate) fn unplace_staged(&mut self) -> Result<()> {
        let placed: Vec<(NodeId, NodeId)> = self
            .changed_nodes()
            .filter_map(|id| match self.staged(id).ok()??.parent {
                StagedParent::Node(directory) => Some((id, directory)),
                StagedParent::Slots => None,
            })
            .collect();
        for (id, directory) in placed {
            let slot = names::slot(self.new_slot());
            self.move_staged(id, StagedParent::Slots, slot)?;
            self.outdate(directory)?;
        }
        self.has_placed = false;
        Ok(())
    }

    /// Call this before an object loses a name or gets another one. A removed directory must not
    /// take other objects' staged files with it, and a removed object must not lie in a directory
    /// that is committed as it is.
    pub(super) fn unplace_before_removal(&mut self) -> Result<()> {
        match self.has_placed {
            true => self.unplace_staged(),
            false => Ok(()),
        }
    }

    /// Opens the staged file of a regular file, or makes it.
    pub(crate) fn staged_file(&mut self, id: NodeId) -> Result<Arc<D::Handle>> {
        let key = HandleKey::Staged(self.id, id);
        if let Some(handle) = self.core.handles.get(key) {
            return Ok(handle);
        }
        let handle = match self.staged(id)? {
            Some(staged) => {
                let parent = self.staged_parent(staged.parent)?;
                open_closed(&self.core.disk, &parent, &staged.name, Access::ReadWrite)?
            }
            None => {
                self.note_staged_write(id);
                let stage = self.stage()?;
                let name = names::slot(self.new_slot());
                let handle = self.core.disk.create(&stage, &name, PRIVATE_FILE)?;
                self.own_mut(id)?.staged = Some(Staged::in_slot(name, None));
                handle
            }
        };
        let handle = Arc::new(handle);
        self.core.handles.insert(key, handle.clone());
        Ok(handle)
    }

    /// Opens the staged file to change its contents. If another state of the view needs
    /// the file, first copies its first `keep` bytes.
    pub(super) fn staged_file_to_change(
        &mut self,
        id: NodeId,
        keep: u64,
    ) -> Result<Arc<D::Handle>> {
        self.note_staged_write(id);
        match self.staged(id)? {
            Some(staged) if self.is_shared(&staged) => self.copy_staged(id, keep),
            _ => self.staged_file(id),
        }
    }

    fn copy_staged(&mut self, id: NodeId, keep: u64) -> Result<Arc<D::Handle>> {
        let from = self.staged_file(id)?;
        let (stage, name) = (self.stage()?, names::slot(self.new_slot()));
        let disk = &self.core.disk;
        let to = Arc::new(disk.create(&stage, &name, PRIVATE_FILE)?);
        if let Err(errno) = copy_contents(disk, &from, &to, keep) {
            // If this fails, the file goes with the staging directory.
            let _ = disk.unlink(&stage, &name);
            return Err(errno);
        }
        let is_new = self.node(id)?.base.is_none();
        let xattrs = self.all_xattrs(id)?;
        let own = self.own_mut(id)?;
        if is_new {
            // The copy does not have the extended attributes that the original has on
            // disk.
            own.xattrs = set_all(xattrs);
        }
        own.dress = Dress::Bare;
        own.staged = Some(Staged::in_slot(name, None));
        let key = HandleKey::Staged(self.id, id);
        self.core.handles.insert(key, to.clone());
        Ok(to)
    }

    /// Lets an empty file begin with a new staged file, if a state on disk may need the old one.
    /// Returns false if the old one can be cut.
    pub(super) fn abandon_staged(&mut self, id: NodeId) -> Result<bool> {
        let own = self.node(id)?.own().ok_or(Errno::STALE)?;
        if self.log.is_none() || own.dress != Dress::Bare {
            return Ok(false);
        }
        self.core.handles.remove(HandleKey::Staged(self.id, id));
        let staged = self.own_in_place(id)?.staged.take();
        if let Some(staged) = staged
            && !self.is_shared(&staged)
        {
            self.remove_staged(&staged, Kind::File);
        }
        Ok(true)
    }

    /// Removes the staged object of a node that is gone and will not be committed.
    pub(super) fn discard_staged(&mut self, id: NodeId, own: &Own) {
        self.core.handles.remove(HandleKey::Staged(self.id, id));
        if let Some(staged) = &own.staged
            && !self.is_shared(staged)
        {
            self.remove_staged(staged, own.attributes.kind);
        }
    }

    pub(super) fn remove_staged(&mut self, staged: &Staged, kind: Kind) {
        if !self.dooms(staged, kind) {
            self.unlink_staged(staged, kind);
        }
    }

    pub(super) fn unlink_staged(&mut self, staged: &Staged, kind: Kind) {
        let removed = self.staged_parent(staged.parent).and_then(|parent| {
            let disk = &self.core.disk;
            with_rights(disk, &[&parent], || match kind {
                Kind::Directory => disk.remove_directory(&parent, &staged.name),
                _ => disk.unlink(&parent, &staged.name),
            })
        });
        if let Err(error) = removed {
            // The object goes with the whole staging directory when the transaction
            // ends.
            tracing::debug!(%error, name = ?staged.name, "a staged object is left over");
        }
    }

    /// Moves a staged object within the staging directory.
    pub(crate) fn move_staged(
        &mut self,
        id: NodeId,
        parent: StagedParent,
        name: Name,
    ) -> Result<()> {
        let Some(staged) = self.staged(id)? else {
            return Err(Errno::STALE);
        };
        if staged.parent == parent && staged.name == name {
            return Ok(());
        }
        let from = self.staged_parent(staged.parent)?;
        let to = self.staged_parent(parent)?;
        let mode = atomdir_disk::RenameMode::NoReplace;
        let disk = &self.core.disk;
        // The directory's own `..` entry changes, too.
        let object = open_closed(disk, &from, &staged.name, Access::Path)?;
        with_rights(disk, &[&from, &to, &object], || {
            disk.rename((&from, &staged.name), (&to, &name), mode)
        })?;
        match parent {
            StagedParent::Slots => self.note_moved_to_slot(),
            StagedParent::Node(_) => self.has_placed = true,
        }
        let identity = staged.identity;
        self.set_staged(
            id,
            Staged {
                parent,
                name,
                identity,
            },
        )
    }
}

/// Copies the first `keep` bytes. Holes stay holes.
pub(super) fn copy_contents<D: Disk>(
    disk: &D,
    from: &D::Handle,
    to: &D::Handle,
    keep: u64,
) -> Result<()> {
    let length = disk.stat(from)?.length.min(keep);
    disk.set_length(to, length)?;
    let mut at = 0;
    while at < length {
        let Some(run) = disk.next_data(from, at)? else {
            break;
        };
        let end = run.offset.saturating_add(run.length).min(length);
        at = at.max(run.offset);
        while at < end {
            match disk.copy_range((from, at), (to, at), end - at)? {
                0 => return Err(Errno::IO),
                copied => at += copied,
            }
        }
    }
    Ok(())
}
