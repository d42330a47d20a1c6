//! Brings a logged commit into the base, keeping for older snapshots what it
//! replaces.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use atomdir_disk::{Disk, Identity, Kind, Name};

use crate::apply::{Apply, ApplyError, Desired};
use crate::base::{Base, OwnStamp, Place, Stamp};
use crate::commit::CommitState;
use crate::core::Core;
use crate::error::StoreError;
use crate::group::Pending;
use crate::ids::{Sequence, TransactionId};
use crate::keep::{Keeper, Snapshots};
use crate::lock;
use crate::names;
use crate::progress::Meter;
use crate::store::Store;
use crate::write_set::{Object, WriteSet};

impl<D: Disk> Store<D> {
    pub(crate) fn publish(
        &self,
        state: &mut CommitState<D>,
        pending: &Pending,
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        let _applying = core
            .applying
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let sequence = Sequence(pending.record.sequence);
        let snapshots = Snapshots(self.open_snapshots());
        let keeps_old = !snapshots.0.is_empty();
        let mut unseen = HashSet::new();
        if keeps_old {
            let mut keeper = Keeper {
                core,
                sequence,
                snapshots: &snapshots,
                unseen: &mut unseen,
            };
            let kept = keeper.keep(&pending.set);
            let kept = kept.map_err(|errno| {
                self.poison(format!(
                    "the old state could not be kept for open snapshots: {errno}"
                ))
            })?;
            let mut retained = lock(&self.0.retained);
            retained.extend(kept.into_iter().map(|base| (base.serial, base)));
        }
        let desired = Desired::of(std::slice::from_ref(&pending.record), false);
        let limbo = keeps_old.then_some(&unseen);
        self.apply(state, &desired, limbo, sequence, meter)?;
        state.applied.extend(desired.files());
        remember_places(core, &pending.set, keeps_old.then_some(sequence));
        core.control.applied.advance(&core.disk, sequence);
        let transaction = TransactionId(pending.record.transaction);
        if pending.set.rides {
            // The record has all that was staged.
            core.drop_stage(transaction);
            state.stages.remove(&transaction);
        }
        lock(&self.0.open).published = sequence;
        Ok(())
    }

    fn apply(
        &self,
        state: &CommitState<D>,
        desired: &Desired,
        keeps_but: Option<&HashSet<Identity>>,
        sequence: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        let applied = state.with_reserve(core, || {
            let mut apply = Apply::new(core, desired, &state.applied, keeps_but);
            let result = apply.run(meter);
            let mut linked = lock(&self.0.linked_in_limbo);
            linked.append(&mut apply.linked_in_limbo);
            if desired.has_limbo_spots() {
                linked.clear();
            }
            drop(linked);
            result
        });
        applied.map_err(|ApplyError { path, reason, .. }| {
            self.poison(format!(
                "commit {sequence} could not be applied to '{path}': {reason}"
            ));
            StoreError::Apply {
                sequence,
                path,
                reason,
            }
        })
    }

    fn open_snapshots(&self) -> Vec<Sequence> {
        let open = lock(&self.0.open);
        let mut snapshots: Vec<Sequence> = open
            .by_id
            .values()
            .map(|transaction| transaction.at)
            .collect();
        snapshots.sort();
        snapshots
    }
}

/// After the base has changed: where its objects are now, and what they look like
/// if that must be known for older snapshots.
fn remember_places<D: Disk>(core: &Core<D>, set: &WriteSet, kept_by: Option<Sequence>) {
    let mut replaced: HashMap<usize, Arc<Base>> = HashMap::new();
    let mut directories: Vec<Option<Arc<Base>>> = vec![None; set.created.len()];
    for object in &set.objects {
        let replacement = object
            .contents
            .as_ref()
            .and_then(|contents| contents.replacement);
        if let Some(index) = replacement {
            replaced.insert(index, object.base.clone());
            let new = set.created[index].identity;
            let old = std::mem::replace(&mut object.base.state().identity, new);
            core.reindex(&object.base, old, new);
            core.handles.forget(old);
        }
    }
    for base in set.dying.values() {
        core.handles.forget(base.state().identity);
    }
    for removed in &set.removed_directories {
        for (name, base) in set.survivors(removed) {
            lost_name(core, base, &removed.base, name);
        }
    }
    for entry in &set.entries {
        if let (Some(before), Object::Base(directory)) = (&entry.before, &entry.directory) {
            lost_name(core, before, directory, &entry.name);
        }
    }
    for entry in &set.entries {
        let moved = match &entry.after {
            Some(Object::Base(base)) => base.clone(),
            Some(Object::Created(index)) => match replaced.get(index).cloned() {
                Some(base) => base,
                None => continue,
            },
            None => continue,
        };
        let parent = match &entry.directory {
            Object::Base(base) => Some(base.clone()),
            Object::Created(index) => created_directory(core, set, *index, &mut directories),
        };
        if let Some(parent) = parent {
            core.set_place(&moved, &parent, &entry.name);
        }
    }
    if let Some(sequence) = kept_by {
        stamp_changed(core, set, sequence);
    }
}

/// An object that is known by the name it loses, and may have others, is to be
/// found by its handle or in limbo until one of those is looked up.
fn lost_name<D: Disk>(core: &Core<D>, base: &Base, directory: &Arc<Base>, name: &Name) {
    let mut state = base.state();
    if state.place.is_entry(directory, name) {
        state.place = match core.handles.held(state.identity) {
            Some(_) => Place::Held,
            None => Place::Limbo(names::limbo(state.identity)),
        };
    }
}

/// The base object of a new directory that something old was moved into.
fn created_directory<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    index: usize,
    known: &mut Vec<Option<Arc<Base>>>,
) -> Option<Arc<Base>> {
    if let Some(base) = &known[index] {
        return Some(base.clone());
    }
    let (parent, name) = match &set.created[index].place {
        crate::write_set::CreatedPlace::Entry { directory, name } => (
            created_directory(core, set, *directory, known)?,
            name.clone(),
        ),
        crate::write_set::CreatedPlace::Slot(_) => {
            let is_it = |after: &Option<Object>| matches!(after, Some(Object::Created(created)) if *created == index);
            let entry = set.entries.iter().find(|entry| is_it(&entry.after))?;
            let parent = match &entry.directory {
                Object::Base(base) => base.clone(),
                Object::Created(above) => created_directory(core, set, *above, known)?,
            };
            (parent, entry.name.clone())
        }
    };
    let handle = core.directory(&parent).ok()?;
    let stat = core.disk.stat_at(&handle, &name).ok()?;
    let base = core.intern(&stat, &parent, &name);
    known[index] = Some(base.clone());
    Some(base)
}

/// What our own change left behind is not an outside writer's.
fn stamp_changed<D: Disk>(core: &Core<D>, set: &WriteSet, left_by: Sequence) {
    let of_entries = set.entries.iter().flat_map(|entry| {
        let after = match &entry.after {
            Some(Object::Base(base)) => Some(base.clone()),
            _ => None,
        };
        [after, entry.before.clone()]
    });
    let of_removed = set
        .removed_directories
        .iter()
        .flat_map(|removed| set.survivors(removed).map(|(_, base)| base.clone()));
    let bases = of_entries
        .flatten()
        .chain(of_removed)
        .chain(set.objects.iter().map(|object| object.base.clone()));
    for base in bases.filter(|base| base.kind != Kind::Directory) {
        if let Ok(stat) = core.stat_now(&base) {
            let stamp = Stamp::of(&stat);
            base.state().history_mut().changed.own_stamp = Some(OwnStamp { stamp, left_by });
        }
    }
}
