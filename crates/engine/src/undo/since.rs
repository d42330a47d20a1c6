//! The commits from the first one that is undone to the snapshot.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};

use atomdir_disk::{Disk, Identity, Kind, Name, Timestamp};
use atomdir_format::past::{PastRecord, SettledBy};
use atomdir_format::record::{
    Before, CommitRecord, DirectoryReference, EntryChange, Locator, LogRecord, ObjectReference,
    Update,
};
use atomdir_types::TreePath;

use crate::error::UndoError;
use crate::ids::Sequence;
use crate::store::Store;
use crate::transaction::Transaction;

pub(super) struct Since {
    /// In the commit order, without gaps. Some belong to no commit: they were cancelled.
    pub steps: Vec<Step>,
    /// All undos up to the snapshot that are kept, and the commits that each takes back.
    pub undos: Vec<(Sequence, Vec<Sequence>)>,
}

pub(super) struct Step {
    pub sequence: Sequence,
    pub is_undone: bool,
    /// The commit was undone since, or is such an undo, and both are as if they had not been. What
    /// came between them has changed nothing that they change, or the undo would have been refused.
    pub is_neutral: bool,
    /// See [`PastRecord::settled`].
    pub settled: Timestamp,
    pub settled_by: SettledBy,
    /// See [`PastRecord::is_given_up`].
    pub is_given_up: bool,
    pub record: LogRecord,
    /// The paths of its directories, once one was asked for.
    directory_paths: OnceCell<Vec<TreePath>>,
}

impl<D: Disk> Store<D> {
    pub(super) fn since(
        &self,
        transaction: &Transaction<D>,
        commits: &[Sequence],
    ) -> Result<Since, UndoError> {
        let at = transaction.at();
        let undone: BTreeSet<u64> = commits.iter().map(|commit| commit.0).collect();
        let Some(first) = undone.first().copied() else {
            return Ok(Since {
                steps: Vec::new(),
                undos: Vec::new(),
            });
        };
        transaction.use_past(Sequence(first.saturating_sub(1)));
        if let Some(last) = undone.last().filter(|last| **last > at.0) {
            return Err(UndoError::NotYet(Sequence(*last)));
        }
        let core = &*self.0.core;
        let mut state = self.lock_without_pending()?;
        // The snapshot may be behind calls through a guard.
        self.log_epochs(&mut state)?;
        let journal = &state.journal;
        let mut steps: Vec<Step> = Vec::new();
        let mut undos = Vec::new();
        let mut add = |record: PastRecord| {
            let sequence = record.record.sequence();
            let taken_back = record.record.commit().map_or_else(Vec::new, taken_back);
            // After a checkpoint that failed, the past and the log have the same commits.
            let is_new = undos
                .last()
                .is_none_or(|(last, _): &(Sequence, _)| last.0 < sequence);
            if !taken_back.is_empty() && is_new && sequence <= at.0 {
                undos.push((Sequence(sequence), taken_back));
            }
            let next = steps.last().map_or(first, |last| last.sequence.0 + 1);
            if sequence == next && sequence <= at.0 {
                steps.push(Step {
                    sequence: Sequence(sequence),
                    is_undone: undone.contains(&sequence),
                    is_neutral: false,
                    settled: record.settled,
                    settled_by: record.settled_by,
                    is_given_up: record.is_given_up,
                    record: record.record,
                    directory_paths: OnceCell::new(),
                });
            }
        };
        if let Some(past) = &journal.past {
            past.for_each(core, &mut add)?;
        }
        journal.for_each_logged(core, |logged| {
            let settled = journal.settled.get(&logged.sequence()).copied();
            let settled = settled.unwrap_or(logged.time());
            if let Some(record) = PastRecord::of(logged, settled) {
                add(record);
            }
            Ok(())
        })?;
        match steps.last() {
            Some(last) if last.sequence == at => {
                let commits = at.0 - first + 1;
                assert!(
                    steps.len() as u64 == commits,
                    "an undo does not know every commit since"
                );
                let mut since = Since { steps, undos };
                since.find_neutral()?;
                Ok(since)
            }
            Some(last) => Err(UndoError::NotKept(last.sequence.next())),
            None => Err(UndoError::NotKept(Sequence(first))),
        }
    }
}

impl Since {
    /// Whether the commit is one of those to be undone.
    pub fn is_undone(&self, commit: Sequence) -> bool {
        let mut undone = self.steps.iter().filter(|step| step.is_undone);
        undone.any(|step| step.sequence == commit)
    }
}

fn taken_back(commit: &CommitRecord) -> Vec<Sequence> {
    let before = commit.before.iter();
    let taken_back = before.flat_map(|before| &before.takes_back);
    taken_back.copied().map(Sequence).collect()
}

