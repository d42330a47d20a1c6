//! Passes each call to the base.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use atomdir_disk::{
    Disk, FileSystemStatus, Kind, ListEntry, Name, NewNode, NodeAttributes, RenameMode,
    SetAttributes, Stat, sync,
};
use atomdir_engine::{Leaving, NameNow, Section};
use atomdir_fuse::{Entry, Filesystem, Notifier, ROOT_NODE, Request, Result, Seek, Validity};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::acting::{Acting, set_umask};
use crate::nodes::{Node, STAND_IN};
use crate::{Guarded, calls};

fn valid(section: &Section<'_>) -> Validity {
    match section.may_be_cached {
        true => Validity::Forever,
        false => Validity::No,
    }
}

impl Guarded {
    /// Begins a call that changes or only looks.
    fn enter(&self) -> Section<'_> {
        self.guard.enter(None)
    }

    fn node(&self, number: u64) -> Result<Arc<Node>> {
        match number {
            STAND_IN => Err(Errno::PERM),
            number => self.known.nodes.get(number),
        }
    }

    /// A directory in which a name is to change.
    fn directory(&self, number: u64, name: &[u8]) -> Result<Arc<Node>> {
        if self.is_hidden(number, name) {
            return Err(Errno::PERM);
        }
        let node = self.node(number)?;
        node.require_there()?;
        Ok(node)
    }

    fn entry(&self, section: &Section<'_>, object: OwnedFd) -> Result<Entry> {
        let (node, stat) = self.known.nodes.give(object)?;
        let valid = valid(section);
        Ok(Entry {
            node,
            generation: 0,
            valid,
            attributes: calls::attributes_of(&stat),
            attributes_valid: valid,
        })
    }

    fn stat(&self, node: &Node) -> Result<Stat> {
        self.disk.stat(&node.object)
    }

    /// What the kernel sees of the control directory before the real one is mounted on it.
    fn stand_in(&self) -> Result<NodeAttributes> {
        let root = self.known.nodes.get(ROOT_NODE)?;
        let stat = self.stat(&root)?;
        Ok(NodeAttributes {
            inode: u64::MAX >> 12,
            mode: 0o500,
            links: 2,
            length: 0,
            blocks: 0,
            ..calls::attributes_of(&stat)
        })
    }

    fn keep_attributes(&self, node: &Node) -> Result<()> {
        self.guard
            .keep_attributes(&node.located(&self.known).as_ref())
    }

    /// From `start` to `end`, in bytes.
    fn keep_contents(&self, node: &Node, start: u64, end: u64) -> Result<()> {
        let located = node.located(&self.known);
        self.guard.keep_contents(&located.as_ref(), start, end)
    }

    fn keep_name(&self, directory: &Node, name: &[u8], leaving: Leaving) -> Result<NameNow> {
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        let located = directory.located(&self.known);
        self.guard.keep_name(&located.as_ref(), &name, leaving)
    }

    /// What becomes of the object that has the new name of another. `None`: the rename changes
    /// nothing, since both are names of one object.
    fn leaving(
        &self,
        from: (&Node, &Name),
        to: (&Node, &Name),
        mode: RenameMode,
    ) -> Result<Option<Leaving>> {
        let stat = self.disk.stat_at(&from.0.object, from.1)?;
        let target = self.disk.stat_at(&to.0.object, to.1);
        if target.is_ok_and(|target| target.identity == stat.identity) {
            return Ok(None);
        }
        let directory = stat.kind == Kind::Directory;
        Ok(Some(match mode {
            RenameMode::Replace => Leaving::Loses { directory },
            RenameMode::NoReplace | RenameMode::Exchange => Leaving::Moves,
        }))
    }

    fn put(
        &self,
        request: &Request,
        number: u64,
        offset: u64,
        (data, kill_set_id): (&[u8], bool),
    ) -> Result<()> {
        let node = self.node(number)?;
        self.keep_contents(&node, offset, offset.saturating_add(data.len() as u64))?;
        let (file, acting) = self.open_for(&node, request)?;
        calls::write(&file, offset, data)?;
        drop(acting);
        if kill_set_id && calls::kill_set_id(&node.object, &self.stat(&node)?, false)? {
            // After a write the kernel keeps the mode it has cached.
            self.known
                .notify(|notifier| notifier.invalidate_inode(number, -1, 0));
        }
        Ok(())
    }

    /// Opens a file for a change of its contents, at the caller's expense.
    fn open_for(&self, node: &Node, request: &Request) -> Result<(OwnedFd, Acting)> {
        node.require_there()?;
        let file = calls::open(&node.object, OFlags::WRONLY)?;
        let acting = Acting::begin(&self.disk, request)?;
        Ok((file, acting))
    }
}

