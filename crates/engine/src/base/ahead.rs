//! The changes of published commits that are not in the base yet.
//!
//! A simple lazy commit is *published early* (`commit::early`): the known objects and their histories
//! show it from then on, and the base follows later. So transactions that begin meanwhile read and
//! overwrite what it has changed without waiting for a flush. What the objects themselves cannot say
//! is here: which names lead to other objects than in the base, and where an object is that is not
//! where it shall be.
//!
//! Invariants
//! 1. A name is entered before any snapshot shows the commit, and leaves when the base has it. So a
//!    reader that first looks here and then at the base never misses the commit.
//! 2. An object is at the place that is known, or at one of those that are noted here.
//! 3. Commits leave in the order in which they were entered, or newest first if they are cancelled.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use atomdir_disk::{Identity, Name};

use crate::base::carried::CarriedObject;
use crate::base::entry_place::EntryPlace;
use crate::base::{Base, Changed, Place};
use crate::ids::Sequence;
use crate::lock;

/// How much of new objects is kept in memory.
const BYTES_MAX: u64 = 16 << 20;

/// Where names lead, from a commit on.
type Versions = VecDeque<(Sequence, Option<Arc<Base>>)>;

#[derive(Default)]
pub(crate) struct Ahead {
    /// How many commits are entered.
    commits: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the directory's serial.
    names: HashMap<u64, BTreeMap<Name, Versions>>,
    places: HashMap<Identity, Vec<EntryPlace>>,
    /// New objects, and those in memory.
    objects: HashMap<Identity, Option<Arc<CarriedObject>>>,
    /// How much memory these take.
    bytes: u64,
}

/// The changes of one commit.
#[derive(Default)]
pub(crate) struct AheadChange {
    pub names: Vec<NameAhead>,
    /// Where objects are before the commit is applied.
    pub places: Vec<(Identity, EntryPlace)>,
    /// The new objects, as far as the record carries them.
    pub objects: Vec<(Identity, Option<Arc<CarriedObject>>)>,
}

pub(crate) struct NameAhead {
    pub directory: Arc<Base>,
    pub name: Name,
    /// The object to which the name leads then, and its inode. It is new, or has a new inode.
    pub put: Option<(Arc<Base>, Identity)>,
}

impl AheadChange {
    pub fn put(&self) -> impl Iterator<Item = (&NameAhead, &Arc<Base>, Identity)> {
        let names = self.names.iter();
        names.filter_map(|name| name.put.as_ref().map(|(base, inode)| (name, base, *inode)))
    }
}