/// A sequence that belongs to no commit has changed nothing: its lists are empty.
impl Step {
    pub fn is_commit(&self) -> bool {
        self.record.commit().is_some()
    }

    pub fn time(&self) -> Timestamp {
        self.record.time()
    }

    pub fn entries(&self) -> &[EntryChange] {
        self.record.commit().map_or(&[], |commit| &commit.entries)
    }

    pub fn objects(&self) -> &[ObjectReference] {
        self.record.commit().map_or(&[], |commit| &commit.objects)
    }

    pub fn updates(&self) -> &[Update] {
        self.record.commit().map_or(&[], |commit| &commit.updates)
    }

    pub fn before(&self) -> Option<&Before> {
        self.record.commit()?.before.as_ref()
    }

    pub fn directories(&self) -> &[DirectoryReference] {
        let commit = self.record.commit();
        commit.map_or(&[], |commit| &commit.directories)
    }

    pub fn directory(&self, index: u32) -> Identity {
        self.directories()[index as usize].identity
    }

    pub fn object(&self, index: u32) -> Identity {
        self.objects()[index as usize].identity
    }

    /// The directories and objects that the record mentions, and where they were.
    pub fn mentioned(&self) -> impl Iterator<Item = (Identity, &Locator)> + '_ {
        let directories = self.directories().iter();
        let directories = directories.map(|of| (of.identity, &of.locator));
        let objects = self.objects().iter();
        directories.chain(objects.map(|of| (of.identity, &of.locator)))
    }

    pub fn after(&self, entry: &EntryChange) -> Option<Identity> {
        entry.after.map(|index| self.object(index))
    }

    /// Whether it has put a directory under a name, perhaps a new one.
    pub fn names_directory(&self) -> bool {
        let mut named = self.entries().iter().filter_map(|entry| entry.after);
        named.any(|index| self.objects()[index as usize].kind == Kind::Directory)
    }

    pub fn leaves_traces(&self) -> bool {
        self.before().is_some_and(|before| before.leaves_traces)
    }

    /// The places of the updates, by the objects that they change.
    pub fn update_places(&self) -> HashMap<u32, usize> {
        let updates = self.updates().iter().enumerate();
        updates
            .map(|(place, update)| (update.object, place))
            .collect()
    }

    /// The files that got another inode: the one before, and the one after.
    pub fn successions(&self) -> impl Iterator<Item = (Identity, Identity)> + '_ {
        let before = self.before().into_iter();
        let successions = before.flat_map(|before| &before.successions);
        successions.map(|one| (one.before, self.object(one.after)))
    }

    /// The place that the record gives for an object, if it was in the base.
    pub fn place(&self, locator: &Locator) -> Option<(Identity, Name)> {
        match locator {
            Locator::Entry { directory, name } => Some((self.directory(*directory), name.clone())),
            Locator::Root | Locator::Staged { .. } | Locator::Limbo => None,
        }
    }

    /// The path of an entry at that time, as far as the record says it.
    pub fn path(&self, directory: u32, name: &Name) -> TreePath {
        let directories = self.directory_paths.get_or_init(|| {
            let named = self
                .entries()
                .iter()
                .filter_map(|entry| Some((self.after(entry)?, (entry.directory, &entry.name))));
            let named: HashMap<Identity, (u32, &Name)> = named.collect();
            let count = self.directories().len();
            let paths = (0..count).map(|index| self.directory_path(index, &named, count));
            paths.collect()
        });
        directories[directory as usize].join(name.as_bytes())
    }

    /// `named`: the names that the commit gave to objects. `depth`: no directory is further down.
    fn directory_path(
        &self,
        index: usize,
        named: &HashMap<Identity, (u32, &Name)>,
        depth: usize,
    ) -> TreePath {
        let directory = &self.directories()[index];
        let place = match &directory.locator {
            Locator::Entry { directory, name } => Some((*directory, name)),
            Locator::Root => None,
            Locator::Staged { .. } | Locator::Limbo => named.get(&directory.identity).copied(),
        };
        match place.filter(|_| depth > 0) {
            Some((above, name)) => {
                let above = self.directory_path(above as usize, named, depth - 1);
                above.join(name.as_bytes())
            }
            None => TreePath::default(),
        }
    }

    /// The directories above an entry.
    pub fn above(&self, directory: u32) -> impl Iterator<Item = Identity> + '_ {
        let up = |index: &u32| match &self.directories()[*index as usize].locator {
            Locator::Entry { directory, .. } => Some(*directory),
            _ => None,
        };
        std::iter::successors(Some(directory), up).map(|index| self.directory(index))
    }

    pub fn path_of_object(&self, index: u32) -> TreePath {
        match &self.objects()[index as usize].locator {
            Locator::Entry { directory, name } => self.path(*directory, name),
            _ => TreePath::default(),
        }
    }
}
