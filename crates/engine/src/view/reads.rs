//! Notes the reads of a serializable transaction from its snapshot in its read set. Names and
//! listings are noted when the view reads the snapshot. All other reads are noted only when a
//! program asks, not when the view itself needs the data.

use std::collections::HashMap;

use atomdir_disk::{Disk, Errno, Kind, Result};
use atomdir_types::FileRead;

use super::View;
use crate::base::Base;
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::view::read_set::{Permissions, ReadSet};

impl<D: Disk> View<D> {
    pub fn note_attributes(&mut self, id: NodeId) -> Result<()> {
        if self.attributes_noted(id) {
            return Ok(());
        }
        let base = self.node(id)?.base.clone().ok_or(Errno::STALE)?;
        if self.is_declared(&base) {
            return self.note_access(id);
        }
        let permissions = match base.kind {
            Kind::Directory => Some(Permissions::of(&self.show_stat(&base)?)),
            _ => None,
        };
        if let Some(reads) = &mut self.reads {
            reads.attributes(&base, permissions);
        }
        Ok(())
    }

    /// Notes that a program's permission was checked.
    pub fn note_access(&mut self, id: NodeId) -> Result<()> {
        let base = self.node(id)?.base.clone();
        match (&mut self.reads, base) {
            (Some(reads), Some(base)) if base.kind != Kind::Directory => {
                reads.access(&base);
                Ok(())
            }
            _ => self.note_attributes(id),
        }
    }

    /// Whether the kernel may cache the attributes, so that it does not ask
    /// again.
    pub fn attributes_noted(&self, id: NodeId) -> bool {
        let Ok(node) = self.node(id) else {
            return true;
        };
        match (&self.reads, &node.base) {
            (Some(reads), Some(base)) if self.is_declared(base) => reads.has_access(base),
            (Some(reads), Some(base)) => reads.has_attributes(base),
            _ => true,
        }
    }

    /// Whether reads of the object are noted only when a program declares them. Reads of its
    /// permissions are always noted, since the kernel checks them.
    fn is_declared(&self, base: &Base) -> bool {
        self.has_declared_reads && base.kind == Kind::File
    }

    /// Notes a program's reads of files. The program has them open, so each has a node.
    pub fn note_declared(&mut self, files: &[FileRead]) -> Result<()> {
        let mut wanted: HashMap<u64, &FileRead> =
            files.iter().map(|file| (file.inode, file)).collect();
        // A new file has nothing of the base.
        for id in self.nodes.changed.iter() {
            if let Some(node) = self.node(*id).ok().filter(|node| node.base.is_none())
                && let Some(own) = node.own()
            {
                wanted.remove(&own.attributes.inode);
            }
        }
        let known = self.nodes.by_base.values().copied();
        let known: Vec<NodeId> = known.filter(|id| self.is_file(*id)).collect();
        // Only the base of a file that others have replaced has another inode number by now.
        let (alike, others): (Vec<NodeId>, Vec<NodeId>) = known.into_iter().partition(|id| {
            let base = self.node(*id).ok().and_then(|node| node.base.as_ref());
            base.is_some_and(|base| {
                wanted.contains_key(&self.core.inode_numbers.shown(base.identity().inode))
            })
        });
        for id in alike.into_iter().chain(others) {
            if wanted.is_empty() {
                break;
            }
            let inode = self.attributes(id)?.inode;
            if let Some(file) = wanted.remove(&inode) {
                self.note_file(id, file)?;
            }
        }
        Ok(())
    }

    fn is_file(&self, id: NodeId) -> bool {
        self.node(id).is_ok_and(|node| node.kind == Kind::File)
    }

    fn note_file(&mut self, id: NodeId, file: &FileRead) -> Result<()> {
        let base = self.node(id)?.base.clone().ok_or(Errno::STALE)?;
        if let Some(reads) = &mut self.reads {
            if file.attributes {
                reads.attributes(&base, None);
            }
            for (start, end) in &file.bytes {
                reads.contents(&base, start / PAGE, end.div_ceil(PAGE), false);
            }
            reads.contents(&base, 0, 0, file.length);
        }
        Ok(())
    }

    /// Notes a read of those contents that still come from the base. The rest
    /// is the transaction's own. `total` is the length of the file.
    pub fn note_contents(
        &mut self,
        id: NodeId,
        total: u64,
        (offset, length): (u64, u64),
    ) -> Result<()> {
        if self.reads.is_none() {
            return Ok(());
        }
        let node = self.node(id)?;
        let limit = node.contents().map_or(total, |own| own.base_limit);
        let end = offset.saturating_add(length);
        let base = node.base.clone().filter(|_| limit > 0 || total == 0);
        let base = base.filter(|base| !self.is_declared(base));
        if let (Some(reads), Some(base)) = (&mut self.reads, base) {
            let pages = end.min(limit).div_ceil(PAGE);
            reads.contents(&base, offset / PAGE, pages, end >= total);
        }
        Ok(())
    }

    /// Adds a nested transaction's reads of the shared snapshot.
    pub fn take_reads(&mut self, nested: Option<ReadSet>) {
        if let (Some(reads), Some(nested)) = (&mut self.reads, nested) {
            reads.merge(nested);
        }
    }

    /// The path of a base object in the view, or else its present path in the
    /// base.
    pub fn path_of_base(&self, base: &Base) -> Vec<u8> {
        match self.nodes.by_base.get(&base.serial) {
            Some(id) => self.path(*id),
            None => base.path().unwrap_or_default(),
        }
    }
}
