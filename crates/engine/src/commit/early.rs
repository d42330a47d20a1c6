//! Publishes simple lazy commits before they are in the base.
//!
//! The call of a lazy commit returns before the log is flushed, and the base must not change before
//! that. If a transaction that begins meanwhile had to wait for the base, a program that commits in
//! a loop would flush for each commit. So a commit that only makes, replaces and removes files in
//! old directories is *published* right away: the known objects, their histories and `base::ahead`
//! show what it has done. Transactions read that and commit over it; the base follows at the next
//! flush. Those that wait then are applied as one, so the base never gets what a later one of them
//! replaces or removes; the history does. What the record of such a commit carries is kept in memory
//! until the base has it (`base::carried`).
//!
//! A commit *leans on* another one that was published early if its transaction has seen something of
//! it, or touches the same. If the base cannot take the one, the other is cancelled as well.
//!
//! Invariants
//! 1. What a commit replaces is kept for all snapshots that were open when it was published, before
//!    anything shows the commit. Every transaction that begins later shows it: both happen under the
//!    lock of the open transactions.
//! 2. When a commit is applied, the base has the objects as the known ones were right before it was
//!    published (`Found`), or an outside writer has changed them.
//! 3. A commit is taken back only after all that lean on it, newest first. So each takes the objects
//!    back to what they were.
//! 4. A commit is published early only if all before it in the queue are. So what it keeps of
//!    directories differs from the base only by their times.
//! 5. While there is a guard, no commit is published early. A call through it may change the inode
//!    that such a commit has replaced, and older snapshots still read that: what the call replaces
//!    could be kept only beneath the versions of the commit.

use std::collections::HashSet;
use std::iter;
use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Kind, Name, Stat};

use crate::base::ahead::{AheadChange, Before, Found, NameAhead};
use crate::base::carried::CarriedObject;
use crate::base::core::Core;
use crate::base::entry_place::{EntryPlace, Parent};
use crate::base::{Base, Changed, Place};
use crate::commit::keep::Older;
use crate::commit::publish::stamp;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::open_transactions::OpenTransactions;
use crate::store::queue::{Early, Pending, Queue};
use crate::view::View;
use crate::write_set::{CreatedPlace, Object, WriteSet};

/// Whether a commit only makes, replaces and removes files in directories that the base has.
fn is_simple(set: &WriteSet) -> bool {
    // The new objects that a name gets, each once, and the names.
    let (mut placed, mut names) = (HashSet::new(), HashSet::new());
    let mut places = |index: Option<usize>, directory: &Arc<Base>, name: &Name| {
        let is_simple = index.is_none_or(|index| {
            let created = &set.created[index];
            let is_slot = matches!(created.place, CreatedPlace::Slot(_));
            is_slot && created.kind != Kind::Directory && placed.insert(index)
        });
        is_simple && names.insert((directory.serial, name.clone()))
    };
    let are_entries_simple = set.entries.iter().all(|entry| {
        let dies = |before: &Arc<Base>| before.kind != Kind::Directory && set.is_dying(before);
        let after = match &entry.after {
            None => None,
            Some(Object::Created(index)) => Some(*index),
            Some(Object::Base(_)) => return false,
        };
        match &entry.directory {
            Object::Base(directory) => {
                entry.before.as_ref().is_none_or(dies) && places(after, directory, &entry.name)
            }
            Object::Created(_) => false,
        }
    });
    let are_objects_simple = set.objects.iter().all(|object| {
        let Some(contents) = &object.contents else {
            return object.is_implied;
        };
        let place = object.base.state().place.clone();
        match (contents.replacement, place) {
            (Some(index), Place::Entry { parent, name }) => places(Some(index), &parent, &name),
            _ => false,
        }
    });
    // A file that loses one of several names lives on.
    let removed = set.entries.iter().filter(|entry| entry.before.is_some());
    are_entries_simple
        && are_objects_simple
        && removed.count() == set.dying.len()
        && placed.len() == set.created.len()
        && set.removed_directories.is_empty()
        && set.restored.is_empty()
        && set.successions.is_empty()
}

