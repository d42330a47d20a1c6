//! Brings files and directories back as they were after a commit: an ordinary transaction that
//! makes them in its view what a view of the past shows.
//!
//! Invariants
//! 1. Nothing but what is at and below the paths changes, and missing directories above them.
//!    The one exception is a file with other names elsewhere, which remains one file.
//! 2. Nothing is brought back of which the past does not know how it was.
//!
//! An object that is in limbo comes back itself, if the view has it nowhere else. One that has gone
//! on elsewhere stays there, and its old state is copied. So is a file whose other names are not
//! brought back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use crate::base::{Base, Place};
use crate::error::UndoError;
use crate::ids::{NodeId, Sequence};
use crate::options::BeginOptions;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::undo::io;
use crate::view::node::{Own, OwnBody, Touched};
use crate::view::{Caller, NameChange, NewNode, SetAttributes, View};

const COPY_CHUNK: usize = 1 << 20;
/// Directories further down are not brought back: the calls are nested, and the stack has an end.
const DEPTH_MAX: usize = 256;

type Outcome<T> = std::result::Result<T, UndoError>;

impl<D: Disk> Store<D> {
    /// Begins a transaction in which everything at and below these paths is as it was just after
    /// this commit. What was not there then is removed. The caller decides whether the user may
    /// read the past.
    pub fn restore(
        &self,
        commit: Sequence,
        paths: &[Vec<u8>],
        options: BeginOptions,
    ) -> Outcome<Arc<Transaction<D>>> {
        let past = self.past(commit, options.clone())?;
        let unknown = past.not_as_then.into_iter().filter(|one| {
            let mut paths = paths.iter();
            paths.any(|path| is_within(&one.path, path) || is_within(path, &one.path))
        });
        let unknown: Vec<_> = unknown.collect();
        let restored = match unknown.is_empty() {
            true => self.restore_from(&past.transaction, paths, options),
            false => Err(UndoError::Conflict(unknown)),
        };
        self.abort(&past.transaction);
        restored
    }

    fn restore_from(
        &self,
        past: &Transaction<D>,
        paths: &[Vec<u8>],
        options: BeginOptions,
    ) -> Outcome<Arc<Transaction<D>>> {
        let transaction = self.begin_beside(past, options)?;
        let restored = self.bring_back(past, &transaction, paths);
        match restored {
            Ok(()) => Ok(transaction),
            Err(error) => {
                self.abort(&transaction);
                Err(error)
            }
        }
    }

    fn bring_back(
        &self,
        past: &Transaction<D>,
        transaction: &Transaction<D>,
        paths: &[Vec<u8>],
    ) -> Outcome<()> {
        let mut then = past.view.lock();
        let then = then.as_mut().ok_or_else(|| io(b"", Errno::STALE))?;
        let written = self.change_view(transaction, |now| {
            let changed = changed_nodes(then);
            let mut restore = Restore {
                then,
                now,
                changed,
                made: HashMap::new(),
                depth: 0,
            };
            for path in paths {
                let restored = restore.path(path).map_err(|errno| io(path, errno))?;
                if !restored {
                    let path = String::from_utf8_lossy(path).into_owned();
                    return Err(UndoError::Absent { path });
                }
            }
            Ok(now.written())
        })?;
        self.note_writes(transaction, &written);
        Ok(())
    }
}

/// The nodes with changes at or below them. `None` if that cannot be told: a changed file with
/// several names is also below other directories than its node knows.
fn changed_nodes<D: Disk>(view: &View<D>) -> Option<HashSet<NodeId>> {
    let mut found = HashSet::new();
    for changed in view.changed_nodes() {
        let mut at = changed;
        let node = view.node(at).ok()?;
        let in_view = node.own().map_or(1, |own| own.attributes.links);
        let in_base = node.base.as_ref().map(|base| view.snapshot_stat(base));
        let in_base = in_base.map_or(Ok(1), |stat| stat.map(|stat| stat.links));
        if node.kind != Kind::Directory && (in_view > 1 || in_base.ok()? > 1) {
            return None;
        }
        while found.insert(at) && at != NodeId::ROOT {
            at = view.node(at).ok()?.parent;
        }
    }
    Some(found)
}

