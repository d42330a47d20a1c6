//! Compares what the commits left with the snapshot, and takes it back in the view.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Result};
use atomdir_format::record::AttributesChange;
use atomdir_types::{EqualFile, TreePath, Undo};

use crate::base::{Base, Place};
use crate::database;
use crate::error::{Conflict, ConflictKind, UndoError};
use crate::ids::{NodeId, Sequence};
use crate::progress::Steps;
use crate::undo::changes::{ChangeRef, Changes, Key, NameUndone};
use crate::undo::find::{Fate, Finder};
use crate::undo::old_pages::OldPages;
use crate::undo::since::Since;
use crate::undo::untouched::Left;
use crate::undo::{Purpose, Reversed, io};
use crate::view::{NameChange, View};

type Outcome<T> = std::result::Result<T, UndoError>;

/// An object that gets back what these changes replaced, and its path.
type Restored<'a> = (Arc<Base>, &'a [ChangeRef], TreePath);

pub(super) struct Reverse<'a, D: Disk> {
    pub view: &'a mut View<D>,
    pub since: &'a Since,
    pub changes: &'a Changes,
    pub purpose: Purpose,
    pub conflicts: Vec<Conflict>,
    /// The entry that each conflict is about, if that is known.
    pub conflict_keys: Vec<Option<Key>>,
    /// The past cannot be shown.
    pub is_refused: bool,
    leaves_traces: bool,
    /// The files of outside writers that count as those that the commits left.
    pub equal: &'a [EqualFile],
    /// At which paths later changes are overwritten.
    pub choice: Option<&'a Undo>,
    pub(super) overwritten: Vec<Conflict>,
    pub(super) finder: Finder<'a>,
    pub(super) meter: &'a mut dyn Steps,
}

impl<'a, D: Disk> Reverse<'a, D> {
    pub fn new(
        view: &'a mut View<D>,
        (since, changes): (&'a Since, &'a Changes),
        purpose: Purpose,
        meter: &'a mut dyn Steps,
    ) -> Self {
        Reverse {
            view,
            since,
            changes,
            purpose,
            conflicts: Vec::new(),
            conflict_keys: Vec::new(),
            is_refused: false,
            leaves_traces: changes.has_passing,
            equal: &[],
            choice: None,
            overwritten: Vec::new(),
            finder: Finder::new(changes),
            meter,
        }
    }

    /// Changes the view. To undo commits it fails if anything came later.
    pub fn run(mut self) -> Outcome<Reversed> {
        let mut names = Vec::new();
        let (named, changed) = (&self.changes.names, &self.changes.objects);
        self.meter.expect(2 * (named.len() + changed.len()));
        for (key, name) in named {
            self.meter.step();
            let change = match self.purpose {
                Purpose::Undo => self.name(key, name),
                Purpose::Look => self.old_name(key, name),
            };
            names.extend(change.map_err(|errno| io(&name.path, errno))?);
            self.conflict_keys
                .resize(self.conflicts.len(), Some(key.clone()));
        }
        if self.purpose == Purpose::Undo {
            self.check_taken_out().map_err(|errno| io(b"", errno))?;
            self.check_broken()?;
            self.check_leaving()?;
        }
        let successions = self.successions().map_err(|errno| io(b"", errno))?;
        let mut objects = Vec::new();
        for (identity, changes) in changed {
            self.meter.step();
            objects.extend(self.object(*identity, changes)?);
            let key = self.key_of(changes);
            self.conflict_keys.resize(self.conflicts.len(), key);
        }
        self.check_databases()?;
        let is_all_or_nothing = self.purpose == Purpose::Undo || self.is_refused;
        if !self.conflicts.is_empty() && is_all_or_nothing {
            return Err(UndoError::Conflict(self.conflicts));
        }
        match self.view.change_names(&names) {
            Err(Errno::LOOP) => {
                let path = self.changes.names.values().next().map(|name| &name.path);
                let path = path.cloned().unwrap_or_default();
                self.conflict(&path, ConflictKind::DirectoryLoop, None);
                return Err(UndoError::Conflict(self.conflicts));
            }
            changed => changed.map_err(|errno| io(b"", errno))?,
        }
        named.keys().for_each(|_| self.meter.step());
        self.view.successions.extend(successions);
        for (base, changes, path) in objects {
            self.meter.step();
            let restored = self.restore(&base, changes);
            restored.map_err(|errno| io(&path, errno))?;
        }
        self.name_as_then();
        Ok(Reversed {
            not_as_then: self.conflicts,
            overwritten: self.overwritten,
            leaves_traces: self.leaves_traces,
        })
    }

