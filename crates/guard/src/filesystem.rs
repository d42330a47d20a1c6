//! Passes each call to the base.

use atomdir_disk::{
    Disk, FileSystemStatus, Kind, ListEntry, NewNode, NodeAttributes, RenameMode, SetAttributes,
    sync,
};
use atomdir_engine::{Leaving, NameNow};
use atomdir_fuse::{
    Entry, Filesystem, Notifier, Opened, ROOT_NODE, Request, Result, Seek, Validity,
};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::acting::{Acting, set_umask};
use crate::nodes::STAND_IN;
use crate::serving::{named, valid};
use crate::waits::Planned;
use crate::{Guarded, calls};

/// Only root sees attributes of such names.
const TRUSTED: &[u8] = b"trusted.";

impl Filesystem for Guarded {
    fn mounted(&self, notifier: Notifier) {
        *sync::lock(&self.known.notifier) = Some(notifier);
    }

    fn lookup(&self, request: &Request, parent: u64, name: &[u8]) -> Result<Option<Entry>> {
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
        let found = match calls::find(&directory.object, name) {
            Ok(object) => self.entry(&section, object).map(Some),
            Err(Errno::NOENT) if section.may_be_cached => Ok(None),
            Err(errno) => Err(errno),
        };
        self.through_session(request, (&directory, name), found)
    }

    fn serves_opens(&self) -> bool {
        self.has_sessions()
    }

    fn open(&self, request: &Request, node: u64, flags: OFlags) -> Result<Opened> {
        match node {
            STAND_IN => Ok(Opened::Plainly),
            _ => self.open_in_session(request, node, flags),
        }
    }

    fn create_open(
        &self,
        request: &Request,
        parent: u64,
        name: &[u8],
        (mode, umask, flags): (u32, u32, OFlags),
    ) -> Result<(Entry, Opened)> {
        let directory = self.directory(parent, name)?;
        let place = (&directory, name);
        if let Some(made) = self.create_in_session(request, place, (mode, umask, flags))? {
            return Ok((made, Opened::UntilClosed));
        }
        let made = self.create(request, parent, name, NewNode::File, mode, umask)?;
        Ok((made, Opened::Plainly))
    }

    fn closing(&self, request: &Request, node: u64) -> Result<()> {
        self.close_in_session(request, node)
    }

    fn closed(&self, node: u64) {
        self.closed_in_session(node);
    }

    fn gave_up(&self, unique: u64) {
        self.stop_waiting(unique);
        self.sessions.copies.give_up(unique);
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
        Ok((self.shown(&stat), valid(&section)))
    }

    fn set_attributes(
        &self,
        request: &Request,
        node: u64,
        change: SetAttributes,
    ) -> Result<(NodeAttributes, Validity)> {
        let node = self.node(node)?;
        let section = self.enter_to_change(request, &self.plan_of(&node, &change)?)?;
        node.require_there()?;
        match change.length {
            Some(length) => self.keep_contents(&node, length, u64::MAX)?,
            None => self.keep_attributes(&node)?,
        }
        if change.kill_set_id && node.kind != Kind::Directory {
            calls::kill_set_id(&node.object, &self.stat(&node)?, false)?;
        }
        if let Some(length) = change.length {
            let _acting = Acting::begin(&self.disk, request)?;
            calls::set_length(&node.object, length)?;
        }
        if change.user.is_some() || change.group.is_some() {
            calls::set_owner(&node.object, &change)?;
        }
        if let Some(mode) = change.mode {
            calls::set_mode(&node.object, mode & 0o7777)?;
        }
        if change.accessed.is_some() || change.modified.is_some() {
            calls::set_times(&node.object, &change)?;
        }
        let stat = self.stat(&node)?;
        let shown = (self.shown(&stat), valid(&section));
        drop(section);
        self.flush_changed(&[&node])?;
        Ok(shown)
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
        let directory = self.directory(parent, name)?;
        let to_change = named(name)?;
        let section = self.enter_to_change(request, &[Planned::Name(&directory, &to_change)])?;
        directory.require_there()?;
        self.keep_name(&directory, name, Leaving::Moves)?;
        let acting = Acting::begin(&self.disk, request)?;
        set_umask(umask)?;
        calls::make(&directory.object, name, &what, mode)?;
        drop(acting);
        let object = calls::find(&directory.object, name)?;
        let made = self.made(&section, object, Some((&directory, &to_change)))?;
        drop(section);
        self.flush_new(&made, &directory)?;
        Ok(made)
    }

