//! Commits that are durable and cannot be applied yet.
//!
//! What a commit needs is checked before its record is logged (`feasible`), and the
//! files it changes in place are opened then. Something can still get in the way
//! before it is applied: somebody mounts a file system on a name, or makes an object
//! immutable. That is no reason to give up the store. Mostly the commit is cancelled, before
//! the base has changed (`cancel`, `aside`). A commit is stalled if that is too late: the obstacle
//! came while it was applied, or no check finds it. A stalled commit
//! stays at the head of the queue, and everything that calls `lock_without_pending` tries it
//! again. The service does so every now and then.
//!
//! A logged commit is in one of these states:
//! 1. Appended. A flush of the log that fails poisons the store.
//! 2. Durable. The base has not changed.
//! 3. Kept. Older snapshots have what the commit replaces; the base may have changed
//!    in part. Only an attempt that met an obstacle leaves a commit in this state.
//! 4. Published.
//!
//! Invariants, while a commit is stalled
//! 1. No commit behind it is applied, none is appended, and no transaction begins:
//!    there is no whole state of the base that a snapshot could show.
//! 2. Open transactions read as before: the replaced versions were kept before the base changed,
//!    and `place` says where each object is.
//! 3. A later attempt repeats nothing of an earlier one (`apply::ApplyProgress`).
//! 4. The applied mark names the commit before it, so recovery applies it whole.
//!
//! # Who can cause it
//!
//! Root, by a mount or an attribute of the file system. In the store of an ordinary user, another
//! user who may write to a directory in it, by mounting a FUSE file system on it, which
//! `fusermount3` allows; only root can unmount it. A full disk can cause it, too, if the reserve has
//! not been enough.
//!
//! `apply::error` decides which errors stall a commit. All that the owner of an object or of a
//! directory can cause concerns one object, which apply leaves as it is. Root's service unmounts what
//! ordinary users have mounted. In the store of an ordinary user, apply leaves alone the directories
//! that other users close (`apply::others` says how and why). A user who may write to a directory can change a
//! name in it right before the call that needs it. Apply then looks again, and gives up only if
//! that happens at every look (`TRIES_MAX` in `apply`).
//!
//! # Why it is not taken back
//!
//! A commit of which a part is in the base could be cancelled as well, if apply noted its steps
//! and took them back in reverse order. Three things make that harder than it seems:
//! 1. `keep` has already changed the histories: the versions that end with this commit, and the
//!    parts that it was the last to change. The old values must come back, or the transaction would
//!    conflict with its own cancelled commit.
//! 2. Renaming a file back gives it another change time. Every object that was touched then needs
//!    an own stamp that names no commit, or open transactions take it for an outside writer's
//!    change. A recovery that runs before the cancelling record is durable, and the history's
//!    settled moments, compare change times as well.
//! 3. Apply removes some things for good: a replaced file without history and snapshots, and the
//!    old bytes of a file that is changed in place.
//!
//! # Why other commits wait
//!
//! Commits that touch nothing of a stalled one (`Queue::admits`) commute with it, and
//! could be applied before it. That takes four changes to what snapshots and recovery
//! rely on, and none of them is sound alone:
//! 1. A commit's place in the commit order must be the one at which it is published,
//!    not its place in the log. Otherwise a snapshot that is younger than the stalled
//!    record would see the commit appear.
//! 2. The applied mark must name stalled commits as exceptions. If it stopped before
//!    them, recovery would apply later commits once more, over what outside writers
//!    have changed since.
//! 3. A transaction that begins meanwhile must see the state before the stalled commit,
//!    of which a part may be in the base. So the old state must be kept before every
//!    apply; today it is kept only while a snapshot is open.
//! 4. Checkpoints must keep the log from the stalled record on, so its length needs a
//!    limit.
//!
//! A restart beside the obstacle cannot open the store even for reading: the base is in no whole
//! state, and the versions kept for older snapshots were lost when the service ended. Each later
//! command starts recovery again, so removing the obstacle is enough.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Identity, Kind, Name};

use crate::apply::ApplyProgress;
use crate::base::core::Core;
use crate::base::{Base, Place};
use crate::commit::publish::created_directory;
use crate::error::{Stalled, StoreError};
use crate::lock;
use crate::names;
use crate::store::Store;
use crate::store::queue::Attempt;
use crate::write_set::{Object, WriteSet};

