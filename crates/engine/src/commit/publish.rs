//! Brings a logged commit into the base, and keeps the replaced versions for older snapshots.

use crate::sync;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Stat, reason};

use crate::apply::{Apply, ApplyError, Desired, MOUNTED, TRIES_MAX, WritableFiles};
use crate::base::core::Core;
use crate::base::{Base, OldBody, OwnStamp, Place, Stamp};
use crate::commit::in_place;
use crate::commit::keep::{Keeper, Older, hold_unnamed};
use crate::commit::stalled::correct_places;
use crate::error::{Obstacle, Poison, Stalled, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::progress::Meter;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::queue::{Attempt, Pending};
use crate::write_set::{CreatedPlace, Object, Staging, WriteSet};

impl<D: Disk> Store<D> {
    /// Brings commits into the base: one, or several that are published early, which are applied as
    /// one. So what a later one of these replaces or removes is never written to the base.
    ///
    /// `StoreError::Stalled`: they are to be tried again.
    pub(crate) fn publish(
        &self,
        state: &mut CommitState<D>,
        batch: &mut [Pending<D>],
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        let _applying = sync::write(&core.applying);
        for pending in &*batch {
            self.assert_is_next(state, pending);
            if pending.landing().is_none() {
                // The transaction's own snapshot needs none of the versions that the commit replaces.
                let transaction = TransactionId(pending.record.transaction);
                lock(&self.0.open).by_id.remove(&transaction);
            }
        }
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else {
            return Ok(());
        };
        let (sequence, newest) = (first.sequence(), last.sequence());
        let is_early = first.early.is_some();
        let mut attempt = match batch[0].attempt.take() {
            Some(attempt) => attempt,
            None => match Attempt::kept_by(batch) {
                Some(attempt) => attempt,
                None => self.keep(&batch[0])?,
            },
        };
        let desired = Desired::of(batch.iter().map(|pending| &pending.record), false);
        attempt.restore_places();
        let is_shown_early = self.is_shown_early(sequence);
        if !is_early && (is_shown_early || attempt.keeps_but.is_some()) {
            hold_unnamed(core, &batch[0].set, sequence);
        }
        for (base, new) in batch.iter().flat_map(|pending| replacements(&pending.set)) {
            core.index_also(base, new);
        }
        core.turn();
        let applied = self.apply(state, &desired, &mut attempt, &batch[0].writers, meter);
        if let Err(error) = applied {
            if error.is_obstacle() {
                if !is_early {
                    correct_places(core, &batch[0].set, &mut attempt);
                }
                batch[0].attempt = Some(attempt);
            }
            return Err(self.refuse_more(sequence, error));
        }
        state.applied.extend(desired.files());
        let keeps_old = attempt.keeps_but.is_some();
        for pending in &*batch {
            in_place::watch_stores(core, &pending.set);
            if let Some(unseen) = &attempt.keeps_but {
                let (record, set) = (&pending.record, &pending.set);
                state.journal.forgotten.note_shown(record, set, unseen);
            }
            if is_early {
                self.settle_early(state, pending);
                self.leave_early(pending);
            } else {
                self.settle_late(&pending.set, sequence, (keeps_old, is_shown_early));
            }
        }
        core.turn();
        core.moving.forget_all();
        core.control.applied.advance(&core.disk, newest);
        let kept = batch.iter().filter(|one| one.record.before.is_some());
        let kept = kept.map(Pending::sequence);
        state.journal.note_settled(core, kept);
        state.journal.has_garbage |= keeps_old;
        for pending in &*batch {
            if pending.landing().is_none() {
                self.leave_stage(state, pending);
            }
            state.journal.note_published(&pending.record);
        }
        lock(&self.0.open).published = newest;
        Ok(())
    }

    fn assert_is_next(&self, state: &CommitState<D>, pending: &Pending<D>) {
        assert!(
            pending.record.sequence <= state.journal.log.durable(),
            "the record is durable first"
        );
        assert!(
            lock(&self.0.open).published < pending.sequence(),
            "the log's order is kept"
        );
    }

    /// The transaction of a commit that is in the base needs its staging directory no more.
    fn leave_stage(&self, state: &mut CommitState<D>, pending: &Pending<D>) {
        let core = &*self.0.core;
        let stage = core
            .stages
            .release(TransactionId(pending.record.transaction));
        if pending.staging != Staging::Carried || pending.keeps_stage {
            // The log needs something in it.
            return;
        }
        let is_filled = pending.pages > 0;
        // Another user's directory stays theirs.
        match pending.record.groups.is_none() {
            true => core.spare_stage(stage, is_filled),
            false => {
                core.drop_emptied_stage(stage, is_filled);
                state.stages.remove(&stage);
            }
        }
    }

    /// After a commit is in the base that was not published early: the known objects follow.
    fn settle_late(
        &self,
        set: &WriteSet,
        sequence: Sequence,
        (keeps_old, is_shown_early): (bool, bool),
    ) {
        let core = &*self.0.core;
        remember_places(core, set);
        let mut stamped = Vec::new();
        if keeps_old || is_shown_early {
            stamp_changed(core, set, sequence, &mut stamped);
        }
        if is_shown_early {
            stamp_created(core, set, sequence, &mut stamped);
            let stamped = stamped.into_iter().map(|base| (base.serial, base));
            lock(&self.0.retained).extend(stamped);
        }
    }

    /// Keeps the versions that the commit replaces, as far as open snapshots show them.
    fn keep(&self, pending: &Pending<D>) -> Result<Attempt, StoreError> {
        let sequence = Sequence(pending.record.sequence);
        let older = Older::than(sequence, &lock(&self.0.open), None);
        let kept = self.keep_for(pending, older);
        kept.map_err(|error| self.refuse_more(sequence, error))
    }

    pub(super) fn keep_for(
        &self,
        pending: &Pending<D>,
        older: Older,
    ) -> Result<Attempt, ApplyError> {
        let sequence = Sequence(pending.record.sequence);
        let (mut unseen, mut closed) = (HashSet::new(), HashSet::new());
        let keeps_old = older.is_any();
        if keeps_old {
            let mut keeper = Keeper {
                core: &self.0.core,
                sequence,
                older,
                unseen: &mut unseen,
                at: None,
                closed: HashSet::new(),
                is_guarded: false,
            };
            let mut kept = keeper.keep(&pending.set);
            for _ in 0..TRIES_MAX {
                let at = keeper.at.as_ref();
                if kept.is_ok() || !at.is_some_and(|at| self.0.core.uncover(at)) {
                    break;
                }
                kept = keeper.keep(&pending.set);
            }
            let kept = kept.map_err(|errno| {
                let path = keeper.at.as_ref().and_then(|base| base.path());
                unkept(path, errno)
            })?;
            closed = keeper.closed;
            let mut retained = lock(&self.0.retained);
            follow_restored(&pending.set, retained.values());
            retained.extend(kept.into_iter().map(|base| (base.serial, base)));
        }
        Ok(Attempt::new(keeps_old.then_some(unseen), closed))
    }

    /// Stalls the commit if the obstacle can go away, and poisons the store
    /// otherwise.
    fn refuse_more(&self, sequence: Sequence, error: ApplyError) -> StoreError {
        if let Some(errno) = error.flush_failed {
            return self.poison_unflushed("the base", errno);
        }
        let is_obstacle = error.is_obstacle();
        let ApplyError { path, reason, .. } = error;
        if is_obstacle {
            return StoreError::Stalled(Stalled {
                sequence,
                path,
                reason,
            });
        }
        let obstacle = Obstacle {
            path: path.clone(),
            reason: reason.clone(),
        };
        self.poison(Poison::NotApplied {
            sequence,
            obstacle: Some(obstacle),
        });
        StoreError::Apply {
            sequence,
            path,
            reason,
        }
    }

    fn apply(
        &self,
        state: &CommitState<D>,
        desired: &Desired,
        attempt: &mut Attempt,
        writers: &WritableFiles<D>,
        meter: &mut Meter<'_>,
    ) -> Result<(), ApplyError> {
        let core = &*self.0.core;
        let Attempt {
            keeps_but,
            progress,
            ..
        } = attempt;
        state.with_reserve(core, || {
            let earlier = &state.applied;
            let mut apply = Apply::new(core, desired, earlier, keeps_but.as_ref(), writers);
            apply.resume(std::mem::take(progress));
            let result = apply.run(meter);
            *progress = apply.into_progress();
            let mut linked = lock(&self.0.linked_in_limbo);
            linked.append(&mut progress.linked_in_limbo);
            if desired.has_limbo_spots() {
                linked.clear();
            }
            // The history needs these longer than snapshots do.
            linked.retain(|name| {
                let object = names::parse_limbo(name);
                object.is_none_or(|(identity, _)| !desired.is_buried(identity))
            });
            drop(linked);
            result
        })
    }

    /// Whether a transaction has begun that shows the commit, and which would take what it does to
    /// the base only now for a change from outside.
    fn is_shown_early(&self, sequence: Sequence) -> bool {
        let open = lock(&self.0.open);
        let mut snapshots = open.with_snapshots();
        snapshots.any(|transaction| transaction.at() >= sequence)
    }
}

/// The error for an object whose old state cannot be kept for open snapshots.
fn unkept(path: Option<Vec<u8>>, errno: Errno) -> ApplyError {
    let path = path.unwrap_or_else(|| b".atomdir/limbo".to_vec());
    let path = String::from_utf8_lossy(&path).into_owned();
    let reason = match errno {
        Errno::XDEV => MOUNTED.to_owned(),
        errno => format!(
            "its old state cannot be kept for open snapshots: {errno}",
            errno = reason(errno)
        ),
    };
    ApplyError::new(path, reason, errno)
}

/// The files that the commit gives new inodes, and those inodes.
fn replacements(set: &WriteSet) -> impl Iterator<Item = (&Arc<Base>, Identity)> {
    set.objects.iter().filter_map(|object| {
        let replacement = object.contents.as_ref()?.replacement?;
        Some((&object.base, set.created[replacement].identity))
    })
}

/// Older snapshots may see an inode in limbo that the commit brings back into the base. They
/// follow it there, and see what later commits replace in it.
fn follow_restored<'a>(set: &WriteSet, retained: impl Iterator<Item = &'a Arc<Base>>) {
    let in_set = set.entries.iter().filter_map(|entry| match &entry.after {
        Some(Object::Base(base)) => Some(base),
        _ => None,
    });
    let restored = in_set.filter(|base| set.restored.contains(&base.serial));
    let restored: HashMap<Identity, &Arc<Base>> =
        restored.map(|base| (base.identity(), base)).collect();
    if restored.is_empty() {
        return;
    }
    for base in retained {
        let mut state = base.state();
        let history = state.history.as_mut();
        for (_, body) in history.into_iter().flat_map(|history| &mut history.bodies) {
            if let OldBody::Moved { identity, .. } = &**body
                && let Some(restored) = restored.get(identity)
            {
                *body = Arc::new(OldBody::Restored((*restored).clone()));
            }
        }
    }
}

