//! Finds what outside writers have changed of that which commits left: of these the past cannot say
//! how they were.
//!
//! A view of the past takes back what later commits changed. What these have left alone it shows as
//! it is now, with all that outside writers did since. So each entry and each object is compared
//! with the way in which the last of the commits left it: as the next commit found it, which has kept
//! that, or else as it is now.
//!
//! What a commit made within a new directory is not in its record by identity. It is found by the
//! paths that the history lists. If these had to make room for others, changes of it are not reported.

use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name};
use atomdir_format::record::EntryChange;
use atomdir_types::{Change, TreePath};

use crate::base::Base;
use crate::error::{ChangedBy, Conflict, ConflictKind, UndoError};
use crate::ids::{NodeId, Sequence};
use crate::options::BeginOptions;
use crate::progress::Unreported;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::undo::Purpose;
use crate::undo::changes::{Changes, Key, Touch};
use crate::undo::files::Files;
use crate::undo::io;
use crate::undo::look::plain;
use crate::undo::reverse::Reverse;
use crate::undo::selection::Selection;
use crate::undo::since::{Since, Step};
use crate::undo::untouched::Left;

impl<D: Disk> Store<D> {
    /// What the last of these commits left, or those before it, and outside writers have changed
    /// since; as far as the history is kept, in the snapshot of a transaction.
    pub fn changed_outside(
        &self,
        beside: &Transaction<D>,
        commits: RangeInclusive<Sequence>,
        options: BeginOptions,
    ) -> Result<Vec<Conflict>, UndoError> {
        let Some(oldest) = self.oldest_kept()? else {
            return Ok(Vec::new());
        };
        let newest = (*commits.end()).min(beside.at());
        let mut first = oldest.max(*commits.start());
        while first <= newest {
            let transaction = self.begin_beside(beside, plain(options.clone()))?;
            let found = self.find_outside(&transaction, first..=newest);
            self.abort(&transaction);
            match found {
                // An undo has put what it changed into the past.
                Err(UndoError::AlreadyUndone { .. }) => first = first.next(),
                found => return found,
            }
        }
        Ok(Vec::new())
    }

    fn find_outside(
        &self,
        transaction: &Transaction<D>,
        commits: RangeInclusive<Sequence>,
    ) -> Result<Vec<Conflict>, UndoError> {
        let since = self.since(transaction, &[*commits.start()])?;
        let selection = Selection::everything();
        let changes = Changes::new(&since, &selection);
        let of_these = since.steps.iter();
        let of_these = of_these.filter(|step| step.sequence <= *commits.end());
        let steps = of_these.count();
        let added = self.added(&since, &commits)?;
        let paths = self.change_view(transaction, |view| {
            let mut unreported = Unreported;
            let reverse = Reverse::new(view, (&since, &changes), Purpose::Look, &mut unreported);
            let mut search = Search {
                files: Files::new(since.steps.iter().flat_map(Step::successions)),
                reverse,
                steps,
                added,
                paths: HashMap::new(),
                found: BTreeSet::new(),
            };
            search.run().map_err(|errno| io(b"", errno))?;
            Ok(search.found)
        })?;
        let conflict = |path| Conflict {
            path,
            what: ConflictKind::Contents,
            by: ChangedBy::Outside,
        };
        Ok(self.described(paths.into_iter().map(conflict).collect()))
    }

