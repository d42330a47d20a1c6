//! A transaction: its identity, and its view behind a lock.

pub(crate) mod budget;
pub(crate) mod snapshot_object;
pub(crate) mod view_slot;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_disk::{Charge, Disk, Errno, FileSystemStatus, RenameMode, Result, Timestamp};
use atomdir_format::record::SummaryLine;

use crate::base::core::Core;
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::names;
use crate::options::{BeginOptions, Conflicts, Durability, Isolation};
use crate::transaction::budget::{Budget, Share};
use crate::transaction::view_slot::ViewSlot;
use crate::view::read_set::ReadSet;
use crate::view::{
    Caller, Entry, ListEntry, Marking, NewNode, NodeAttributes, SetAttributes, View,
};

pub struct Transaction<D: Disk> {
    pub(crate) core: Arc<Core<D>>,
    id: TransactionId,
    options: BeginOptions,
    began: Timestamp,
    /// Set if this one is nested in it.
    outer: Option<Arc<Transaction<D>>>,
    /// The newest commit in the snapshot.
    pub(crate) at: Sequence,
    /// The begin on the file system's own clock, for finding outside writers.
    pub(crate) began_change_time: Timestamp,
    /// `None` once the transaction has ended.
    /// Its view is the lower layer of an overlay.
    lower: AtomicBool,
    share: Share,
    pub(crate) view: ViewSlot<D>,
}

impl<D: Disk> Transaction<D> {
    pub(crate) fn new(
        core: Arc<Core<D>>,
        id: TransactionId,
        options: BeginOptions,
        at: Sequence,
        began_change_time: Timestamp,
    ) -> Transaction<D> {
        let began = core.options.clock.now();
        let mut view = View::new(core.clone(), id, at);
        if options.isolation == Isolation::Serializable {
            view.reads = Some(ReadSet::default());
        }
        let view = ViewSlot::new(view);
        Transaction {
            core,
            id,
            options,
            began,
            outer: None,
            at,
            began_change_time,
            lower: AtomicBool::new(false),
            share: Share::default(),
            view,
        }
    }

    pub(crate) fn nested(
        outer: &Arc<Transaction<D>>,
        view: View<D>,
        options: BeginOptions,
    ) -> Transaction<D> {
        Transaction {
            core: outer.core.clone(),
            id: view.id,
            options,
            began: outer.core.options.clock.now(),
            outer: Some(outer.clone()),
            at: outer.at,
            began_change_time: outer.began_change_time,
            lower: AtomicBool::new(false),
            share: Share::default(),
            view: ViewSlot::new(view),
        }
    }

    /// Calls this whenever a commit of the transaction has ended, however it ended:
    /// what was answered with `ERESTART` meanwhile can be asked again. It must neither
    /// wait nor call the store.
    pub fn on_commit_end(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.view.on_return(Arc::new(listener));
    }

    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The numeric id of the user it belongs to.
    pub fn owner(&self) -> u32 {
        self.options.owner
    }

    pub fn label(&self) -> &[u8] {
        &self.options.label
    }

    pub fn began(&self) -> Timestamp {
        self.began
    }

    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    pub fn conflicts(&self) -> Conflicts {
        self.options.conflicts
    }

    /// The lower, the older: its id, or that of the first of several tries.
    pub(crate) fn age(&self) -> TransactionId {
        self.options.first_try.unwrap_or(self.id).min(self.id)
    }

    pub fn is_open(&self) -> bool {
        self.view.lock().is_some()
    }

    /// The transaction that this one is nested in.
    pub fn outer(&self) -> Option<&Arc<Transaction<D>>> {
        self.outer.as_ref()
    }

    /// Itself, if it is nested in none.
    pub(crate) fn outermost(&self) -> &Transaction<D> {
        self.outer.as_ref().map_or(self, |outer| outer.outermost())
    }