/// Remembers where objects are after the base has changed.
fn remember_places<D: Disk>(core: &Core<D>, set: &WriteSet) {
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
}

/// An object that is known by the name it loses may have others. Until one of
/// those is looked up, it is found by its handle or in limbo.
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
pub(crate) fn created_directory<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    index: usize,
    known: &mut Vec<Option<Arc<Base>>>,
) -> Option<Arc<Base>> {
    if let Some(base) = &known[index] {
        return Some(base.clone());
    }
    let (parent, name) = match &set.created[index].place {
        CreatedPlace::Entry { directory, name } => (
            created_directory(core, set, *directory, known)?,
            name.clone(),
        ),
        CreatedPlace::Slot(_) => {
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

/// Notes what our own change left behind, so that it is not taken for an outside
/// writer's.
fn stamp_changed<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    left_by: Sequence,
    stamped: &mut Vec<Arc<Base>>,
) {
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
            stamp(&base, &stat, left_by);
            stamped.push(base);
        }
    }
}

/// The same for new objects, which only transactions can see that show the commit.
fn stamp_created<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    left_by: Sequence,
    stamped: &mut Vec<Arc<Base>>,
) {
    let mut directories: Vec<Option<Arc<Base>>> = vec![None; set.created.len()];
    let in_new = set
        .created
        .iter()
        .filter_map(|created| match &created.place {
            CreatedPlace::Entry { directory, name } => Some((Object::Created(*directory), name)),
            CreatedPlace::Slot(_) => None,
        });
    let in_old = set.entries.iter().filter_map(|entry| match &entry.after {
        Some(Object::Created(_)) => Some((entry.directory.clone(), &entry.name)),
        _ => None,
    });
    for (parent, name) in in_old.chain(in_new) {
        let parent = match parent {
            Object::Base(base) => Some(base),
            Object::Created(index) => created_directory(core, set, index, &mut directories),
        };
        let Some(parent) = parent else {
            continue;
        };
        let handle = core.directory(&parent);
        let stat = handle.and_then(|handle| core.disk.stat_at(&handle, name));
        if let Ok(stat) = stat
            && stat.kind != Kind::Directory
        {
            let base = core.intern(&stat, &parent, name);
            stamp(&base, &stat, left_by);
            stamped.push(base);
        }
    }
}

pub(super) fn stamp(base: &Base, stat: &Stat, left_by: Sequence) {
    let stamp = Stamp::of(stat);
    base.state().history_mut().changed.own_stamp = Some(OwnStamp { stamp, left_by });
}