    /// The paths at which these commits made objects, by commit. Records of the past do not have them.
    fn added(
        &self,
        since: &Since,
        commits: &RangeInclusive<Sequence>,
    ) -> Result<HashMap<Sequence, Vec<Vec<u8>>>, UndoError> {
        let mut added = HashMap::new();
        let steps = since.steps.iter();
        let mut these = steps.filter(|step| commits.contains(&step.sequence));
        if !these.any(Step::names_directory) {
            return Ok(added);
        }
        let before = Sequence(commits.start().0.saturating_sub(1));
        let core = &*self.0.core;
        let summaries = self
            .lock_without_pending()?
            .journal
            .summaries(core, before)?;
        summaries.for_each(&core.disk, |summary| {
            let sequence = Sequence(summary.sequence);
            if let Some(commit) = summary.commit.filter(|_| commits.contains(&sequence)) {
                let lines = commit.lines.iter();
                let lines = lines.filter(|line| line.change == Change::Added);
                added.insert(sequence, lines.map(|line| line.path.to_bytes()).collect());
            }
        })?;
        Ok(added)
    }

    fn oldest_kept(&self) -> Result<Option<Sequence>, UndoError> {
        let core = &*self.0.core;
        let state = self.lock_without_pending()?;
        let journal = &state.journal;
        if let Some(oldest) = journal.past.as_ref().and_then(|past| past.oldest()) {
            return Ok(Some(oldest));
        }
        let mut oldest = None;
        journal.for_each_logged(core, |logged| {
            oldest.get_or_insert(Sequence(logged.sequence()));
            Ok(())
        })?;
        Ok(oldest)
    }
}

struct Search<'a, D: Disk> {
    reverse: Reverse<'a, D>,
    files: Files,
    /// So many steps belong to the commits. The others are later.
    steps: usize,
    /// The paths that each of the commits has added.
    added: HashMap<Sequence, Vec<Vec<u8>>>,
    /// The paths at which the commits left objects.
    paths: HashMap<Identity, TreePath>,
    found: BTreeSet<Vec<u8>>,
}

