//! Brings files and directories back as they were after a commit: an ordinary transaction that
//! makes them in its view what a view of the past shows.
//!
//! Invariants
//! 1. Nothing but what is at and below the paths changes, and missing directories above them.
//!    The exceptions are a file with other names elsewhere, which remains one file, and a SQLite
//!    database, which is brought back with its logs.
//! 2. Nothing is brought back of which the past does not know how it was.
//!
//! An object that is in limbo comes back itself, if the view has it nowhere else. One that has gone
//! on elsewhere stays there, and its old state is copied. So is a file whose other names are not
//! brought back.

mod copy;
mod files;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result};
use atomdir_types::path::is_at_or_below;

use crate::base::{Base, Place};
use crate::database;
use crate::error::UndoError;
use crate::ids::{NodeId, Sequence};
use crate::options::BeginOptions;
use crate::progress::{Meter, Progress, Steps};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::undo::io;
use crate::view::node::{OwnBody, Touched};
use crate::view::{NameChange, View};

/// Directories further down are not brought back: the calls are nested, and the stack has an end.
const DEPTH_MAX: usize = 256;

type Outcome<T> = std::result::Result<T, UndoError>;

impl<D: Disk> Store<D> {
    /// Begins a transaction in which everything at and below these paths is as it was just after
    /// this commit. Objects that were not there then are removed. The caller decides whether the user may
    /// read the past.
    pub fn restore(
        &self,
        commit: Sequence,
        paths: &[Vec<u8>],
        options: BeginOptions,
    ) -> Outcome<Arc<Transaction<D>>> {
        self.restore_reporting(commit, paths, options, &mut |_| {})
    }

