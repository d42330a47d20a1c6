//! What the logged commits change that are not yet in the base, for transactions that begin
//! meanwhile.
//!
//! A snapshot is the base as of one commit, and a transaction may begin before that commit is in
//! the base. Then it can read at once what commits have changed that are published early
//! (`base::ahead`), and whatever no other commit on the way changes. Before it reads anything else,
//! it *settles*: the log is flushed, and the commits are applied.
//!
//! Invariants
//! 1. A commit is entered here before any transaction begins whose snapshot shows it. It is taken
//!    out when the base and the histories show it whole, or when it was cancelled.
//! 2. If a commit is published early, all before it on the way are. Below, it changes nothing but
//!    times of directories.
//! 3. A view comes to know an object by its name, its directory's listing or (the root) by its
//!    attributes, and each of these settles (`view/settled.rs`). Commits on the way touch no common
//!    object, and those that come later are not in the snapshot. So what a view knows, it can read
//!    without settling.
//! 4. No thread settles while it holds the commit lock.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use atomdir_disk::{Errno, Name, Result, Stat, Timestamp};

use crate::ids::Sequence;
use crate::lock;

/// The parts of the base that a commit reads and writes while it is validated, logged and applied.
#[derive(Default)]
pub(crate) struct Footprint {
    /// By serial; includes directories of which only the times change, because of
    /// entries.
    pub objects: HashSet<u64>,
    /// By serial: objects of which anything else changes, or their names.
    pub changed: HashSet<u64>,
    pub entries: HashSet<(u64, Name)>,
    /// By serial: directories in which an entry leads to another inode.
    pub listings: HashSet<u64>,
    /// By serial.
    pub directories: HashMap<u64, DirectoryChange>,
    /// Directories are moved or removed, which touches everything below them.
    pub moves_directories: bool,
    pub is_early: bool,
}

/// What entries change in the attributes of their directory.
#[derive(Clone, Copy, Default)]
pub(crate) struct DirectoryChange {
    pub modified: Option<Timestamp>,
    /// How many more directories are in it. Most file systems count those among its links.
    pub directories: i32,
}

#[derive(Default)]
pub(crate) struct OnTheWay {
    /// `u64::MAX`: none.
    oldest: AtomicU64,
    newest: AtomicU64,
    state: Mutex<State>,
    settle: OnceLock<Settle>,
}

/// Brings everything into the base that is on the way.
type Settle = Box<dyn Fn() -> Result<()> + Send + Sync>;

#[derive(Default)]
struct State {
    commits: VecDeque<(Sequence, Footprint)>,
    /// By commits that are published early.
    early: Parts,
    /// By the others.
    late: Parts,
    directories: HashMap<u64, VecDeque<(Sequence, DirectoryChange)>>,
    moves: VecDeque<Sequence>,
}

/// The parts of the base that commits touch.
#[derive(Default)]
struct Parts {
    objects: Touched<u64>,
    changed: Touched<u64>,
    entries: Touched<(u64, Name)>,
    listings: Touched<u64>,
}

impl Parts {
    fn enter(&mut self, footprint: &Footprint, sequence: Sequence) {
        self.objects.enter(&footprint.objects, sequence);
        self.changed.enter(&footprint.changed, sequence);
        self.entries.enter(&footprint.entries, sequence);
        self.listings.enter(&footprint.listings, sequence);
    }

    fn leave(&mut self, footprint: &Footprint, sequence: Sequence) {
        self.objects.leave(&footprint.objects, sequence);
        self.changed.leave(&footprint.changed, sequence);
        self.entries.leave(&footprint.entries, sequence);
        self.listings.leave(&footprint.listings, sequence);
    }
}

impl State {
    fn parts(&mut self, footprint: &Footprint) -> &mut Parts {
        match footprint.is_early {
            true => &mut self.early,
            false => &mut self.late,
        }
    }
}

/// The commits that touch each thing, oldest first.
struct Touched<K>(HashMap<K, VecDeque<Sequence>>);

impl<K> Default for Touched<K> {
    fn default() -> Self {
        Touched(HashMap::new())
    }
}

impl<K: Hash + Eq + Clone> Touched<K> {
    fn enter(&mut self, keys: &HashSet<K>, sequence: Sequence) {
        for key in keys {
            self.0.entry(key.clone()).or_default().push_back(sequence);
        }
    }

    fn leave(&mut self, keys: &HashSet<K>, sequence: Sequence) {
        for key in keys {
            take_out(&mut self.0, key, |one| *one == sequence);
        }
    }

    fn newest(&self, key: &K) -> Option<Sequence> {
        self.0.get(key)?.back().copied()
    }

    fn has_until(&self, key: &K, at: Sequence) -> bool {
        let oldest = self.0.get(key).and_then(VecDeque::front);
        oldest.is_some_and(|oldest| *oldest <= at)
    }
}

fn take_out<K: Hash + Eq, T>(
    map: &mut HashMap<K, VecDeque<T>>,
    key: &K,
    is_it: impl Fn(&T) -> bool,
) {
    let Some(commits) = map.get_mut(key) else {
        return;
    };
    // Commits mostly leave in their order.
    match commits.front().is_some_and(&is_it) {
        true => _ = commits.pop_front(),
        false => commits.retain(|one| !is_it(one)),
    }
    if commits.is_empty() {
        map.remove(key);
    }
}

impl OnTheWay {
    pub fn new() -> OnTheWay {
        OnTheWay {
            oldest: AtomicU64::new(u64::MAX),
            ..OnTheWay::default()
        }
    }

    pub fn settle_by(&self, settle: Settle) {
        let is_first = self.settle.set(settle).is_ok();
        assert!(is_first, "a base belongs to one store");
    }

