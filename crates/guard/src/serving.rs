//! What calls to the base have in common: finding the objects, keeping what snapshots need, and
//! making changes durable.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use atomdir_disk::{Disk, Kind, Name, NodeAttributes, RenameMode, SetAttributes, Stat};
use atomdir_engine::{LOCK_ALLOW, Leaving, NameNow, Section};
use atomdir_fuse::{Entry, ROOT_NODE, Request, Result, Validity};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::acting::Acting;
use crate::nodes::{Node, STAND_IN};
use crate::waits::Planned;
use crate::{Guarded, calls, runs};

pub fn valid(section: &Section<'_>) -> Validity {
    match section.may_be_cached {
        true => Validity::Forever,
        false => Validity::No,
    }
}

pub fn named(name: &[u8]) -> Result<Name> {
    Name::new(name).map_err(|_| Errno::INVAL)
}

impl Guarded {
    /// What a change of attributes changes.
    pub(crate) fn plan_of<'a>(
        &self,
        node: &'a Node,
        change: &SetAttributes,
    ) -> Result<Vec<Planned<'a>>> {
        let times = change.accessed.is_some() || change.modified.is_some();
        let mut planned = Vec::new();
        if let Some(length) = change.length {
            let start = length.min(self.stat(node)?.length);
            planned.push(Planned::Contents(node, start, u64::MAX));
        }
        let others = change.mode.is_some() || change.user.is_some() || change.group.is_some();
        if others || (times && change.length.is_none()) {
            planned.push(Planned::Attributes(node));
        }
        Ok(planned)
    }

    /// Begins a call that changes or only looks.
    pub(crate) fn enter(&self) -> Section<'_> {
        self.guard.enter(None)
    }

    /// Begins a call that changes something, and notes whose it is, if that is remembered.
    pub(crate) fn enter_as(&self, request: &Request) -> Section<'_> {
        if !self.guard.remembers() {
            return self.enter();
        }
        let run = self.runs.of(request);
        if let Some(run) = &run {
            self.guard.begin_run(run, runs::is_over);
        }
        let section = self.enter();
        if let Some(run) = &run {
            self.guard.note_run(run);
        }
        section
    }

    /// Logs what programs have changed, if that is remembered. No call may be under way.
    pub fn log_changes(&self) {
        if let Err(error) = self.guard.log_changes() {
            tracing::warn!(%error, "changes of programs outside are not in the history");
        }
    }

    /// An attribute has changed. Locks that it has granted may hold up nobody any more.
    pub(crate) fn note_leave(&self, name: &[u8]) {
        if name == LOCK_ALLOW.as_bytes() {
            self.guard.wake_for_leave();
        }
    }

    pub(crate) fn node(&self, number: u64) -> Result<Arc<Node>> {
        match number {
            STAND_IN => Err(Errno::PERM),
            number => self.known.nodes.get(number),
        }
    }

    /// A directory in which a name is to change.
    pub(crate) fn directory(&self, number: u64, name: &[u8]) -> Result<Arc<Node>> {
        if self.is_hidden(number, name) {
            return Err(Errno::PERM);
        }
        let node = self.node(number)?;
        node.require_there()?;
        Ok(node)
    }

    pub(crate) fn entry(&self, section: &Section<'_>, object: OwnedFd) -> Result<Entry> {
        let (node, stat) = self.known.nodes.give(object)?;
        let valid = valid(section);
        Ok(Entry {
            node,
            generation: 0,
            valid,
            attributes: self.shown(&stat),
            attributes_valid: valid,
        })
    }

    /// Like [`entry`](Guarded::entry), for an object that the call has just made.
    pub(crate) fn made(
        &self,
        section: &Section<'_>,
        object: OwnedFd,
        place: Option<(&Node, &Name)>,
    ) -> Result<Entry> {
        if self.guard.remembers() {
            let place = place.map(|(directory, name)| (directory.identity, name));
            self.guard.note_made(&self.disk.stat(&object)?, place);
        }
        self.entry(section, object)
    }

    pub(crate) fn stat(&self, node: &Node) -> Result<Stat> {
        self.disk.stat(&node.object)
    }

    /// Programs do not see the name of a removed file, or a removed directory, that is kept for
    /// snapshots.
    pub(crate) fn shown(&self, stat: &Stat) -> NodeAttributes {
        let mut attributes = calls::attributes_of(stat);
        if stat.device == self.known.device() && self.guard.has_in_limbo(stat.identity) {
            attributes.links = match stat.kind {
                Kind::Directory => 0,
                _ => stat.links.saturating_sub(1),
            };
        }
        if self.is_copy(stat.identity) {
            attributes.links = 1;
        }
        attributes
    }

    /// What the kernel sees of the control directory before the real one is mounted on it.
    pub(crate) fn stand_in(&self) -> Result<NodeAttributes> {
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

    pub(crate) fn keep_attributes(&self, node: &Node) -> Result<()> {
        self.guard
            .keep_attributes(&node.located(&self.known).as_ref())
    }

    /// From `start` to `end`, in bytes.
    pub(crate) fn keep_contents(&self, node: &Node, start: u64, end: u64) -> Result<()> {
        let located = node.located(&self.known);
        self.guard.keep_contents(&located.as_ref(), start, end)
    }

    pub(crate) fn keep_name(
        &self,
        directory: &Node,
        name: &[u8],
        leaving: Leaving,
    ) -> Result<NameNow> {
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        let located = directory.located(&self.known);
        self.guard.keep_name(&located.as_ref(), &name, leaving)
    }

    /// Keeps what a rename changes. `None`: it changes nothing, since both are names of one object.
    pub(crate) fn keep_names(
        &self,
        (old, from): (&Node, &Name),
        (new, to): (&Node, &Name),
        mode: RenameMode,
    ) -> Result<Option<NameNow>> {
        let stat = self.disk.stat_at(&old.object, from)?;
        let target = self.disk.stat_at(&new.object, to);
        if target.is_ok_and(|target| target.identity == stat.identity) {
            return Ok(None);
        }
        if mode == RenameMode::Replace && stat.kind == Kind::Directory {
            let (old, new) = (old.located(&self.known), new.located(&self.known));
            let (from, to) = ((&old.as_ref(), from), (&new.as_ref(), to));
            return self.guard.replace_directory(from, to).map(Some);
        }
        let leaving = match mode {
            RenameMode::Replace => Leaving::Loses { directory: false },
            RenameMode::NoReplace | RenameMode::Exchange => Leaving::Moves,
        };
        self.keep_name(old, from.as_bytes(), Leaving::Moves)?;
        self.keep_name(new, to.as_bytes(), leaving).map(Some)
    }

    pub(crate) fn put(
        &self,
        request: &Request,
        number: u64,
        offset: u64,
        (data, kill_set_id): (&[u8], bool),
    ) -> Result<Arc<Node>> {
        let node = self.node(number)?;
        node.require_there()?;
        self.keep_contents(&node, offset, offset.saturating_add(data.len() as u64))?;
        // First, so that nobody runs what is written with rights that the file had.
        let was_set_id =
            kill_set_id && calls::kill_set_id(&node.object, &self.stat(&node)?, false)?;
        let (file, acting) = self.open_for(&node, request)?;
        calls::write(&file, offset, data)?;
        drop(acting);
        if was_set_id {
            // After a write the kernel keeps the mode it has cached.
            self.known
                .notify(|notifier| notifier.invalidate_inode(number, -1, 0));
        }
        Ok(node)
    }

    /// Opens a file for a change of its contents, at the caller's expense.
    pub(crate) fn open_for(&self, node: &Node, request: &Request) -> Result<(OwnedFd, Acting)> {
        node.require_there()?;
        let file = calls::open(&node.object, OFlags::WRONLY)?;
        let acting = Acting::begin(&self.disk, request)?;
        Ok((file, acting))
    }
}