    /// Like [`restore`](Store::restore), and reports how far it has come.
    pub fn restore_reporting(
        &self,
        commit: Sequence,
        paths: &[Vec<u8>],
        options: BeginOptions,
        report: &mut dyn FnMut(Progress),
    ) -> Outcome<Arc<Transaction<D>>> {
        let mut meter = Meter::new(report);
        let past = self.past_metered(commit, options.clone(), &mut meter)?;
        let unknown = past.not_as_then.into_iter().filter(|one| {
            let mut paths = paths.iter().flat_map(|path| database::family(path));
            paths.any(|path| is_at_or_below(&one.path, &path) || is_at_or_below(&path, &one.path))
        });
        let unknown: Vec<_> = unknown.collect();
        let restored = match unknown.is_empty() {
            true => self.restore_from(&past.transaction, paths, options, &mut meter),
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
        meter: &mut dyn Steps,
    ) -> Outcome<Arc<Transaction<D>>> {
        let transaction = self.begin_beside(past, options)?;
        let restored = self.bring_back(past, &transaction, paths, meter);
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
        meter: &mut dyn Steps,
    ) -> Outcome<()> {
        self.restoring(past, transaction, meter, |restore| {
            let paths = restore.with_databases(paths)?;
            restore
                .changed
                .is_none()
                .then(|| restore.directories_of(&paths))
                .transpose()?;
            for path in &paths {
                let restored = restore.path(path).map_err(|errno| io(path, errno))?;
                if !restored {
                    let path = String::from_utf8_lossy(path).into_owned();
                    return Err(UndoError::Absent { path });
                }
            }
            Ok(())
        })
    }

    /// Lets `act` bring things back from a view of the past.
    fn restoring(
        &self,
        past: &Transaction<D>,
        transaction: &Transaction<D>,
        meter: &mut dyn Steps,
        act: impl FnOnce(&mut Restore<'_, D>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut then = past.view.lock();
        let then = then.as_mut().ok_or_else(|| io(b"", Errno::STALE))?;
        let written = self.change_view(transaction, |now| {
            let changed = changed_nodes(then);
            act(&mut Restore {
                then,
                now,
                changed,
                made: HashMap::new(),
                depth: 0,
                meter,
            })?;
            Ok(now.written())
        })?;
        self.note_writes(transaction, &written);
        Ok(())
    }
}

/// The nodes with changes at or below them. `None` if they cannot be found: a changed file with
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

/// What is asked for.
enum Asked {
    Root,
    /// An entry of a directory of the present, and what it was then.
    Entry(NodeId, Name, Option<NodeId>),
    Nothing,
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
    meter: &'a mut dyn Steps,
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

    /// These paths, and the other files of the databases among them.
    fn with_databases(&mut self, paths: &[Vec<u8>]) -> Outcome<Vec<Vec<u8>>> {
        let mut all = Vec::new();
        for path in paths {
            all.push(path.clone());
            if !self.is_file(path).map_err(|errno| io(path, errno))? {
                continue;
            }
            for member in database::family(path) {
                if member != *path && self.is_file(&member).map_err(|errno| io(path, errno))? {
                    all.push(member);
                }
            }
        }
        Ok(all)
    }

    /// Whether there is a file at this path, now or then.
    fn is_file(&mut self, path: &[u8]) -> Result<bool> {
        let Asked::Entry(directory, name, wanted) = self.asked(path)? else {
            return Ok(false);
        };
        if let Some(wanted) = wanted
            && self.then.node(wanted)?.kind == Kind::File
        {
            return Ok(true);
        }
        match self.now.child(directory, &name)? {
            Some(present) => Ok(self.now.node(present)?.kind == Kind::File),
            None => Ok(false),
        }
    }

    /// Brings back the directories first, if files with several names have changed: one that was
    /// removed comes back with names of files in it, to which their other names shall lead.
    fn directories_of(&mut self, paths: &[Vec<u8>]) -> Outcome<()> {
        for path in paths {
            let returned = match self.asked(path) {
                Ok(Asked::Root) => self
                    .note_linked(NodeId::ROOT, NodeId::ROOT)
                    .and_then(|()| self.directories_in(NodeId::ROOT, NodeId::ROOT)),
                Ok(Asked::Entry(directory, name, Some(wanted))) => self
                    .note_present(directory, &name, wanted)
                    .and_then(|()| self.directory(directory, &name, wanted)),
                Ok(Asked::Entry(_, _, None) | Asked::Nothing) => Ok(()),
                Err(errno) => Err(errno),
            };
            returned.map_err(|errno| io(path, errno))?;
        }
        Ok(())
    }

    fn directories_in(&mut self, then: NodeId, now: NodeId) -> Result<()> {
        for entry in self.then.list(then)? {
            if entry.kind == Kind::Directory {
                let child = self.then.child(then, &entry.name)?.ok_or(Errno::STALE)?;
                self.deeper(|this| this.directory(now, &entry.name, child))?;
            }
        }
        Ok(())
    }

    fn note_present(&mut self, directory: NodeId, name: &Name, wanted: NodeId) -> Result<()> {
        match self.now.child(directory, name)? {
            Some(present) => self.note_linked(wanted, present),
            None => Ok(()),
        }
    }

    /// Makes an entry the directory that it was then, with all directories in it.
    fn directory(&mut self, directory: NodeId, name: &Name, wanted: NodeId) -> Result<()> {
        let present = self.now.child(directory, name)?;
        let present_base = self.base_now(present)?;
        let node = self.then.node(wanted)?;
        let (kind, base) = (node.kind, node.base.clone());
        if kind != Kind::Directory {
            return Ok(());
        }
        let now = match (present, base) {
            (Some(present), Some(base))
                if present_base.is_some_and(|now| now.serial == base.serial) =>
            {
                present
            }
            (_, Some(base)) if self.may_return(&base) => {
                let adopted = self.now.adopt(base);
                self.name(directory, name, present, Some(adopted))?;
                self.note_linked(wanted, adopted)?;
                adopted
            }
            _ => {
                self.name(directory, name, present, None)?;
                let made = self.copy_alone(wanted, directory, name)?;
                self.made.insert(wanted, made);
                made
            }
        };
        self.directories_in(wanted, now)
    }

    /// Returns false if there is nothing at this path, neither now nor then.
    fn path(&mut self, path: &[u8]) -> Result<bool> {
        let (directory, name, wanted) = match self.asked(path)? {
            Asked::Root => {
                self.adjust(NodeId::ROOT, NodeId::ROOT)?;
                return Ok(true);
            }
            Asked::Nothing => return Ok(false),
            Asked::Entry(directory, name, wanted) => (directory, name, wanted),
        };
        if wanted.is_none() && self.now.child(directory, &name)?.is_none() {
            return Ok(false);
        }
        self.entry(directory, &name, wanted)?;
        Ok(true)
    }

    /// Finds what is at a path, and makes missing directories above it.
    fn asked(&mut self, path: &[u8]) -> Result<Asked> {
        let parts = path.split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty());
        let names = parts.map(|part| Name::new(part).map_err(|_| Errno::INVAL));
        let mut names: Vec<Name> = names.collect::<Result<_>>()?;
        let Some(last) = names.pop() else {
            return Ok(Asked::Root);
        };
        let (mut then, mut now) = (Some(NodeId::ROOT), NodeId::ROOT);
        for name in names {
            then = self.directory_then(then, &name)?;
            now = match (then, self.now.child(now, &name)?) {
                (_, Some(present)) if self.now.node(present)?.kind == Kind::Directory => present,
                (Some(_), Some(_)) => return Err(Errno::NOTDIR),
                (Some(then), None) => self.copy_alone(then, now, &name)?,
                (None, _) => return Ok(Asked::Nothing),
            };
        }
        let wanted = match then {
            Some(then) => self.then.child(then, &last)?,
            None => None,
        };
        Ok(Asked::Entry(now, last, wanted))
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
            if self.then.node(wanted)?.kind == Kind::Directory {
                return self.fill(wanted, made);
            }
            if let Some(base) = base.filter(|base| self.has_name_in_limbo(base)) {
                let adopted = self.now.adopt(base);
                return self.name(directory, name, present, Some(adopted));
            }
            self.name(directory, name, present, None)?;
            let linked = self.now.link(made, directory, name.as_bytes())?;
            self.now.forget(linked.node, 1);
            return Ok(());
        }
        if let Some(base) = base.filter(|base| self.may_return(base)) {
            let successions = self.then.successions.iter();
            let successions = successions.filter(|(_, after)| after.serial == base.serial);
            self.now.successions.extend(successions.cloned());
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

    /// Whether a file that is in the view has one more name, which is in limbo.
    fn has_name_in_limbo(&self, base: &Base) -> bool {
        let in_limbo = || crate::undo::find::in_limbo(self.now, base.identity());
        !self.now.restored.contains(&base.serial) && matches!(in_limbo(), Ok(Some(_)))
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
        self.meter.expect(wanted.len());
        let names: HashSet<&Name> = wanted.iter().map(|entry| &entry.name).collect();
        for entry in self.now.list(now)? {
            if !names.contains(&entry.name) {
                self.entry(now, &entry.name, None)?;
            }
        }
        for entry in &wanted {
            self.meter.step();
            let child = self.then.child(then, &entry.name)?.ok_or(Errno::STALE)?;
            self.deeper(|this| this.entry(now, &entry.name, Some(child)))?;
        }
        Ok(())
    }
}