    pub fn settle(&self) -> Result<()> {
        self.settle.get().map_or(Err(Errno::IO), |settle| settle())
    }

    /// Call it under the commit lock.
    pub fn enter(&self, sequence: Sequence, footprint: Footprint) {
        let mut state = lock(&self.state);
        state.parts(&footprint).enter(&footprint, sequence);
        for (directory, change) in &footprint.directories {
            let changes = state.directories.entry(*directory).or_default();
            changes.push_back((sequence, *change));
        }
        if footprint.moves_directories {
            state.moves.push_back(sequence);
        }
        state.commits.push_back((sequence, footprint));
        self.note_ends(&state);
        self.newest.fetch_max(sequence.0, Ordering::SeqCst);
    }

    /// Call it under the commit lock, after the last turn of an apply.
    pub fn leave(&self, sequence: Sequence) {
        let state = &mut *lock(&self.state);
        let at = state.commits.iter().position(|(one, _)| *one == sequence);
        let Some((_, footprint)) = at.and_then(|at| state.commits.remove(at)) else {
            return;
        };
        state.parts(&footprint).leave(&footprint, sequence);
        for directory in footprint.directories.keys() {
            take_out(&mut state.directories, directory, |(one, _)| {
                *one == sequence
            });
        }
        state.moves.retain(|one| *one != sequence);
        self.note_ends(state);
    }

    fn note_ends(&self, state: &State) {
        let oldest = state.commits.front().map_or(u64::MAX, |(one, _)| one.0);
        self.oldest.store(oldest, Ordering::SeqCst);
    }

    /// The newest commit that has ever been on the way.
    pub fn newest(&self) -> Sequence {
        Sequence(self.newest.load(Ordering::SeqCst))
    }

    /// The oldest commit that is on the way.
    pub fn oldest(&self) -> Option<Sequence> {
        let oldest = self.oldest.load(Ordering::SeqCst);
        (oldest != u64::MAX).then_some(Sequence(oldest))
    }

    /// Whether a snapshot shows a commit that is on the way.
    pub fn is_shown_at(&self, at: Sequence) -> bool {
        self.oldest.load(Ordering::SeqCst) <= at.0
    }

    /// Whether one that the snapshot shows changes more of the object than its entries.
    pub fn changes(&self, serial: u64, at: Sequence) -> bool {
        self.is_shown_at(at) && lock(&self.state).late.changed.has_until(&serial, at)
    }

    pub fn changes_entry(&self, directory: u64, name: &Name, at: Sequence) -> bool {
        let key = (directory, name.clone());
        self.is_shown_at(at) && lock(&self.state).late.entries.has_until(&key, at)
    }

    pub fn changes_listing(&self, directory: u64, at: Sequence) -> bool {
        if !self.is_shown_at(at) {
            return false;
        }
        let late = &lock(&self.state).late;
        late.objects.has_until(&directory, at) || late.listings.has_until(&directory, at)
    }

    /// The modification time that a directory will have.
    pub fn modified(&self, directory: u64) -> Option<Timestamp> {
        let state = lock(&self.state);
        let changes = state.directories.get(&directory)?;
        changes.iter().rev().find_map(|(_, change)| change.modified)
    }

    /// Adds to a directory's attributes what the entries of commits on the way will change in them.
    /// Its size and change time stay as they are.
    pub fn add_entries(&self, directory: u64, at: Sequence, stat: &mut Stat) {
        if !self.is_shown_at(at) {
            return;
        }
        let state = lock(&self.state);
        let changes = state.directories.get(&directory).into_iter().flatten();
        for (_, change) in changes.take_while(|(one, _)| *one <= at) {
            let modified = &mut stat.attributes.times.modified;
            *modified = change.modified.unwrap_or(*modified);
            // Btrfs counts no directories.
            if stat.links > 1 {
                stat.links = stat.links.saturating_add_signed(change.directories);
            }
        }
    }

    /// The first commit after `sequence` that touches the object.
    pub fn next_to_touch(&self, serial: u64, after: Sequence) -> Option<Sequence> {
        let state = lock(&self.state);
        let of = |parts: &Parts| {
            let touching = parts.objects.0.get(&serial)?.iter();
            touching.copied().find(|one| *one > after)
        };
        let (early, late) = (of(&state.early), of(&state.late));
        early.into_iter().chain(late).min()
    }

    /// Calls `act` with what is on the way.
    pub fn look<T>(&self, act: impl FnOnce(&Looking<'_>) -> T) -> T {
        let state = lock(&self.state);
        act(&Looking { state: &state })
    }
}

/// What is on the way, for a commit that wants to join it.
pub(crate) struct Looking<'a> {
    state: &'a State,
}

impl Looking<'_> {
    pub fn moves_directories(&self) -> bool {
        !self.state.moves.is_empty()
    }

    pub fn touches(&self, serial: u64) -> bool {
        self.state.late.objects.0.contains_key(&serial)
    }

    pub fn changes(&self, serial: u64) -> bool {
        self.state.late.changed.0.contains_key(&serial)
    }

    pub fn changes_entry(&self, key: &(u64, Name)) -> bool {
        self.state.late.entries.0.contains_key(key)
    }

    pub fn has_early(&self) -> bool {
        !self.state.early.objects.0.is_empty()
    }

    /// For each thing that this commit touches, the newest commit that is published early and changes
    /// it. That one leans on all earlier ones that do.
    pub fn early_below(&self, footprint: &Footprint) -> BTreeSet<Sequence> {
        let Parts {
            changed, entries, ..
        } = &self.state.early;
        let mut below = BTreeSet::new();
        let objects = footprint.objects.iter();
        below.extend(objects.filter_map(|serial| changed.newest(serial)));
        let names = footprint.entries.iter();
        below.extend(names.filter_map(|key| entries.newest(key)));
        below
    }
}