impl<D: Disk> Store<D> {
    /// Publishes a lazy commit that is about to be queued, if that is possible. `open`: no transaction
    /// begins meanwhile.
    pub(super) fn publish_early(
        &self,
        state: &CommitState<D>,
        open: &OpenTransactions<D>,
        (pending, carried): (&mut Pending<D>, &[Arc<CarriedObject>]),
    ) {
        let core = &*self.0.core;
        let record = &pending.record;
        let last = state.queue.commits.back();
        let is_behind_early = last.is_none_or(|last| last.early.is_some());
        if record.groups.is_some()
            || !is_behind_early
            || self.0.gate.is_guarded()
            || !is_simple(&pending.set)
        {
            return;
        }
        let sequence = Sequence(record.sequence);
        let own = TransactionId(record.transaction);
        let before = Sequence(sequence.0.saturating_sub(1));
        let found = found_before(before, &pending.set);
        let names = pending.set.entries.iter();
        let changed_names = names.map(|entry| changed_at(&entry.directory, &entry.name));
        let changed_names = changed_names.collect();
        let Ok(kept) = self.keep_for(pending, Older::than(sequence, open, Some(own))) else {
            // It is tried again when the commit is applied.
            return;
        };
        // The staged files are open for writing, and nobody writes to them any more.
        core.handles.remove_transaction(own);
        let stage = TransactionId(record.stage);
        let mut change = plan(core, &pending.set, stage);
        let created = pending.set.created.iter().map(|created| created.identity);
        let carried = carried.iter().cloned().map(Some).chain(iter::repeat(None));
        change.objects = created.zip(carried).collect();
        core.ahead.enter(sequence, &change);
        for (_, base, new) in change.put() {
            let old = std::mem::replace(&mut base.state().identity, new);
            if old != new {
                core.index_also(base, new);
            }
            // Others that find the object changed see by this that no outside writer did it.
            if let Ok(stat) = core.stat_now(base) {
                stamp(base, &stat, sequence);
            }
        }
        for base in pending.set.dying.values() {
            let mut state = base.state();
            state.place = Place::Limbo(names::limbo(state.identity));
        }
        pending.early = Some(Early {
            found,
            change,
            changed_names,
            kept: Some(kept),
        });
    }

    /// After a commit that was published early is in the base: the base has what the known objects
    /// are, unless later commits have changed these.
    pub(super) fn settle_early(&self, state: &mut CommitState<D>, pending: &Pending<D>) {
        let (core, Some(early)) = (&*self.0.core, &pending.early) else {
            return;
        };
        let sequence = Sequence(pending.record.sequence);
        for Before { base, identity, .. } in early.found.all() {
            core.handles.forget(*identity);
            if base.identity() != *identity {
                core.unindex(*identity);
            }
        }
        let mut stamped = Vec::new();
        for (name, base, new) in early.change.put() {
            let Some(stat) = placed(core, name, new) else {
                continue;
            };
            let next = core.on_the_way.next_to_touch(base.serial, sequence);
            if let Some(next) = next.and_then(|next| state.queue.find_mut(next)) {
                next.seen.note_moved(base, &stat);
            }
            if base.identity() == new {
                stamp(base, &stat, sequence);
                stamped.push((base.serial, base.clone()));
            }
        }
        lock(&self.0.retained).extend(stamped);
    }

    /// It is in the base now, or was cancelled.
    pub(super) fn leave_early(&self, pending: &Pending<D>) {
        if let Some(early) = &pending.early {
            let sequence = Sequence(pending.record.sequence);
            self.0.core.ahead.leave(sequence, &early.change);
        }
    }

    /// Takes back what the known objects show of a commit.
    pub(super) fn take_back_early(&self, pending: &mut Pending<D>) {
        let core = &*self.0.core;
        let Some(early) = &pending.early else {
            return;
        };
        let sequence = Sequence(pending.record.sequence);
        for (_, base, new) in early.change.put() {
            if early.found.has(base) {
                core.unindex(new);
            }
        }
        for before in early.found.all() {
            let mut state = before.base.state();
            (state.identity, state.place) = (before.identity, before.place.clone());
            if let Some(history) = &mut state.history {
                history.forget_versions(sequence);
                let now = &mut history.changed;
                let (outside, doubt) = (now.outside, now.doubt);
                *now = Changed {
                    outside,
                    doubt,
                    ..before.changed.clone()
                };
            }
        }
        let names = pending.set.entries.iter().zip(&early.changed_names);
        for (entry, changed) in names {
            let Object::Base(directory) = &entry.directory else {
                continue;
            };
            if let Some(history) = &mut directory.state().history {
                match changed {
                    Some(by) => _ = history.changed.names.insert(entry.name.clone(), *by),
                    None => _ = history.changed.names.remove(&entry.name),
                }
            }
        }
        for NameAhead { directory, .. } in &early.change.names {
            if let Some(history) = &mut directory.state().history {
                history.forget_versions(sequence);
            }
        }
        self.leave_early(pending);
        pending.early = None;
    }
}