    /// The entry by which the first of these changes found its object.
    fn key_of(&self, changes: &[ChangeRef]) -> Option<Key> {
        let (step, update, _) = self.since.change(*changes.first()?);
        let object = &step.objects()[update.object as usize];
        step.place(&object.locator)
    }

    /// The change of a name, if there is one and nothing came later.
    fn name(&mut self, key: &Key, name: &NameUndone) -> Result<Option<NameChange>> {
        let (directory, entry) = key;
        let fate = self.finder.fate(self.view, *directory)?;
        if fate != Fate::Lives {
            self.leave_traces(*directory);
        }
        match fate {
            Fate::Lives => {}
            // Its entries that live on elsewhere must leave it first.
            Fate::Goes => {
                let base = self.finder.find(self.view, *directory)?;
                if base.is_none_or(|base| self.is_in_limbo(&base)) {
                    let left = name.after.filter(|left| self.finder.is_returning(left));
                    if let (Some(_), Some(by)) = (left, name.by_other) {
                        self.conflict(&name.path, ConflictKind::Entry, Some(by));
                    }
                    return Ok(None);
                }
            }
            Fate::Lost(_) if name.is_taken_out => return Ok(None),
            Fate::Lost(by) => {
                let by = by.map_or_else(|| self.moved_by(*directory), |by| Ok(Some(by)))?;
                self.conflict(&name.path, ConflictKind::Removed, by);
                return Ok(None);
            }
        }
        let is_changed = name.is_broken || name.by_other.is_some();
        let Some(node) = self.node_of(*directory)? else {
            let what = match is_changed {
                true => ConflictKind::Entry,
                false => ConflictKind::Removed,
            };
            self.conflict(&name.path, what, name.by_other);
            return Ok(None);
        };
        let before = self.view.child(node, entry)?;
        if (is_changed || self.identity(before)? != name.after && !self.is_equal(name, before)?)
            && !self.replaces(name, before)?
        {
            self.conflict(&name.path, ConflictKind::Entry, name.by_other);
            return Ok(None);
        }
        let returns = name.before.filter(|_| fate == Fate::Lives);
        if let Some(by) = returns.and_then(|identity| self.changes.brought_back.get(&identity)) {
            self.conflict(&name.path, ConflictKind::Returned, Some(*by));
            return Ok(None);
        }
        let after = match returns {
            None => None,
            Some(identity) => match self.returning(name, identity)? {
                None => return Ok(None),
                node => node,
            },
        };
        Ok(Some(NameChange {
            directory: node,
            name: entry.clone(),
            before,
            after,
        }))
    }

    pub(super) fn node_of(&mut self, identity: Identity) -> Result<Option<NodeId>> {
        match self.finder.find(self.view, identity)? {
            None => Ok(None),
            Some(base) => match self.finder.node(self.view, &base) {
                Err(Errno::STALE) => Ok(None),
                node => node.map(Some),
            },
        }
    }

    pub(super) fn identity(&mut self, node: Option<NodeId>) -> Result<Option<Identity>> {
        let Some(node) = node else {
            return Ok(None);
        };
        let base = self.view.node(node)?.base.clone().ok_or(Errno::STALE)?;
        Ok(Some(self.stat(&base)?.identity))
    }

    /// Checks names that were changed by others and became again what they were, and files that others
    /// have changed between the undone commits.
    fn check_broken(&mut self) -> Outcome<()> {
        let changes = self.changes;
        for ((directory, _), name) in &changes.broken {
            let fate = self.finder.fate(self.view, *directory);
            if fate.map_err(|errno| io(&name.path, errno))? == Fate::Lives {
                self.conflict(&name.path, ConflictKind::Entry, name.by_other);
            }
        }
        for file in &changes.between {
            self.conflict(&file.path, ConflictKind::Contents, Some(file.by));
        }
        Ok(())
    }

    /// Checks what will not be in the tree any more.
    fn check_leaving(&mut self) -> Outcome<()> {
        let changes = self.changes;
        let mut leaving: BTreeMap<Identity, &TreePath> = BTreeMap::new();
        for name in changes.names.values() {
            if let Some(after) = name.after {
                leaving.entry(after).or_insert(&name.path);
            }
        }
        self.check_put_from_outside()
            .map_err(|errno| io(b"", errno))?;
        for (identity, path) in leaving {
            let failed = |errno| io(path, errno);
            if self.finder.fate(self.view, identity).map_err(failed)? != Fate::Goes {
                continue;
            }
            let base = self.finder.find(self.view, identity).map_err(failed)?;
            let Some(base) = base.filter(|base| !self.is_in_limbo(base)) else {
                continue;
            };
            let Some(made) = self.check_origin(identity, path) else {
                continue;
            };
            self.check_going(&base, path, made)?;
            if base.kind == Kind::Directory {
                let node = self.finder.node(self.view, &base).map_err(failed)?;
                self.check_tree((node, identity), path, made.of_contents())?;
            }
        }
        Ok(())
    }