    fn create_unnamed(
        &self,
        request: &Request,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<Entry> {
        let section = self.enter_as(request);
        let directory = self.node(parent)?;
        directory.require_there()?;
        let acting = Acting::begin(&self.disk, request)?;
        set_umask(umask)?;
        let object = calls::make_unnamed(&directory.object, mode)?;
        drop(acting);
        self.made(&section, object, None)
    }

    fn link(&self, request: &Request, node: u64, parent: u64, name: &[u8]) -> Result<Entry> {
        let (node, directory) = (self.node(node)?, self.directory(parent, name)?);
        if self.is_copy(node.identity) {
            return Err(Errno::XDEV);
        }
        let to_change = named(name)?;
        let planned = [
            Planned::Name(&directory, &to_change),
            Planned::Attributes(&node),
        ];
        let section = self.enter_to_change(request, &planned)?;
        node.require_there()?;
        directory.require_there()?;
        self.keep_attributes(&node)?;
        self.keep_name(&directory, name, Leaving::Moves)?;
        calls::link(&node.object, &directory.object, name)?;
        let made = self.entry(&section, calls::find(&directory.object, name)?)?;
        drop(section);
        self.flush_new(&made, &directory)?;
        Ok(made)
    }

    fn unlink(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let (directory, to_change) = (self.directory(parent, name)?, named(name)?);
        if self.unlink_in_session(request, &directory, &to_change) {
            return Ok(());
        }
        let planned = [Planned::Leaving(&directory, &to_change)];
        let section = self.enter_to_change(request, &planned)?;
        directory.require_there()?;
        self.keep_name(&directory, name, Leaving::Loses { directory: false })?;
        let name = to_change;
        self.disk.unlink(&directory.object, &name)?;
        drop(section);
        self.flush_changed(&[&directory])
    }

    fn remove_directory(&self, request: &Request, parent: u64, name: &[u8]) -> Result<()> {
        let (directory, to_change) = (self.directory(parent, name)?, named(name)?);
        let planned = [Planned::Leaving(&directory, &to_change)];
        let section = self.enter_to_change(request, &planned)?;
        directory.require_there()?;
        let kept = self.keep_name(&directory, name, Leaving::Loses { directory: true })?;
        if kept == NameNow::Stays {
            self.disk.remove_directory(&directory.object, &to_change)?;
        }
        drop(section);
        self.flush_changed(&[&directory])
    }

    fn rename(
        &self,
        request: &Request,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<()> {
        let old = self.directory(from.0, from.1)?;
        let new = self.directory(to.0, to.1)?;
        let (from, to) = (named(from.1)?, named(to.1)?);
        if self.rename_in_session(request, (&old, &from), (&new, &to)) {
            return Ok(());
        }
        let planned = [Planned::Leaving(&old, &from), Planned::Leaving(&new, &to)];
        let section = self.enter_to_change(request, &planned)?;
        old.require_there()?;
        new.require_there()?;
        let kept = self.keep_names((&old, &from), (&new, &to), mode)?;
        if kept != Some(NameNow::IsGone) {
            self.disk
                .rename((&old.object, &from), (&new.object, &to), mode)?;
        }
        if kept.is_some() {
            self.guard.moved(&new.located(&self.known).as_ref(), &to);
            if mode == RenameMode::Exchange {
                self.guard.moved(&old.located(&self.known).as_ref(), &from);
            }
        }
        drop(section);
        // The new name first: after a crash the object has a name.
        self.flush_changed(&[&new, &old])
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
        let node = self.node(number)?;
        let end = offset.saturating_add(data.len() as u64);
        let section = self.enter_to_change(request, &[Planned::Write(&node, offset, end)])?;
        self.put(request, number, offset, (data, kill_set_id))?;
        drop(section);
        self.flush_changed(&[&node])
    }

    /// It does not wait for locks: the program has made its change already.
    fn write_back(
        &self,
        request: &Request,
        number: u64,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<()> {
        let section = self.enter();
        let node = self.put(request, number, offset, (data, kill_set_id))?;
        drop(section);
        self.flush_changed(&[&node])
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
        let node = self.node(number)?;
        // From its end on, wherever that is by then.
        let planned = [Planned::Write(
            &node,
            offset,
            offset.saturating_add(data.len() as u64),
        )];
        let section = self.enter_to_change(request, &planned)?;
        let end = self.stat(&node)?.length;
        self.put(request, number, end, (data, kill_set_id))?;
        if end != offset {
            self.known.forget_later(number);
        }
        drop(section);
        self.flush_changed(&[&node])
    }

    fn allocate(
        &self,
        request: &Request,
        node: u64,
        mode: u32,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let node = self.node(node)?;
        let planned = [Planned::Contents(&node, offset, u64::MAX)];
        let section = self.enter_to_change(request, &planned)?;
        // Some modes move what follows.
        self.keep_contents(&node, offset, u64::MAX)?;
        let (file, acting) = self.open_for(&node, request)?;
        calls::allocate(&file, mode, offset, length)?;
        drop((acting, section));
        self.flush_changed(&[&node])
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

    fn xattr_names(&self, request: &Request, node: u64) -> Result<Vec<Vec<u8>>> {
        if node == STAND_IN {
            return Ok(Vec::new());
        }
        let _section = self.enter();
        let mut names = self.disk.xattr_names(&self.node(node)?.object)?;
        if request.user != 0 {
            // Others do not see them in the plain directory either.
            names.retain(|name| !name.starts_with(TRUSTED));
        }
        Ok(names)
    }

    fn set_xattr(
        &self,
        request: &Request,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        kill_set_group_id: bool,
    ) -> Result<()> {
        let node = self.node(node)?;
        let section = self.enter_to_change(request, &[Planned::xattr(&node, name)])?;
        node.require_there()?;
        self.keep_attributes(&node)?;
        calls::set_xattr(&node.object, name, value, flags)?;
        if kill_set_group_id {
            calls::kill_set_id(&node.object, &self.stat(&node)?, true)?;
        }
        drop(section);
        self.note_leave(name);
        self.flush_changed(&[&node])
    }

    fn remove_xattr(&self, request: &Request, node: u64, name: &[u8]) -> Result<()> {
        let node = self.node(node)?;
        let section = self.enter_to_change(request, &[Planned::xattr(&node, name)])?;
        node.require_there()?;
        self.keep_attributes(&node)?;
        self.disk.remove_xattr(&node.object, name)?;
        drop(section);
        self.note_leave(name);
        self.flush_changed(&[&node])
    }

    /// Makes the object durable as the file system does without the guard.
    fn flush(&self, _: &Request, node: u64) -> Result<()> {
        let node = self.node(node)?;
        calls::flush(&node.object, node.kind)
    }

    fn status(&self, _: &Request, node: u64) -> Result<FileSystemStatus> {
        let number = if node == STAND_IN { ROOT_NODE } else { node };
        self.disk.status(&self.node(number)?.object)
    }
}