/// Of all that a simple commit replaces or removes. `before`: the commit before it.
fn found_before(before: Sequence, set: &WriteSet) -> Found {
    let mut found = Found::at(before);
    let removed = set.dying.values().chain(set.replaced());
    removed.for_each(|base| found.note(base));
    found
}

/// The newest commit that has changed a name, as far as that is remembered.
fn changed_at(directory: &Object, name: &Name) -> Option<Sequence> {
    let Object::Base(directory) = directory else {
        return None;
    };
    let state = directory.state();
    state.changed()?.names.get(name).copied()
}

/// What there is to change in the known objects.
fn plan<D: Disk>(core: &Core<D>, set: &WriteSet, stage: TransactionId) -> AheadChange {
    let mut change = AheadChange::default();
    let staged = |index: usize| {
        let CreatedPlace::Slot(slot) = set.created[index].place else {
            unreachable!("it has a slot");
        };
        EntryPlace {
            parent: Parent::Stage(stage),
            name: names::slot(slot),
        }
    };
    for entry in &set.entries {
        let Object::Base(directory) = &entry.directory else {
            continue;
        };
        let mut after = None;
        let mut places = vec![EntryPlace {
            parent: Parent::Directory(directory.identity()),
            name: entry.name.clone(),
        }];
        if let Some(Object::Created(index)) = &entry.after {
            let created = &set.created[*index];
            let here = Place::Entry {
                parent: directory.clone(),
                name: entry.name.clone(),
            };
            let base = core.intern_known(created.identity, created.kind, here.clone());
            base.state().place = here;
            change.places.push((created.identity, staged(*index)));
            places.push(staged(*index));
            after = Some((base, created.identity));
        }
        if let Some(before) = &entry.before {
            let identity = before.identity();
            let places = places.into_iter().map(|place| (identity, place));
            change.places.extend(places);
        }
        change.names.push(NameAhead {
            directory: directory.clone(),
            name: entry.name.clone(),
            put: after,
        });
    }
    for object in &set.objects {
        let contents = object.contents.as_ref();
        let replacement = contents.and_then(|contents| contents.replacement);
        let place = object.base.state().place.clone();
        if let (Some(index), Place::Entry { parent, name }) = (replacement, place) {
            let new = set.created[index].identity;
            let old = object.base.identity();
            // A later commit may remove the object before this one is applied.
            let in_base = EntryPlace {
                parent: Parent::Directory(parent.identity()),
                name: name.clone(),
            };
            change.places.push((old, in_base));
            change.places.push((old, staged(index)));
            change.places.push((new, staged(index)));
            change.names.push(NameAhead {
                directory: parent,
                name,
                put: Some((object.base.clone(), new)),
            });
        }
    }
    change
}

/// The attributes of an object at the name to which the commit has brought it.
fn placed<D: Disk>(core: &Core<D>, at: &NameAhead, inode: Identity) -> Option<Stat> {
    let handle = core.directory(&at.directory).ok()?;
    let stat = core.disk.stat_at(&handle, &at.name).ok()?;
    (stat.identity == inode).then_some(stat)
}

/// Refuses once to commit what has seen something of a commit that was cancelled.
pub(super) fn refuse_vanished<D: Disk>(
    queue: &Queue<D>,
    view: &View<D>,
) -> Result<(), CommitError> {
    let vanished = view.leans_on.take(|one| queue.vanished.contains_key(one));
    match vanished.and_then(|one| queue.vanished.get(&one)) {
        Some(path) => Err(leaned_on(path)),
        None => Ok(()),
    }
}

/// The error of a commit that leans on one which the base could not take.
pub(super) fn leaned_on(path: &[u8]) -> CommitError {
    CommitError::Conflict(vec![Conflict {
        path: path.to_vec(),
        what: ConflictKind::Entry,
        by: ChangedBy::Outside,
    }])
}