    /// Checks everything in a directory that will go, except names that change by themselves.
    fn check_tree(
        &mut self,
        (top, made_with): (NodeId, Identity),
        path: &TreePath,
        made: Left,
    ) -> Outcome<()> {
        let mut open = vec![(top, path.clone())];
        while let Some((directory, path)) = open.pop() {
            let failed = |errno| io(&path, errno);
            let identity = self.identity(Some(directory)).map_err(failed)?;
            for entry in self.view.list(directory).map_err(failed)? {
                let key = identity.map(|identity| (identity, entry.name.clone()));
                let is_undone = |key| self.changes.names.contains_key(key);
                if key.as_ref().is_some_and(is_undone) {
                    continue;
                }
                let path = path.join(entry.name.as_bytes());
                let child = self.view.child(directory, &entry.name);
                let child = child.and_then(|child| child.ok_or(Errno::STALE));
                let child = child.map_err(|errno| io(&path, errno))?;
                let object = self
                    .identity(Some(child))
                    .map_err(|errno| io(&path, errno))?;
                if let (Some(key), Some(object)) = (&key, object)
                    && self.changes.is_put_by_others(key, object)
                {
                    // So what the directory holds is a conflict already.
                    continue;
                }
                let base = self
                    .view
                    .node(child)
                    .ok()
                    .and_then(|node| node.base.clone());
                let Some(base) = base else {
                    continue;
                };
                let came_later = object.is_some_and(|object| {
                    self.came_later(object, made_with)
                        && !key.is_some_and(|key| self.is_put_by_commit(&key, object))
                });
                if base.is_mount_point() || came_later {
                    let what = ConflictKind::EntryInRemovedDirectory;
                    let is_file = base.kind != Kind::Directory && !base.is_mount_point();
                    if !is_file || !self.overwrites(&path, what, None) {
                        self.conflict(&path, what, None);
                    }
                    continue;
                }
                self.check_going(&base, &path, made)?;
                if base.kind == Kind::Directory {
                    open.push((child, path));
                }
            }
        }
        Ok(())
    }