impl Filesystem for Guarded {
    fn mounted(&self, notifier: Notifier) {
        *sync::lock(&self.known.notifier) = Some(notifier);
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
        if self.is_hidden(parent, name) {
            let attributes = self.stand_in()?;
            return Ok(Some(Entry {
                node: STAND_IN,
                generation: 0,
                valid: Validity::Forever,
                attributes,
                attributes_valid: Validity::Forever,
            }));
        }
        if parent == STAND_IN {
            return Err(Errno::NOENT);
        }
        let section = self.enter();
        let directory = self.node(parent)?;
        match calls::find(&directory.object, name) {
            Ok(object) => self.entry(&section, object).map(Some),
            Err(Errno::NOENT) if section.may_be_cached => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, node: u64, count: u64) {
        self.known.nodes.forget(node, count);
    }

    fn attributes(&self, _: &Request, node: u64) -> Result<(NodeAttributes, Validity)> {
        if node == STAND_IN {
            return Ok((self.stand_in()?, Validity::Forever));
        }
        let section = self.enter();
        let stat = self.stat(&*self.node(node)?)?;
        Ok((calls::attributes_of(&stat), valid(&section)))
    }

    fn set_attributes(
        &self,
        request: &Request,
        node: u64,
        change: SetAttributes,
    ) -> Result<(NodeAttributes, Validity)> {
        let section = self.enter();
        let node = self.node(node)?;
        node.require_there()?;
        match change.length {
            Some(length) => self.keep_contents(&node, length, u64::MAX)?,
            None => self.keep_attributes(&node)?,
        }
        if let Some(length) = change.length {
            let _acting = Acting::begin(&self.disk, request)?;
            calls::set_length(&node.object, length)?;
        }
        if change.user.is_some() || change.group.is_some() {
            calls::set_owner(&node.object, &change)?;
        }
        if change.kill_set_id && node.kind != Kind::Directory {
            calls::kill_set_id(&node.object, &self.stat(&node)?, false)?;
        }
        if let Some(mode) = change.mode {
            calls::set_mode(&node.object, mode & 0o7777)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            calls::set_times(&node.object, &change)?;
        }
        let stat = self.stat(&node)?;
        Ok((calls::attributes_of(&stat), valid(&section)))
    }

    fn read_link(&self, _: &Request, node: u64) -> Result<Vec<u8>> {
        let _section = self.enter();
        calls::read_link(&self.node(node)?.object)
    }

    fn create(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        what: NewNode,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let section = self.enter();
        let directory = self.directory(parent, name)?;
        self.keep_name(&directory, name, Leaving::Moves)?;
        let acting = Acting::begin(&self.disk, request)?;
        set_umask(umask)?;
        calls::make(&directory.object, name, &what, mode)?;
        drop(acting);
        self.entry(&section, calls::find(&directory.object, name)?)
    }

    fn create_unnamed(
        &self,
        request: &Request,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let section = self.enter();
        let directory = self.node(parent)?;
        directory.require_there()?;
        let acting = Acting::begin(&self.disk, request)?;
        set_umask(umask)?;
        let object = calls::make_unnamed(&directory.object, mode)?;
        drop(acting);
        self.entry(&section, object)
    }

    fn link(&self, _: &Request, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let section = self.enter();
        let (node, directory) = (self.node(node)?, self.directory(parent, name)?);
        node.require_there()?;
        self.keep_attributes(&node)?;
        self.keep_name(&directory, name, Leaving::Moves)?;
        calls::link(&node.object, &directory.object, name)?;
        self.entry(&section, calls::find(&directory.object, name)?)
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let _section = self.enter();
        let directory = self.directory(parent, name)?;
        self.keep_name(&directory, name, Leaving::Loses { directory: false })?;
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        self.disk.unlink(&directory.object, &name)
    }

    fn remove_directory(&self, _: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let _section = self.enter();
        let directory = self.directory(parent, name)?;
        if self.keep_name(&directory, name, Leaving::Loses { directory: true })? == NameNow::IsGone
        {
            return Ok(());
        }
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        self.disk.remove_directory(&directory.object, &name)
    }

    fn rename(
        &self,
        _: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let _section = self.enter();
        let old = self.directory(from.0, from.1)?;
        let new = self.directory(to.0, to.1)?;
        let name = |name: &[u8]| Name::new(name).map_err(|_| Errno::INVAL);
        let (from, to) = (name(from.1)?, name(to.1)?);
        let leaving = self.leaving((&old, &from), (&new, &to), mode)?;
        if let Some(leaving) = leaving {
            self.keep_name(&old, from.as_bytes(), Leaving::Moves)?;
            self.keep_name(&new, to.as_bytes(), leaving)?;
        }
        self.disk
            .rename((&old.object, &from), (&new.object, &to), mode)?;
        if leaving.is_some() {
            self.guard.moved(&new.located(&self.known).as_ref(), &to);
            if mode == RenameMode::Exchange {
                self.guard.moved(&old.located(&self.known).as_ref(), &from);
            }
        }
        Ok(())
    }

    fn read(&self, _: &Request, node: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let node = self.node(node)?;
        let _section = self.guard.enter(Some(node.identity));
        calls::read(&node.object, offset, buffer)
    }

    fn write(
        &self,
        request: &Request,
        number: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        let _section = self.enter();
        self.put(request, number, offset, (data, kill_set_id))
    }

    /// A commit may have made the file longer since the kernel has looked.
    fn append(
        &self,
        request: &Request,
        number: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        let _section = self.enter();
        let end = self.stat(&*self.node(number)?)?.length;
        self.put(request, number, end, (data, kill_set_id))?;
        if end != offset {
            self.known.forget_later(number);
        }
        Ok(())
    }

    fn allocate(
        &self,
        request: &Request,
        node: u64,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let _section = self.enter();
        let node = self.node(node)?;
        // Some modes move what follows.
        self.keep_contents(&node, offset, u64::MAX)?;
        let (file, _acting) = self.open_for(&node, request)?;
        calls::allocate(&file, mode, offset, length)
    }

    fn seek(&self, _: &Request, node: u64, offset: u64, what: Seek) -> Result<u64> {
        let _section = self.enter();
        calls::seek(&self.node(node)?.object, offset, what)
    }

    fn list(&self, _: &Request, node: u64) -> Result<Vec<ListEntry>> {
        if node == STAND_IN {
            return Ok(Vec::new());
        }
        let node = self.node(node)?;
        let _section = self.guard.enter(Some(node.identity));
        let found = self.disk.list(&node.object)?;
        let found = found.into_iter().map(|entry| {
            let kind = match entry.kind {
                Some(kind) => kind,
                None => self.disk.stat_at(&node.object, &entry.name)?.kind,
            };
            Ok(ListEntry {
                name: entry.name,
                inode: entry.inode,
                kind,
            })
        });
        // What was removed meanwhile is left out.
        found
            .filter(|entry| !matches!(entry, Err(Errno::NOENT)))
            .collect()
    }

    fn xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<Vec<u8>> {
        if node == STAND_IN {
            return Err(Errno::NODATA);
        }
        let _section = self.enter();
        self.disk.xattr(&self.node(node)?.object, name)
    }

    fn xattr_names(&self, _: &Request, node: u64) -> Result<Vec<Vec<u8>>> {
        if node == STAND_IN {
            return Ok(Vec::new());
        }
        let _section = self.enter();
        self.disk.xattr_names(&self.node(node)?.object)
    }

    fn set_xattr(
        &self,
        _: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()> {
        let _section = self.enter();
        let node = self.node(node)?;
        node.require_there()?;
        self.keep_attributes(&node)?;
        calls::set_xattr(&node.object, name, value, flags)?;
        if kill_set_group_id {
            calls::kill_set_id(&node.object, &self.stat(&node)?, true)?;
        }
        Ok(())
    }

    fn remove_xattr(&self, _: &Request, node: u64, name: &[u8]) -> Result<()> {
        let _section = self.enter();
        let node = self.node(node)?;
        node.require_there()?;
        self.keep_attributes(&node)?;
        self.disk.remove_xattr(&node.object, name)
    }

    /// Makes the object durable as the file system does without the guard.
    fn flush(&self, _: &Request, node: u64) -> Result<()> {
        let node = self.node(node)?;
        calls::flush(&node.object, node.kind == Kind::Directory)
    }

    fn status(&self, _: &Request, node: u64) -> Result<FileSystemStatus> {
        let number = if node == STAND_IN { ROOT_NODE } else { node };
        self.disk.status(&self.node(number)?.object)
    }
}
