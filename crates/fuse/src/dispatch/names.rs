//! Requests that make, move and remove names.

use atomdir_disk::{Errno, RenameMode};

use super::{Call, Scratch, checked, decode, give};
use crate::filesystem::{Filesystem, NewNode, Opened, Result};
use crate::wire::{Operation, ReplyWriter, flags};
use rustix::fs::OFlags;

impl<F: Filesystem> Call<'_, F> {
    pub(super) fn change_names(
        &self,
        operation: Operation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match operation {
            Operation::Symlink { name, target } => {
                self.create(name, NewNode::Symlink(target.to_vec()), 0o777, 0, scratch)?;
            }
            Operation::MakeNode {
                name,
                mode,
                device,
                umask,
            } => {
                self.create(name, decode::new_node(mode, device)?, mode, umask, scratch)?;
            }
            Operation::Create {
                name,
                mode,
                umask,
                flags,
            } => {
                let (name, mode) = (checked(name)?, mode & 0o7777);
                let modes = (mode, umask, OFlags::from_bits_retain(flags));
                let (filesystem, request) = (self.filesystem, &self.request);
                let (entry, opened) = filesystem.create_open(request, self.node, name, modes)?;
                self.listings.changed(self.node);
                give(&entry, scratch);
                ReplyWriter::new(&mut scratch.reply).open(opened);
            }
            Operation::MakeDirectory { name, mode, umask } => {
                self.create(name, NewNode::Directory, mode, umask, scratch)?;
            }
            Operation::TemporaryFile { mode, umask } => {
                let entry = self.filesystem.create_unnamed(
                    &self.request,
                    self.node,
                    mode & 0o7777,
                    umask,
                )?;
                give(&entry, scratch);
                ReplyWriter::new(&mut scratch.reply).open(Opened::Plainly);
            }
            Operation::Link { from, name } => {
                let name = checked(name)?;
                let entry = self.filesystem.link(&self.request, from, self.node, name)?;
                self.listings.changed(self.node);
                give(&entry, scratch);
            }
            Operation::Unlink { name } => {
                self.filesystem
                    .unlink(&self.request, self.node, checked(name)?)?;
                self.listings.removed(self.node, name);
            }
            Operation::RemoveDirectory { name } => {
                self.filesystem
                    .remove_directory(&self.request, self.node, checked(name)?)?;
                self.listings.removed(self.node, name);
            }
            Operation::Rename {
                name,
                new_parent,
                new_name,
                flags,
            } => {
                self.rename(name, (new_parent, new_name), flags)?;
            }
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }

    fn create(
        &self,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (name, mode) = (checked(name)?, mode & 0o7777);
        let entry = self
            .filesystem
            .create(&self.request, self.node, name, what, mode, umask)?;
        self.listings.changed(self.node);
        give(&entry, scratch);
        Ok(())
    }

    fn rename(&self, name: &[u8], to: (u64, &[u8]), flags: u32) -> Result<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            flags::RENAME_NOREPLACE => RenameMode::NoReplace,
            flags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = ((self.node, checked(name)?), (to.0, checked(to.1)?));
        self.filesystem.rename(&self.request, from, to, mode)?;
        if mode == RenameMode::Exchange {
            self.listings.changed(from.0);
        } else {
            self.listings.removed(from.0, name);
        }
        self.listings.changed(to.0);
        Ok(())
    }
}
