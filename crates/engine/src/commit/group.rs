//! Group commit: commits that wait together share one flush of the log.
//!
//! A commit is appended under the commit lock and joins the queue. Then one of
//! those that wait flushes the log for all, without the lock, so that others
//! can be appended meanwhile; their turn comes with the next flush.
//!
//! Invariants
//! 1. Commits are applied in the order of the log, and only once a flush that
//!    began after they were appended has succeeded.
//! 2. There is one flush at a time: an error of the disk is told to one flush
//!    only, and must not be missed by another.
//! 3. What waits in the queue is in no history yet, so a commit is validated
//!    while another waits only if neither touches what the other does, and it
//!    has read nothing that the other changes.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use atomdir_disk::{Disk, Kind, Name, Timestamp, reason};
use atomdir_format::record::CommitRecord;

use crate::apply::Writers;
use crate::base::Base;
use crate::commit::CommitState;
use crate::commit::stalled::Attempt;
use crate::error::{Stalled, StoreError};
use crate::ids::Sequence;
use crate::lock;
use crate::progress::Meter;
use crate::rules::Rule;
use crate::store::Store;
use crate::view::read_set::{EntriesRead, ObjectReads, ReadSet};
use crate::write_set::{Object, WriteSet};

/// A logged commit that is not yet in the base.
pub(crate) struct Pending<D: Disk> {
    pub record: CommitRecord,
    pub set: WriteSet,
    /// It has returned already.
    pub is_lazy: bool,
    /// The files it changes in place, opened before the record was logged: that
    /// they may be written is certain then, and no program can be started from them.
    pub writers: Writers<D>,
    /// How far publishing it has come, if it was tried before.
    pub attempt: Option<Attempt>,
}

pub(crate) struct Queue<D: Disk> {
    /// In the order of the log.
    pub commits: VecDeque<Pending<D>>,
    is_flushing: bool,
}

impl<D: Disk> Default for Queue<D> {
    fn default() -> Self {
        Queue {
            commits: VecDeque::new(),
            is_flushing: false,
        }
    }
}

/// More that wait are not worth what looking through them costs.
const COMMITS_MAX: usize = 128;
const CHANGES_MAX: usize = 4096;

pub(crate) type Guard<'a, D> = MutexGuard<'a, CommitState<D>>;

impl<D: Disk> Store<D> {
    /// The commit lock, with everything in the log durable and in the base.
    pub(crate) fn lock_settled(&self) -> Result<Guard<'_, D>, StoreError> {
        let mut state = self.wait_for_flush(lock(&self.0.commit));
        if !state.queue.commits.is_empty() {
            self.refuse_if_poisoned()?;
            let newest = state.newest;
            let flushed = state.log.flush(&self.0.core.disk, newest.0);
            flushed.map_err(|errno| {
                self.poison(format!(
                    "flushing the log failed: {errno}",
                    errno = reason(errno)
                ))
            })?;
            self.publish_queue(&mut state, newest, &mut Meter::new(&mut |_| {}))?;
        }
        Ok(state)
    }

    /// Waits until an appended commit is durable and in the base, or durable and
    /// behind a commit that is stalled, or stalled itself.
    pub(crate) fn settle_commit<'a>(
        &'a self,
        mut state: Guard<'a, D>,
        sequence: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Stalled>, StoreError> {
        let core = &*self.0.core;
        while lock(&self.0.open).published < sequence {
            self.refuse_if_poisoned()?;
            let stalled = lock(&self.0.stalled).clone();
            if stalled.is_some() && state.log.durable() >= sequence.0 {
                return Ok(stalled);
            }
            if !state.queue.holds(sequence) {
                // Whoever took it out panicked: nobody would ever publish it.
                return Err(self.poison(format!("commit {sequence} was not applied to its end")));
            }
            if state.queue.is_flushing {
                state = self.wait_for_flush(state);
                continue;
            }
            state.queue.is_flushing = true;
            let (file, newest) = (state.log.file(), state.newest);
            drop(state);
            let flushed = core.disk.sync_data(&file);
            state = lock(&self.0.commit);
            state.queue.is_flushing = false;
            self.0.flushed.notify_all();
            if let Err(errno) = flushed {
                return Err(self.poison(format!(
                    "flushing the log failed: {errno}",
                    errno = reason(errno)
                )));
            }
            state.log.note_durable(newest.0);
            // If another's cannot be applied, this one may have been before.
            let _ = self.publish_queue(&mut state, newest, meter);
        }
        Ok(None)
    }

    fn wait_for_flush<'a>(&self, mut state: Guard<'a, D>) -> Guard<'a, D> {
        while state.queue.is_flushing {
            let woken = self.0.flushed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn publish_queue(
        &self,
        state: &mut CommitState<D>,
        durable: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let is_durable = |pending: &Pending<D>| pending.record.sequence <= durable.0;
        let mut published = Ok(());
        while published.is_ok()
            && state.queue.commits.front().is_some_and(is_durable)
            && let Some(mut pending) = state.queue.commits.pop_front()
        {
            published = self.publish(state, &mut pending, meter);
            let stalled = match &published {
                Err(StoreError::Stalled(stalled)) => Some(stalled.clone()),
                _ => None,
            };
            if stalled.is_some() {
                state.queue.commits.push_front(pending);
            }
            self.note_stalled(stalled);
        }
        let has_lazy = state.queue.commits.iter().any(|pending| pending.is_lazy);
        let is_stalled = matches!(published, Err(StoreError::Stalled(_)));
        let has_pending = has_lazy || is_stalled;
        self.0.has_pending.store(has_pending, Ordering::Release);
        published
    }
}