impl<D: Disk> Search<'_, D> {
    fn run(&mut self) -> Result<(), Errno> {
        let changes = self.reverse.changes;
        for (key, steps) in &changes.touched_names {
            self.entry(key, steps)?;
        }
        for (identity, touches) in &changes.touched {
            self.object(*identity, touches)?;
        }
        for number in 0..self.steps {
            self.made_within(number)?;
        }
        Ok(())
    }

    fn entry(&mut self, key: &Key, steps: &[usize]) -> Result<(), Errno> {
        let since = self.reverse.since;
        let change = |number: usize| {
            let step = &since.steps[number];
            let mut entries = step.entries().iter();
            let is_it =
                |one: &&EntryChange| one.name == key.1 && step.directory(one.directory) == key.0;
            entries.find(is_it).map(|entry| (step, entry))
        };
        let (of_these, later): (Vec<usize>, Vec<usize>) =
            steps.iter().partition(|number| **number < self.steps);
        let Some((step, entry)) = of_these.into_iter().rev().find_map(change) else {
            return Ok(());
        };
        let left = step.after(entry);
        let path = step.path(entry.directory, &entry.name);
        if let Some(object) = left {
            self.paths.insert(object, path.clone());
        }
        let found = match later.into_iter().find_map(change) {
            Some((_, entry)) => entry.before,
            None => match self.directory(key.0)? {
                Some(directory) => self.identity_at(directory, &key.1)?,
                None => return Ok(()),
            },
        };
        let file = |identity: Option<Identity>| identity.map(|one| self.files.first(one));
        if file(found) != file(left) {
            self.found.insert(path.to_bytes());
        }
        Ok(())
    }

    /// The directory's node, if it is in the tree.
    fn directory(&mut self, identity: Identity) -> Result<Option<NodeId>, Errno> {
        match self.present(identity)? {
            Some(_) => self.reverse.node_of(identity),
            None => Ok(None),
        }
    }

    fn present(&mut self, identity: Identity) -> Result<Option<Arc<Base>>, Errno> {
        let Reverse { finder, view, .. } = &mut self.reverse;
        let found = finder.find(view, identity)?;
        Ok(found.filter(|base| !self.reverse.is_in_limbo(base)))
    }

    fn identity_at(&mut self, directory: NodeId, name: &Name) -> Result<Option<Identity>, Errno> {
        let child = match self.reverse.view.child(directory, name) {
            Err(Errno::STALE | Errno::NOENT) => None,
            child => child?,
        };
        self.reverse.identity(child)
    }

    fn object(&mut self, identity: Identity, touches: &[Touch]) -> Result<(), Errno> {
        let of_these = touches.partition_point(|touch| touch.step < self.steps);
        let Some(last) = of_these.checked_sub(1) else {
            return Ok(());
        };
        let path = touches[..of_these].iter().rev().find_map(|touch| {
            let (step, update, _) = self.reverse.since.change(touch.change?);
            Some(step.path_of_object(update.object))
        });
        let Some(path) = path.or_else(|| self.paths.get(&identity).cloned()) else {
            return Ok(());
        };
        let left = self.reverse.left(&touches[last]);
        let is_changed = match touches.get(of_these) {
            Some(next) => {
                self.present(identity)?
                    .is_none_or(|base| base.kind != Kind::Directory)
                    && self.reverse.left_between(left, &[*next]).is_none()
            }
            None => match self.present(identity)? {
                Some(base) => self.is_changed(left, &base)?,
                None => false,
            },
        };
        if is_changed {
            self.found.insert(path.to_bytes());
        }
        Ok(())
    }

    /// A directory's times change with its entries.
    fn is_changed(&self, left: Left, base: &Arc<Base>) -> Result<bool, Errno> {
        let stat = self.reverse.stat(base)?;
        let present = stat.attributes;
        Ok(match base.kind {
            Kind::Directory => left.differs(present.mode, present.owner),
            _ => self.reverse.is_changed_outside(left, &[], &stat),
        })
    }

    /// What a commit made within new directories.
    fn made_within(&mut self, number: usize) -> Result<(), Errno> {
        let since = self.reverse.since;
        let step = &since.steps[number];
        let Some(added) = self.added.remove(&step.sequence) else {
            return Ok(());
        };
        let entries = step.entries().iter().filter_map(|entry| {
            let made = step.after(entry)?;
            Some((step.path(entry.directory, &entry.name).to_bytes(), made))
        });
        let entries: HashMap<Vec<u8>, Identity> = entries.collect();
        let left = Touch {
            step: number,
            ..Touch::default()
        };
        let left = self.reverse.left(&left);
        for path in added {
            if entries.contains_key(&path) {
                continue;
            }
            let slashes = path.iter().enumerate().rev();
            let mut above = slashes.filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
            let found = above.find_map(|at| Some((at, *entries.get(&path[..at])?)));
            if let Some((at, directory)) = found
                && self.is_changed_within(directory, &path[at + 1..], left)?
            {
                self.found.insert(path);
            }
        }
        Ok(())
    }

    /// Whether outside writers have changed an object in a directory, which a commit has left so.
    /// Entries and objects that commits have changed by themselves are compared elsewhere.
    fn is_changed_within(
        &mut self,
        directory: Identity,
        path: &[u8],
        left: Left,
    ) -> Result<bool, Errno> {
        let changes = self.reverse.changes;
        let mut at = directory;
        for part in path.split(|byte| *byte == b'/') {
            let name = Name::new(part).map_err(|_| Errno::INVAL)?;
            let Some(node) = self.directory(at)? else {
                return Ok(false);
            };
            let key = (at, name);
            if changes.touched_names.contains_key(&key) {
                return Ok(false);
            }
            match self.identity_at(node, &key.1)? {
                Some(found) => at = found,
                None => return Ok(true),
            }
            let Some(child) = self.reverse.view.child(node, &key.1)? else {
                return Ok(true);
            };
            let base = self.reverse.view.node(child)?.base.clone();
            if let Some(base) = base
                && base.kind != Kind::Directory
            {
                let is_touched = changes.touched.contains_key(&at);
                return Ok(!is_touched && self.is_changed(left, &base)?);
            }
        }
        Ok(false)
    }
}