    /// An object that gets back what was changed in place, if nothing came later.
    fn object(
        &mut self,
        identity: Identity,
        changes: &'a [ChangeRef],
    ) -> Outcome<Option<Restored<'a>>> {
        let path = changes.first().map_or_else(TreePath::default, |change| {
            let (step, update, _) = self.since.change(*change);
            step.path_of_object(update.object)
        });
        let failed = |errno| io(&path, errno);
        match self.finder.fate(self.view, identity).map_err(failed)? {
            Fate::Goes => {
                self.leave_traces(identity);
                return Ok(None);
            }
            // It has a name in a directory that had been removed before, and had no other then.
            Fate::Lost(None)
                if self.purpose == Purpose::Look
                    && self.is_removed(identity).map_err(failed)? =>
            {
                return Ok(None);
            }
            // It was not in the tree before, and is not there now.
            Fate::Lost(_) if self.changes.is_new(identity) => {
                self.leave_traces(identity);
                return Ok(None);
            }
            Fate::Lost(by) => {
                // If a name in a directory that had been removed before is left, then a commit took
                // the others. An outside writer would have removed the file.
                let is_removed = self.is_removed(identity).map_err(failed)?;
                let unnamed_by = self.changes.unnamed_by.get(&identity).copied();
                let by = by.or(unnamed_by.filter(|_| is_removed));
                self.conflict(&path, ConflictKind::Removed, by);
                return Ok(None);
            }
            Fate::Lives => {}
        }
        let base = self.finder.find(self.view, identity).map_err(failed)?;
        let Some(base) = base else {
            self.conflict(&path, ConflictKind::Removed, None);
            return Ok(None);
        };
        let before = self.conflicts.len();
        self.check_changed(&base, &path, changes)?;
        let is_as_left = self.conflicts.len() == before;
        Ok(is_as_left.then_some((base, changes, path)))
    }

    /// Whether the object, or a directory above it, is in limbo, where nobody changes it.
    pub(super) fn is_in_limbo(&self, base: &Arc<Base>) -> bool {
        let mut at = base.clone();
        loop {
            let place = at.state().place.clone();
            match place {
                Place::Root => return false,
                Place::Limbo(_) | Place::Held => return true,
                Place::Entry { parent, .. } => at = parent,
            }
        }
    }

    /// See `database`.
    fn check_databases(&mut self) -> Outcome<()> {
        let names = self.changes.names.iter();
        let names = names.map(|(key, name)| (key.clone(), name.first));
        let objects = self.changes.objects.values().filter_map(|changes| {
            let change = changes.first()?;
            let (step, update, _) = self.since.change(*change);
            update.content.as_ref()?;
            let locator = &step.objects()[update.object as usize].locator;
            Some((step.place(locator)?, change.step))
        });
        let mut undone: Vec<(Key, usize)> = names.chain(objects).collect();
        undone.sort();
        let keys: HashSet<&Key> = undone.iter().map(|(key, _)| key).collect();
        let mut others = Vec::new();
        for ((directory, name), first) in &undone {
            for member in database::guarding(name.as_bytes()) {
                let Ok(member) = atomdir_disk::Name::new(&member) else {
                    continue;
                };
                let key = (*directory, member);
                if !keys.contains(&key) {
                    others.push((key, *first));
                }
            }
        }
        for (key, first) in others {
            self.check_member(&key, first)?;
        }
        Ok(())
    }

    /// Checks a file of a database of which the undone commits have changed another file.
    fn check_member(&mut self, key: &Key, first: usize) -> Outcome<()> {
        let failed = |errno| io(key.1.as_bytes(), errno);
        if self.finder.fate(self.view, key.0).map_err(failed)? != Fate::Lives {
            return Ok(());
        }
        let Some(directory) = self.node_of(key.0).map_err(failed)? else {
            return Ok(());
        };
        let path = self.view.path_of_entry(directory, &key.1);
        let steps = self.changes.touched_names.get(key).into_iter().flatten();
        let is_others = |step: &usize| *step >= first && !self.since.steps[*step].is_undone;
        if let Some(step) = steps.copied().filter(is_others).max() {
            let by: Sequence = self.since.steps[step].sequence;
            self.conflict(&path, ConflictKind::Contents, Some(by));
            self.is_refused = true;
            return Ok(());
        }
        let child = self.view.child(directory, &key.1).map_err(failed)?;
        let base = child.and_then(|child| self.view.node(child).ok()?.base.clone());
        // A directory is no file of a database.
        if let Some(base) = base.filter(|base| base.kind != Kind::Directory)
            && !self.is_in_limbo(&base)
            && self.is_newer(&base, first).map_err(failed)?
        {
            self.refuse(&path, ConflictKind::Contents);
        }
        Ok(())
    }

    /// What the undone commits changed in this object stays. That does not matter if they made it.
    fn leave_traces(&mut self, object: Identity) {
        self.leaves_traces |= !self.changes.is_made(object);
    }

    /// Takes back what the commits changed in place, newest first.
    fn restore(&mut self, base: &Arc<Base>, changes: &[ChangeRef]) -> Result<()> {
        let Some(node) = self.finder.remaining_node(self.view, base)? else {
            self.leave_traces(base.identity());
            return Ok(());
        };
        let keeps_time = self.is_time_set_since(base, changes)?;
        for change in changes.iter().rev() {
            let (step, update, former) = self.since.change(*change);
            if let Some(content) = &update.content {
                let identity = step.object(former.object);
                let mut pages = OldPages::open(self.view, identity, step.sequence, former)?;
                let core = self.view.core.clone();
                let next = || pages.next(&core.disk);
                self.view.restore_contents(node, content, former, next)?;
            }
            let attributes = AttributesChange {
                modified: update.attributes.modified.filter(|_| !keeps_time),
                ..update.attributes
            };
            self.view.restore_attributes(node, &attributes, former)?;
        }
        Ok(())
    }

    /// Whether others have set the modification time since these changes, perhaps with other pages.
    fn is_time_set_since(&self, base: &Arc<Base>, changes: &[ChangeRef]) -> Result<bool> {
        let mut times = changes
            .iter()
            .rev()
            .map(|change| self.since.change(*change).1.attributes.modified);
        let left = times.find_map(|time| time);
        let present = self.stat(base)?.attributes.times.modified;
        Ok(self.purpose == Purpose::Undo && left.is_some_and(|left| left != present))
    }
}