impl Ahead {
    pub fn enter(&self, sequence: Sequence, change: &AheadChange) {
        let state = &mut *lock(&self.state);
        for name in &change.names {
            let names = state.names.entry(name.directory.serial).or_default();
            let versions = names.entry(name.name.clone()).or_default();
            assert!(
                versions.back().is_none_or(|(last, _)| *last < sequence),
                "commits are published in their order"
            );
            let object = name.put.as_ref().map(|(base, _)| base.clone());
            versions.push_back((sequence, object));
        }
        for (object, place) in &change.places {
            state.places.entry(*object).or_default().push(place.clone());
        }
        for (identity, object) in &change.objects {
            // The others are read where they are staged.
            let room = BYTES_MAX - state.bytes;
            let object = object.clone().filter(|object| object.bytes() <= room);
            state.bytes += object.as_ref().map_or(0, |object| object.bytes());
            state.objects.insert(*identity, object);
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
    }

    pub fn leave(&self, sequence: Sequence, change: &AheadChange) {
        let state = &mut *lock(&self.state);
        for NameAhead {
            directory, name, ..
        } in &change.names
        {
            let Some(names) = state.names.get_mut(&directory.serial) else {
                continue;
            };
            if let Some(versions) = names.get_mut(name) {
                versions.retain(|(of, _)| *of != sequence);
                if versions.is_empty() {
                    names.remove(name);
                }
            }
            if names.is_empty() {
                state.names.remove(&directory.serial);
            }
        }
        for (object, place) in &change.places {
            let Some(places) = state.places.get_mut(object) else {
                continue;
            };
            if let Some(at) = places.iter().position(|one| one == place) {
                places.remove(at);
            }
            if places.is_empty() {
                state.places.remove(object);
            }
        }
        for (identity, _) in &change.objects {
            let object = state.objects.remove(identity).flatten();
            state.bytes -= object.map_or(0, |object| object.bytes());
        }
        self.commits.fetch_sub(1, Ordering::SeqCst);
    }

    fn is_empty(&self) -> bool {
        self.commits.load(Ordering::SeqCst) == 0
    }

    /// The newest commit up to `at` that has changed the name and is not in the base, and the object
    /// to which the name leads since.
    pub fn entry(
        &self,
        directory: &Base,
        name: &Name,
        at: Sequence,
    ) -> Option<(Sequence, Option<Arc<Base>>)> {
        if self.is_empty() {
            return None;
        }
        let state = lock(&self.state);
        newest(state.names.get(&directory.serial)?.get(name)?, at)
    }

    /// All names of the directory that [`Ahead::entry`] knows, in their order.
    pub fn entries(
        &self,
        directory: &Base,
        at: Sequence,
    ) -> BTreeMap<Name, (Sequence, Option<Arc<Base>>)> {
        if self.is_empty() {
            return BTreeMap::new();
        }
        let state = lock(&self.state);
        let names = state.names.get(&directory.serial).into_iter().flatten();
        let newest =
            names.filter_map(|(name, versions)| Some((name.clone(), newest(versions, at)?)));
        newest.collect()
    }

    pub fn places(&self, object: Identity) -> Vec<EntryPlace> {
        if self.is_empty() {
            return Vec::new();
        }
        lock(&self.state)
            .places
            .get(&object)
            .cloned()
            .unwrap_or_default()
    }

    /// An object that no commit in the base has made yet, if it is in memory.
    pub fn object(&self, identity: Identity) -> Option<Arc<CarriedObject>> {
        if self.is_empty() {
            return None;
        }
        lock(&self.state).objects.get(&identity)?.clone()
    }

    /// Whether it is a new object of a commit that the base does not have yet.
    pub fn has_made(&self, identity: Identity) -> bool {
        !self.is_empty() && lock(&self.state).objects.contains_key(&identity)
    }

    /// Whether the object may be elsewhere than at the place that is known.
    pub fn has_place_of(&self, object: Identity) -> bool {
        !self.places(object).is_empty()
    }
}

fn newest(versions: &Versions, at: Sequence) -> Option<(Sequence, Option<Arc<Base>>)> {
    versions.iter().rev().find(|(of, _)| *of <= at).cloned()
}

/// What a commit that is published early has found of objects. The others are as they are known.
#[derive(Default)]
pub(crate) struct Found {
    /// The commit right before it.
    at: Sequence,
    /// By serial.
    objects: HashMap<u64, Before>,
}

/// How one of them was known.
pub(crate) struct Before {
    pub base: Arc<Base>,
    pub identity: Identity,
    pub place: Place,
    pub changed: Changed,
}

impl Found {
    /// For the commit after this one.
    pub fn at(at: Sequence) -> Found {
        let objects = HashMap::new();
        Found { at, objects }
    }

    pub fn of(&self, base: &Base) -> (Identity, Place) {
        match self.objects.get(&base.serial) {
            Some(before) => (before.identity, before.place.clone()),
            None => base.identity_and_place(),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Before> {
        self.objects.values()
    }

    pub fn has(&self, base: &Base) -> bool {
        self.objects.contains_key(&base.serial)
    }

    pub fn note(&mut self, base: &Arc<Base>) {
        let state = base.state();
        let before = Before {
            base: base.clone(),
            identity: state.identity,
            place: state.place.clone(),
            changed: state.changed().cloned().unwrap_or_default(),
        };
        self.objects.insert(base.serial, before);
    }

    /// Whether an earlier commit has made the object that the base does not have yet either.
    pub fn is_made(&self, ahead: &Ahead, base: &Base) -> bool {
        ahead.has_made(self.of(base).0)
    }

    /// Whether an earlier commit has changed the name that the base does not have yet either.
    pub fn is_changed(&self, ahead: &Ahead, (directory, name): (&Base, &Name)) -> bool {
        ahead.entry(directory, name, self.at).is_some()
    }
}

/// The commits that were published early and of which a transaction has seen something.
#[derive(Default)]
pub(crate) struct LeansOn(Mutex<BTreeSet<Sequence>>);

impl LeansOn {
    pub fn note(&self, sequence: Sequence) {
        lock(&self.0).insert(sequence);
    }

    pub fn copy(&self) -> LeansOn {
        LeansOn(Mutex::new(self.all()))
    }

    pub fn all(&self) -> BTreeSet<Sequence> {
        lock(&self.0).clone()
    }

    /// Takes out those that were cancelled.
    pub fn take(&self, cancelled: impl Fn(&Sequence) -> bool) -> Option<Sequence> {
        let mut all = lock(&self.0);
        let taken = all.iter().copied().find(|one| cancelled(one));
        all.retain(|one| !cancelled(one));
        taken
    }
}