impl<D: Disk> Queue<D> {
    /// Whether a commit can be validated and appended while these wait.
    pub fn admits(&self, set: &WriteSet, reads: Option<&ReadSet>) -> bool {
        if self.commits.is_empty() {
            return true;
        }
        if self.commits.len() >= COMMITS_MAX || set.entries.len() > CHANGES_MAX {
            return false;
        }
        if reads.is_some_and(|reads| reads.len() > CHANGES_MAX) {
            return false;
        }
        let footprint = Footprint::of(set);
        self.commits
            .iter()
            .all(|pending| footprint.is_apart_from(&pending.set, reads))
    }

    fn holds(&self, sequence: Sequence) -> bool {
        let mut waiting = self.commits.iter();
        waiting.any(|pending| pending.record.sequence == sequence.0)
    }

    /// The modification time that a directory is on its way to.
    pub fn modified(&self, serial: u64) -> Option<Timestamp> {
        let sets = self.commits.iter().rev().map(|pending| &pending.set);
        let mut objects = sets.flat_map(|set| &set.objects);
        objects.find_map(|object| {
            (object.base.serial == serial).then_some(object.attributes.modified)?
        })
    }
}

/// What a commit reads and writes of the base while it is validated, logged
/// and applied.
#[derive(Default)]
struct Footprint {
    /// By serial, with those whose times alone change because of entries.
    objects: HashSet<u64>,
    /// By serial: what else of an object is changed, or its names.
    changed: HashSet<u64>,
    entries: HashSet<(u64, Name)>,
    /// Directories move or go: that touches everything beneath.
    moves_directories: bool,
}

impl Footprint {
    fn of(set: &WriteSet) -> Footprint {
        let mut footprint = Footprint {
            moves_directories: !set.removed_directories.is_empty(),
            ..Footprint::default()
        };
        for entry in &set.entries {
            if let Object::Base(directory) = &entry.directory {
                footprint.objects.insert(directory.serial);
                footprint
                    .entries
                    .insert((directory.serial, entry.name.clone()));
            }
            let after = match &entry.after {
                Some(Object::Base(base)) => Some(base),
                _ => None,
            };
            entry
                .before
                .iter()
                .chain(after)
                .for_each(|base| footprint.change(base));
        }
        for object in &set.objects {
            footprint.objects.insert(object.base.serial);
            if !object.is_implied {
                footprint.changed.insert(object.base.serial);
            }
        }
        set.dying.values().for_each(|base| footprint.change(base));
        footprint
    }

    fn change(&mut self, base: &Arc<Base>) {
        self.objects.insert(base.serial);
        self.changed.insert(base.serial);
        self.moves_directories |= base.kind == Kind::Directory;
    }

    fn is_apart_from(&self, set: &WriteSet, reads: Option<&ReadSet>) -> bool {
        if set.entries.len() > CHANGES_MAX {
            return false;
        }
        let other = Footprint::of(set);
        let moves_directories = self.moves_directories || other.moves_directories;
        let meets = |rule: Rule, is_apart: bool| rule.holds() && !is_apart;
        let touches = self.objects.is_disjoint(&other.changed);
        let entries = self.entries.is_disjoint(&other.entries);
        !meets(Rule::GroupMovedDirectory, !moves_directories)
            && !meets(Rule::GroupTouchesWhatWaits, touches)
            && !meets(Rule::GroupEntries, entries)
            && reads.is_none_or(|reads| !reads.iter().any(|read| other.changes(read)))
    }

    /// Whether it changes anything that was read.
    fn changes(&self, read: &ObjectReads) -> bool {
        let serial = read.base.serial;
        let changes_entries = match &read.entries {
            EntriesRead::None => false,
            EntriesRead::Names(names) => {
                let mut names = names.keys();
                names.any(|name| self.entries.contains(&(serial, name.clone())))
                    && Rule::GroupReadNames.holds()
            }
            EntriesRead::Listed(_) | EntriesRead::Torn => {
                self.objects.contains(&serial) && Rule::GroupReadListing.holds()
            }
        };
        changes_entries || (self.changed.contains(&serial) && Rule::GroupReadChanged.holds())
    }
}