impl<D: Disk> Store<D> {
    pub(crate) fn note_stalled(&self, stalled: Option<Stalled>) {
        let mut known = lock(&self.0.stalled);
        if *known == stalled {
            return;
        }
        match &stalled {
            Some(stalled) => tracing::warn!("nothing is committed until {stalled}"),
            None => tracing::info!("the stalled commit has been applied"),
        }
        *known = stalled;
    }

    /// Tries a stalled commit again.
    pub(crate) fn retry_stalled(&self) -> Result<(), StoreError> {
        let is_stalled = lock(&self.0.stalled).is_some();
        if is_stalled {
            drop(self.lock_without_pending()?);
        }
        Ok(())
    }
}

/// Finds the objects that an attempt has moved before it met an obstacle.
pub(crate) fn correct_places<D: Disk>(core: &Core<D>, set: &WriteSet, attempt: &mut Attempt) {
    let replaced = set.objects.iter().filter(|object| {
        let contents = object.contents.as_ref();
        contents.is_some_and(|contents| contents.replacement.is_some())
    });
    // The history of these says where the old inode goes.
    let replaced: HashSet<u64> = replaced.map(|object| object.base.serial).collect();
    let survivors = set.removed_directories.iter().flat_map(|removed| {
        let survivors = set.survivors(removed);
        survivors.map(|(_, base)| base.clone())
    });
    let named = set.entries.iter().flat_map(|entry| {
        let after = match &entry.after {
            Some(Object::Base(base)) => Some(base.clone()),
            _ => None,
        };
        after.into_iter().chain(entry.before.clone())
    });
    let search = Search::new(core, set, &attempt.progress);
    for base in named.chain(survivors) {
        if !replaced.contains(&base.serial)
            && let Some(place) = search.correct(&base)
        {
            attempt.moved.push((base, place));
        }
    }
}

struct Search<'a, D: Disk> {
    core: &'a Core<D>,
    progress: &'a ApplyProgress,
    directories: HashMap<Identity, Arc<Base>>,
    /// The names that each object shall have, by serial.
    homes: HashMap<u64, Vec<(Arc<Base>, &'a Name)>>,
}

impl<'a, D: Disk> Search<'a, D> {
    fn new(core: &'a Core<D>, set: &'a WriteSet, progress: &'a ApplyProgress) -> Self {
        let mut directories = HashMap::new();
        let mut homes: HashMap<u64, Vec<_>> = HashMap::new();
        let mut created = vec![None; set.created.len()];
        for entry in &set.entries {
            let directory = match &entry.directory {
                Object::Base(base) => Some(base.clone()),
                Object::Created(index) => created_directory(core, set, *index, &mut created),
            };
            let Some(directory) = directory else {
                continue;
            };
            directories.insert(directory.identity(), directory.clone());
            if let Some(Object::Base(base)) = &entry.after {
                let names = homes.entry(base.serial).or_default();
                names.push((directory, &entry.name));
            }
        }
        Search {
            core,
            progress,
            directories,
            homes,
        }
    }

    /// Corrects the place of an object that was moved, and returns the place it had
    /// before.
    fn correct(&self, base: &Arc<Base>) -> Option<Place> {
        let (identity, place) = base.identity_and_place();
        let is_there = |place: &Place| self.core.stat_place(place, identity).is_ok();
        if is_there(&place) {
            return None;
        }
        let homes = self.homes.get(&base.serial).into_iter().flatten();
        let homes = homes.map(|(parent, name)| Place::Entry {
            parent: parent.clone(),
            name: (*name).clone(),
        });
        let spots = self.progress.spots(identity).filter_map(|(above, name)| {
            let name = name.clone();
            Some(match above {
                None => Place::Limbo(name),
                Some(directory) => Place::Entry {
                    parent: self.directories.get(&directory)?.clone(),
                    name,
                },
            })
        });
        let aside = match base.kind {
            Kind::Directory => None,
            _ => Some(Place::Held),
        };
        let limbo = Place::Limbo(names::limbo(identity));
        let mut places = homes.chain(spots).chain(aside).chain([limbo]);
        // If an outside writer has removed the object, it is nowhere.
        match places.find(is_there)? {
            Place::Entry { parent, name } => self.core.set_place(base, &parent, &name),
            place => base.state().place = place,
        }
        Some(place)
    }
}