    /// `ERESTART` while the view is being committed: who asks may not have the
    /// time to wait, and can ask again.
    fn with<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        act(self.view.try_lock()?.as_mut().ok_or(Errno::STALE)?)
    }

    /// Waits for a commit under way.
    pub(crate) fn wait_with<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        act(self.view.lock().as_mut().ok_or(Errno::STALE)?)
    }

    /// With a view that may be changed.
    fn with_changes<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        self.with(|view| {
            if view.frozen {
                return Err(Errno::ROFS);
            }
            self.share.require_room()?;
            let done = act(view);
            self.share.update(view.nodes.changed.len());
            done
        })
    }

    /// As `with_changes`, for what may stage contents.
    fn with_contents<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        self.with_changes(|view| {
            let _charge = self.charge()?;
            act(view)
        })
    }

    /// What this thread stages until the result is dropped counts as the owner's, and no
    /// right of root's helps it to more space. Where this process is not root, it is the
    /// owner already.
    pub(crate) fn charge(&self) -> Result<Charge> {
        let privileges = &self.core.options.privileges;
        match privileges.all && self.owner() != privileges.user {
            true => self.core.disk.charge(self.owner()),
            false => Ok(Charge::none()),
        }
    }

    /// What it changes counts towards this budget; to be said before it changes
    /// anything. Once all is used up, whatever would change something fails with
    /// `EDQUOT`.
    pub fn set_budget(&self, budget: Arc<Budget>) {
        self.share.set(budget);
    }

    /// With a view whose names may be changed.
    fn with_names<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        self.with_changes(|view| {
            view.refuse_while_nested()?;
            act(view)
        })
    }

    /// What a commit would land, sorted by path.
    pub fn changes(&self) -> Result<Vec<SummaryLine>> {
        let began = self.began_change_time;
        self.wait_with(|view| {
            if view.lower {
                return view.look_at_upper(began)?.changes();
            }
            view.changes()
        })
    }

    /// Makes the view the lower layer of an overlay, which nothing changes
    /// until [`take_over_upper`](Transaction::take_over_upper).
    pub fn become_lower(&self) -> Result<()> {
        self.wait_with(|view| {
            view.prepare_upper()?;
            view.lower = true;
            self.lower.store(true, Ordering::Release);
            Ok(())
        })
    }

    /// Below the control directory: where the directories `upper` and `work` of
    /// its overlay are. `None`: it has none.
    pub fn layers(&self) -> Option<PathBuf> {
        let stage = Path::new(names::STAGE).join(self.id.to_string());
        self.is_lower().then_some(stage)
    }

    /// How its overlay is to be mounted.
    pub fn marking(&self) -> Marking {
        Marking::of(&self.core.options.privileges)
    }

    /// Whether its changes are in an upper layer.
    pub fn is_lower(&self) -> bool {
        self.lower.load(Ordering::Acquire)
    }

    /// Makes an upper layer's changes the view's own. The overlay must have
    /// ended, or be read-only for ever. An error, but for one that says that
    /// the transaction has ended, leaves everything as it was, or the
    /// transaction of no use but to be aborted.
    pub fn take_over_upper(&self) -> Result<()> {
        let began = self.began_change_time;
        self.wait_with(|view| {
            *view = view.take_over_upper(began)?;
            self.lower.store(false, Ordering::Release);
            Ok(())
        })
    }

    /// The node at a path of the view, its lookup count unchanged.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<NodeId>> {
        self.wait_with(|view| view.resolve(path))
    }

    /// Finding the name does not count as reading the attributes that come with
    /// it: who uses those asks for them with [`Transaction::attributes`].
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Result<Entry> {
        self.with(|view| view.lookup(parent, name))
    }

    pub fn forget(&self, node: NodeId, count: u64) {
        self.view.forget(node, count);
    }

    pub fn attributes(&self, node: NodeId) -> Result<NodeAttributes> {
        self.with(|view| {
            view.note_attributes(node)?;
            view.attributes(node)
        })
    }

    /// Whether the object's attributes may be used from memory: asking for them
    /// again would not add to the read set.
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
            // Group, mode and access control list may come from the directory.
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

    /// Fills the buffer from the offset; less only at the end of the file.
    pub fn read(
        &self,
        node: NodeId,
        offset: u64,
        buffer: &mut [u8],
        caller: Caller,
    ) -> Result<usize> {
        let plan = self.with(|view| {
            view.check_readable(node, caller)?;
            view.require_contents(node)?;
            view.note_contents(node, offset, buffer.len() as u64)?;
            view.read_plan(node, offset, buffer.len())
        })?;
        let count = plan.read(&self.core, buffer)?;
        if !self.is_lower() && plan.may_have_holes(&self.core)? {
            self.with(|view| {
                view.note_hole_read(node, offset, buffer.len() as u64);
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// True if the write took away set-id bits or capabilities.
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8], kill_set_id: bool) -> Result<bool> {
        let end = offset.saturating_add(data.len() as u64);
        self.with_contents(|view| {
            self.announce(view, |view| view.writes_contents(node, offset, end))?;
            view.write(node, offset, data, kill_set_id)
        })
    }

    /// `mode` as in fallocate(2).
    pub fn allocate(&self, node: NodeId, mode: u32, offset: u64, length: u64) -> Result<()> {
        let end = offset.saturating_add(length);
        self.with_contents(|view| {
            self.announce(view, |view| view.writes_contents(node, offset, end))?;
            view.allocate(node, mode, offset, length)
        })
    }

    /// The next data, or the next hole, at or after the offset.
    pub fn seek(&self, node: NodeId, offset: u64, hole: bool) -> Result<u64> {
        self.with(|view| {
            view.note_contents(node, offset, u64::MAX)?;
            view.seek(node, offset, hole)
        })
    }

    /// Every entry but `.` and `..`.
    pub fn list(&self, node: NodeId) -> Result<Vec<ListEntry>> {
        self.with(|view| view.list(node))
    }

    pub fn xattr(&self, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.with(|view| {
            if view.lower && self.marking().is_mark(name) {
                // overlayfs asks for its own, at each first look; no program does.
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

    /// The space of the file system that the store is on.
    pub fn status(&self) -> Result<FileSystemStatus> {
        self.core.disk.status(&self.core.root)
    }
}
