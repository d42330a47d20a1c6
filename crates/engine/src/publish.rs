//! Brings a logged commit into the base, keeping for older snapshots what it
//! replaces.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name};

use crate::apply::{Apply, ApplyError, Desired};
use crate::base::{Base, History, OldAttributes, OldBody, Place, Stamp};
use crate::commit::CommitState;
use crate::core::Core;
use crate::error::StoreError;
use crate::group::Pending;
use crate::ids::Sequence;
use crate::lock;
use crate::names;
use crate::progress::Meter;
use crate::ranges::RangeSet;
use crate::snapshot::{PAGE, read_xattrs};
use crate::store::Store;
use crate::write_set::{ContentsWrite, Object, ObjectWrite, WriteSet};

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
        if keeps_old {
            let keeper = Keeper {
                core,
                sequence,
                snapshots: &snapshots,
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
        let mut desired = Desired::default();
        desired.compose(&pending.record);
        self.apply(state, &desired, keeps_old, sequence, meter)?;
        state.applied.extend(desired.files());
        remember_places(core, &pending.set, keeps_old);
        lock(&self.0.open).published = sequence;
        Ok(())
    }

    fn apply(
        &self,
        state: &CommitState<D>,
        desired: &Desired,
        keeps_old: bool,
        sequence: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let core = &*self.0.core;
        let mut run = || {
            let mut apply = Apply::new(core, desired, &state.applied, keeps_old);
            let result = apply.run(meter);
            let mut linked = lock(&self.0.linked_in_limbo);
            linked.append(&mut apply.linked_in_limbo);
            if desired.has_limbo_spots() {
                linked.clear();
            }
            drop(linked);
            result
        };
        let applied = run().or_else(|error| match error.errno {
            Some(Errno::NOSPC | Errno::DQUOT) => {
                let _ = state.empty_reserve(core);
                run()
            }
            _ => Err(error),
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

/// Of the open transactions, in ascending order.
struct Snapshots(Vec<Sequence>);

impl Snapshots {
    /// Whether a version that ends at `sequence` would be seen by anyone, when
    /// the one before ends at `previous`.
    fn need_version(&self, previous: Option<Sequence>) -> bool {
        self.0
            .iter()
            .any(|at| previous.is_none_or(|previous| *at >= previous))
    }
}

/// Installs, before the base changes, what older snapshots will read instead.
struct Keeper<'a, D: Disk> {
    core: &'a Core<D>,
    sequence: Sequence,
    snapshots: &'a Snapshots,
}

impl<D: Disk> Keeper<'_, D> {
    fn keep(&self, set: &WriteSet) -> Result<Vec<Arc<Base>>, Errno> {
        let mut kept: Vec<Arc<Base>> = Vec::new();
        let renamed: HashSet<u64> = set
            .entries
            .iter()
            .filter_map(|entry| match &entry.after {
                Some(Object::Base(base)) => Some(base.serial),
                _ => None,
            })
            .collect();
        for object in &set.objects {
            self.keep_object(object)?;
            kept.push(object.base.clone());
            if let Place::Entry { parent, .. } = &object.base.state().place {
                kept.push(parent.clone());
            }
        }
        for entry in &set.entries {
            if let Some(Object::Base(moved)) = &entry.after {
                // A new name may mean a new link, and always a new change time.
                self.keep_attributes(moved)?;
                moved.state().history_mut().changed.links = Some(self.sequence);
                kept.push(moved.clone());
            }
            let Object::Base(directory) = &entry.directory else {
                continue;
            };
            self.keep_attributes(directory)?;
            self.keep_name(directory, &entry.name, entry.before.clone());
            self.mark_name(directory, &entry.name);
            kept.push(directory.clone());
            if let Some(before) = &entry.before {
                self.keep_attributes(before)?;
                before.state().history_mut().changed.links = Some(self.sequence);
                if !set.is_dying(before) && !renamed.contains(&before.serial) {
                    self.hold(before, directory, &entry.name);
                }
                kept.push(before.clone());
            }
        }
        for removed in &set.removed_directories {
            // What died in it goes to limbo with it.
            for (name, base) in set.survivors(removed) {
                self.keep_attributes(base)?;
                self.keep_name(&removed.base, name, Some(base.clone()));
                if !renamed.contains(&base.serial) {
                    self.hold(base, &removed.base, name);
                }
                kept.push(base.clone());
            }
            kept.push(removed.base.clone());
        }
        for base in set.dying.values() {
            base.state().history_mut().changed.removed = Some(self.sequence);
            self.keep_attributes(base)?;
            kept.push(base.clone());
        }
        Ok(kept)
    }

    /// A file that goes on under other names must not have one in limbo as
    /// well, as that would show in its link count; an open handle will do.
    fn hold(&self, base: &Arc<Base>, directory: &Arc<Base>, name: &Name) {
        let target = match base.kind {
            Kind::Symlink => self.read_link(directory, name).ok(),
            _ => None,
        };
        let mut state = base.state();
        let history = state.history_mut();
        history.changed.unnamed = Some(self.sequence);
        history.target = target;
        let identity = state.identity;
        drop(state);
        let access = match base.kind {
            Kind::File => Access::Read,
            _ => Access::Path,
        };
        let here = Place::Entry {
            parent: directory.clone(),
            name: name.clone(),
        };
        if base.kind != Kind::Directory
            && let Ok(handle) = self.core.open_at(&here, identity, access)
        {
            self.core.handles.hold(identity, Arc::new(handle));
        }
    }

    fn read_link(&self, directory: &Arc<Base>, name: &Name) -> Result<Vec<u8>, Errno> {
        let directory = self.core.directory(directory)?;
        self.core.disk.read_link(&directory, name)
    }

    fn keep_name(&self, directory: &Arc<Base>, name: &Name, before: Option<Arc<Base>>) {
        let mut state = directory.state();
        let History { names, .. } = state.history_mut();
        let versions = names.entry(name.clone()).or_default();
        if self
            .snapshots
            .need_version(versions.last().map(|(until, _)| *until))
        {
            versions.push((self.sequence, before));
        }
    }

    fn mark_name(&self, directory: &Base, name: &Name) {
        let mut state = directory.state();
        state
            .history_mut()
            .changed
            .names
            .insert(name.clone(), self.sequence);
    }

    fn keep_attributes(&self, base: &Arc<Base>) -> Result<(), Errno> {
        let (identity, place, last) = {
            let state = base.state();
            let last = state
                .history
                .as_ref()
                .and_then(|history| history.attributes.last());
            (
                state.identity,
                state.place.clone(),
                last.map(|(until, _)| *until),
            )
        };
        if !self.snapshots.need_version(last) || last == Some(self.sequence) {
            return Ok(());
        }
        let old = self.core.with_object(&place, identity, |handle| {
            let stat = self.core.disk.stat(handle)?;
            let xattrs = read_xattrs(&self.core.disk, handle)?;
            Ok(OldAttributes { stat, xattrs })
        });
        match old {
            Ok(old) => base
                .state()
                .history_mut()
                .attributes
                .push((self.sequence, Arc::new(old))),
            // An outside writer has taken it away; there is nothing to keep.
            Err(Errno::STALE) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn keep_object(&self, object: &ObjectWrite) -> Result<(), Errno> {
        self.keep_attributes(&object.base)?;
        if let Some(contents) = &object.contents {
            self.keep_body(&object.base, contents)?;
        }
        let mut state = object.base.state();
        let changed = &mut state.history_mut().changed;
        if object.writes_attributes() {
            changed.attributes = Some(self.sequence);
        }
        if let Some(contents) = &object.contents {
            if contents.length.is_some() {
                changed.length = Some(self.sequence);
            }
            let mut pages = RangeSet::default();
            contents
                .written()
                .into_iter()
                .for_each(|(start, end)| pages.insert(start, end));
            match changed.pages.last_mut() {
                // No open snapshot lies between the two: one entry serves.
                Some((last, merged)) if !self.snapshots.need_version(Some(*last)) => {
                    *last = self.sequence;
                    pages
                        .iter()
                        .for_each(|(start, end)| merged.insert(start, end));
                }
                _ => changed.pages.push((self.sequence, pages)),
            }
        }
        Ok(())
    }

    fn keep_body(&self, base: &Arc<Base>, contents: &ContentsWrite) -> Result<(), Errno> {
        let (identity, place) = {
            let state = base.state();
            (state.identity, state.place.clone())
        };
        let length = self.core.stat_place(&place, identity)?.length;
        let body = if contents.replacement.is_some() {
            // Listings show the old inode; that the name was written is not so.
            if let Place::Entry { parent, name } = &place {
                self.keep_attributes(parent)?;
                self.keep_name(parent, name, Some(base.clone()));
            }
            OldBody::Moved {
                identity,
                limbo: names::limbo(identity),
            }
        } else {
            self.save_pages(identity, &place, contents, length)?
        };
        base.state()
            .history_mut()
            .bodies
            .push((self.sequence, Arc::new(body)));
        Ok(())
    }

    /// Copies the pages that are about to be overwritten in place.
    fn save_pages(
        &self,
        identity: Identity,
        place: &Place,
        contents: &ContentsWrite,
        length: u64,
    ) -> Result<OldBody, Errno> {
        let disk = &self.core.disk;
        let saved = names::saved_pages(identity, self.sequence);
        let file = disk.create(&self.core.control.limbo, &saved, 0o600)?;
        let source = self.core.open_at(place, identity, Access::Read)?;
        let mut pages = RangeSet::default();
        for (start, end) in contents.written() {
            let end = end.min(length.div_ceil(PAGE));
            pages.insert(start, end);
            let mut at = start * PAGE;
            let stop = end.saturating_mul(PAGE).min(length);
            while at < stop {
                let copied = disk.copy_range((&source, at), (&file, at), stop - at)?;
                if copied == 0 {
                    break;
                }
                at += copied;
            }
        }
        Ok(OldBody::Pages {
            saved,
            pages,
            length,
        })
    }
}

/// After the base has changed: where its objects are now.
fn remember_places<D: Disk>(core: &Core<D>, set: &WriteSet, keeps_old: bool) {
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
        }
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
            moved.state().place = Place::Entry {
                parent,
                name: entry.name.clone(),
            };
        }
    }
    if keeps_old {
        stamp_changed(core, set);
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
fn stamp_changed<D: Disk>(core: &Core<D>, set: &WriteSet) {
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
            base.state().history_mut().changed.own_stamp = Some(Stamp::of(&stat));
        }
    }
}