fn is_within(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| above.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}

struct Restore<'a, D: Disk> {
    then: &'a mut View<D>,
    now: &'a mut View<D>,
    /// Which nodes of the past may differ from the snapshot; `None`: all may.
    changed: Option<HashSet<NodeId>>,
    /// Where the view has files of the past, by their nodes there.
    made: HashMap<NodeId, NodeId>,
    /// How many directories the present call is within.
    depth: usize,
}

impl<D: Disk> Restore<'_, D> {
    /// Runs `act` a directory further down.
    fn deeper<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth == DEPTH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.depth += 1;
        let result = act(self);
        self.depth -= 1;
        result
    }

    /// Returns false if there is nothing at this path, neither now nor then.
    fn path(&mut self, path: &[u8]) -> Result<bool> {
        let parts = path.split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty());
        let names = parts.map(|part| Name::new(part).map_err(|_| Errno::INVAL));
        let mut names: Vec<Name> = names.collect::<Result<_>>()?;
        let Some(last) = names.pop() else {
            if self.changed.is_none() {
                self.note_linked(NodeId::ROOT, NodeId::ROOT)?;
            }
            self.adjust(NodeId::ROOT, NodeId::ROOT)?;
            return Ok(true);
        };
        let (mut then, mut now) = (Some(NodeId::ROOT), NodeId::ROOT);
        for name in names {
            then = self.directory_then(then, &name)?;
            now = match (then, self.now.child(now, &name)?) {
                (_, Some(present)) if self.now.node(present)?.kind == Kind::Directory => present,
                (Some(_), Some(_)) => return Err(Errno::NOTDIR),
                (Some(then), None) => self.copy_alone(then, now, &name)?,
                (None, _) => return Ok(false),
            };
        }
        let wanted = match then {
            Some(then) => self.then.child(then, &last)?,
            None => None,
        };
        let present = self.now.child(now, &last)?;
        if let (Some(wanted), Some(present), None) = (wanted, present, &self.changed) {
            self.note_linked(wanted, present)?;
        }
        if wanted.is_none() && present.is_none() {
            return Ok(false);
        }
        self.entry(now, &last, wanted)?;
        Ok(true)
    }

    fn directory_then(&mut self, parent: Option<NodeId>, name: &Name) -> Result<Option<NodeId>> {
        let Some(parent) = parent else {
            return Ok(None);
        };
        let child = self.then.child(parent, name)?;
        let child = child.filter(|child| {
            let node = self.then.node(*child);
            node.is_ok_and(|node| node.kind == Kind::Directory)
        });
        Ok(child)
    }

    /// Makes an entry what it was then.
    fn entry(&mut self, directory: NodeId, name: &Name, wanted: Option<NodeId>) -> Result<()> {
        let present = self.now.child(directory, name)?;
        let present_base = self.base_now(present)?;
        let Some(wanted) = wanted else {
            return self.name(directory, name, present, None);
        };
        let base = self.then.node(wanted)?.base.clone();
        if let (Some(present), Some(now), Some(then)) = (present, &present_base, &base)
            && now.serial == then.serial
        {
            return self.adjust(wanted, present);
        }
        if let Some(made) = self.made.get(&wanted).copied() {
            self.name(directory, name, present, None)?;
            let linked = self.now.link(made, directory, name.as_bytes())?;
            self.now.forget(linked.node, 1);
            return Ok(());
        }
        if let Some(base) = base.filter(|base| self.may_return(base)) {
            let adopted = self.now.adopt(base);
            self.name(directory, name, present, Some(adopted))?;
            self.made.insert(wanted, adopted);
            return self.adjust(wanted, adopted);
        }
        self.name(directory, name, present, None)?;
        self.copy(wanted, directory, name)
    }

    /// Notes the files with several names that have one of them in both views, so that their other
    /// names can lead to them again.
    fn note_linked(&mut self, then: NodeId, now: NodeId) -> Result<()> {
        let kinds = (self.then.node(then)?.kind, self.now.node(now)?.kind);
        if kinds == (Kind::Directory, Kind::Directory) {
            for entry in self.then.list(then)? {
                let child = self.then.child(then, &entry.name)?;
                let present = self.now.child(now, &entry.name)?;
                if let (Some(child), Some(present)) = (child, present) {
                    self.deeper(|this| this.note_linked(child, present))?;
                }
            }
            return Ok(());
        }
        let bases = (&self.then.node(then)?.base, &self.now.node(now)?.base);
        if let (Some(old), Some(new)) = bases
            && old.serial == new.serial
            && kinds.0 != Kind::Directory
        {
            self.made.insert(then, now);
        }
        Ok(())
    }

    fn base_now(&self, node: Option<NodeId>) -> Result<Option<Arc<Base>>> {
        let Some(node) = node else {
            return Ok(None);
        };
        let base = self.now.node(node)?.base.clone();
        match base.as_ref().is_some_and(|base| base.is_mount_point()) {
            true => Err(Errno::BUSY),
            false => Ok(base),
        }
    }

    /// Whether the object is in limbo, and not in the view yet.
    fn may_return(&self, base: &Base) -> bool {
        let is_in_limbo = matches!(base.state().place, Place::Limbo(_));
        is_in_limbo && !self.now.nodes.by_base.contains_key(&base.serial)
    }

    fn name(
        &mut self,
        directory: NodeId,
        name: &Name,
        before: Option<NodeId>,
        after: Option<NodeId>,
    ) -> Result<()> {
        if before.is_none() && after.is_none() {
            return Ok(());
        }
        self.now.change_names(&[NameChange {
            directory,
            name: name.clone(),
            before,
            after,
        }])
    }

    /// Makes an object what it was then; both views have the same object of the base.
    fn adjust(&mut self, then: NodeId, now: NodeId) -> Result<()> {
        let changed = self.changed.as_ref();
        if changed.is_some_and(|changed| !changed.contains(&then)) {
            return Ok(());
        }
        if self.then.node(then)?.kind == Kind::Directory {
            self.entries(then, now)?;
        }
        let Some(own) = self.then.node(then)?.own.clone() else {
            return Ok(());
        };
        let has_contents = matches!(own.body, OwnBody::File(_));
        if has_contents {
            self.contents(then, now, &own)?;
        }
        let touched = Touched {
            modified: own.touched.modified || has_contents,
            ..own.touched
        };
        let xattrs = own.xattrs.clone();
        self.now.dress_as(now, &own.attributes, touched, xattrs)
    }

    fn entries(&mut self, then: NodeId, now: NodeId) -> Result<()> {
        let wanted = self.then.list(then)?;
        let names: HashSet<&Name> = wanted.iter().map(|entry| &entry.name).collect();
        for entry in self.now.list(now)? {
            if !names.contains(&entry.name) {
                self.entry(now, &entry.name, None)?;
            }
        }
        for entry in &wanted {
            let child = self.then.child(then, &entry.name)?.ok_or(Errno::STALE)?;
            self.deeper(|this| this.entry(now, &entry.name, Some(child)))?;
        }
        Ok(())
    }

    /// Writes what the past has overwritten over the contents of the base.
    fn contents(&mut self, then: NodeId, now: NodeId, own: &Own) -> Result<()> {
        let OwnBody::File(contents) = &own.body else {
            return Ok(());
        };
        let length = own.attributes.length;
        let kept = contents.base_limit.min(length);
        self.set_length(now, kept)?;
        self.set_length(now, length)?;
        let page = crate::base::snapshot::PAGE;
        let pages = contents.pages.iter();
        for (start, end) in pages.filter(|_| contents.base_limit > 0) {
            let end = end.saturating_mul(page).min(kept);
            self.copy_range(then, now, start.saturating_mul(page)..end)?;
        }
        self.copy_range(then, now, kept..length)
    }

    fn set_length(&mut self, now: NodeId, length: u64) -> Result<()> {
        if self.now.attributes(now)?.length != length {
            let change = SetAttributes {
                length: Some(length),
                ..SetAttributes::default()
            };
            self.now.set_attributes(now, change)?;
        }
        Ok(())
    }

    /// Copies contents. Beyond the old end of a file, zeros are holes.
    fn copy_range(&mut self, then: NodeId, now: NodeId, range: std::ops::Range<u64>) -> Result<()> {
        let mut at = range.start;
        let mut old = Vec::new();
        while at < range.end {
            let length = (range.end - at).min(COPY_CHUNK as u64) as usize;
            let mut buffer = vec![0; length];
            let core = self.then.core.clone();
            let plan = self.then.read_plan(then, at, length)?;
            let count = plan.read(&core, &mut buffer)?;
            buffer.truncate(count);
            if count == 0 {
                break;
            }
            old.clear();
            old.resize(count, 0);
            let plan = self.now.read_plan(now, at, count)?;
            plan.read(&core, &mut old)?;
            if old != buffer {
                self.now.write(now, at, &buffer, false)?;
            }
            at += count as u64;
        }
        Ok(())
    }

    /// Makes a new object like one of the past, with everything in it.
    fn copy(&mut self, then: NodeId, directory: NodeId, name: &Name) -> Result<()> {
        let kind = self.then.node(then)?.kind;
        if kind == Kind::Directory {
            let made = self.copy_alone(then, directory, name)?;
            for entry in self.then.list(then)? {
                let child = self.then.child(then, &entry.name)?.ok_or(Errno::STALE)?;
                self.deeper(|this| this.entry(made, &entry.name, Some(child)))?;
            }
            return self.dress(then, made);
        }
        let made = self.create(then, directory, name)?;
        self.made.insert(then, made);
        if kind == Kind::File {
            let length = self.then.attributes(then)?.length;
            self.set_length(made, length)?;
            self.copy_range(then, made, 0..length)?;
        }
        self.dress(then, made)
    }

    /// Makes an empty directory like one of the past.
    fn copy_alone(&mut self, then: NodeId, directory: NodeId, name: &Name) -> Result<NodeId> {
        let made = self.create(then, directory, name)?;
        self.dress(then, made)?;
        Ok(made)
    }

    fn create(&mut self, then: NodeId, directory: NodeId, name: &Name) -> Result<NodeId> {
        let attributes = self.then.attributes(then)?;
        let what = match attributes.kind {
            Kind::File => NewNode::File,
            Kind::Directory => NewNode::Directory,
            Kind::Symlink => NewNode::Symlink(self.then.read_link(then)?),
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
            Kind::CharacterDevice => NewNode::CharacterDevice(attributes.device_number),
            Kind::BlockDevice => NewNode::BlockDevice(attributes.device_number),
        };
        let caller = Caller {
            user: attributes.owner.user,
            group: attributes.owner.group,
        };
        let name = name.as_bytes();
        let made = self
            .now
            .create(directory, name, what, attributes.mode, 0, caller)?;
        self.now.forget(made.node, 1);
        Ok(made.node)
    }

    /// Gives a new object the attributes and extended attributes of one of the past.
    fn dress(&mut self, then: NodeId, made: NodeId) -> Result<()> {
        let attributes = self.then.attributes(then)?;
        let inherited = self.now.xattr_names(made)?;
        let mut xattrs: std::collections::BTreeMap<_, _> =
            inherited.into_iter().map(|name| (name, None)).collect();
        for (name, value) in self.then.all_xattrs(then)? {
            xattrs.insert(name, Some(value));
        }
        self.now.dress_as(made, &attributes, Touched::ALL, xattrs)
    }
}
