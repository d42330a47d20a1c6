//! The gate at which calls of programs outside transactions, and commits, take turns.
//!
//! A [`Guard`] belongs to whoever serves the base to such programs through the kernel: a file
//! system over the store's own path. Each call is a section. A commit that is about to change the
//! base first makes the kernel forget what it touches, then waits until no call is inside, and lets
//! calls in again once it is in the base. So every call comes before or after a whole commit, and
//! nothing that the kernel has cached mixes the two.
//!
//! Phases: `Open`, then `Closing` while the kernel forgets, then `Closed` while the base changes.
//! What the kernel was told by a call that began in `Open` it forgets, since the gate waits for the
//! end of such calls first; a directory's lock in the kernel then orders their answers before that.
//!
//! While transactions are open, guarded calls have a place in the commit order: an *epoch*, whose
//! sequence is behind that of every commit so far. What a call replaces is kept until its epoch
//! (`commit::guarded`). The next begin or commit closes the epoch. A snapshot that begins then has
//! the epoch's sequence, and a commit the next one. Before that commit the log gets records that
//! belong to no commit, so that its sequences have no gaps.
//!
//! Invariants
//! 1. No call is inside while a commit changes the base. The last check of the commit belongs to the
//!    same closed time, so no guarded call comes between that check and the change.
//! 2. Nothing that the kernel was told from `Closing` on may it cache, except contents and listings,
//!    which the protocol lets nobody forbid. If such a call has read what the commit touches, the
//!    kernel is made to forget once more, before the gate closes.
//! 3. The kernel forgets only while calls are let in: it takes locks of directories and pages that
//!    programs hold while they wait for an answer.
//! 4. A call waits here only for `Closed` and `Paused`, and with no other lock held. Inside it takes
//!    neither `commit` nor `applying`, nor the lock of a view, and it never waits for a flush of the log. So
//!    the thread that closes the gate may hold these.
//! 5. The thread that closes the gate makes no call through the guard once it is closed, and waits
//!    for none.
//! 6. A snapshot's sequence is not before any commit or epoch that it shows, and before all others. So
//!    a begin waits until no call is inside, and until a commit that has a sequence is on the way.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use atomdir_disk::{Disk, FileUsers, Identity, Name};
use atomdir_format::record::CommitRecord;

use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::locks::Wake;
use crate::names;
use crate::store::Store;
use crate::store::awaited::{Awaited, MayWait};
use crate::store::touched::Touched;
use crate::sync;
use crate::write_set::WriteSet;

/// How often the kernel is made to forget before the gate closes even though programs go on to read
/// what the commit touches. After that they may see old contents once more for a moment.
const TRIES_MAX: usize = 64;

/// What serves the base to programs outside transactions.
pub trait Guarding: Send + Sync {
    /// How programs use a file of the base that is at this path. Calls are let in meanwhile, as the
    /// answer may need some.
    fn users(&self, path: &[u8], file: Identity) -> FileUsers;

    /// Makes the kernel forget names, attributes, listings and contents. Called without the gate's lock.
    fn forget(&self, touched: &Touched);
    /// The guard begins. While `may_wait`, calls may wait for transactions; the
    /// kernel then keeps the directory locked in which such a call is to change a name, and the pages
    /// that it is to write. So what forgets names or pages must not wait for these.
    fn begin(&self, _may_wait: MayWait) {}
    /// Calls that wait may have their turn. Called with locks held.
    fn retry(&self) {}
    /// The commit is in the base, or (if not `applied`) was cancelled or stalled.
    fn changed(&self, applied: bool);
}

#[derive(Default)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    /// The gate was opened, or the last call has left.
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    guarding: Option<Arc<dyn Guarding>>,
    phase: Phase,
    /// How many calls are inside that began while the gate was open, and while it was closing.
    inside: [usize; 2],
    /// The newest sequence that a commit or a closed epoch has.
    newest: Sequence,
    /// The sequence of the calls that have changed something since then.
    epoch: Option<Sequence>,
    /// The newest epoch that was closed.
    closed: Sequence,
    /// A commit has a sequence, and is not among those on the way yet.
    is_claimed: bool,
    left: Left,
    /// Objects whose number of links the kernel shall forget.
    links: Vec<Identity>,
}

/// What calls have kept for open snapshots.
#[derive(Default)]
pub(crate) struct Left {
    /// In limbo.
    pub names: BTreeSet<Name>,
    pub epochs: BTreeSet<Sequence>,
}

#[derive(Default)]
enum Phase {
    #[default]
    Open,
    Closing {
        touched: Arc<Touched>,
        /// A call has read what the commit touches.
        was_read: bool,
    },
    Closed,
    /// As `Closed`, for a begin.
    Paused,
}

impl GateState {
    fn close_epoch(&mut self) {
        if let Some(epoch) = self.epoch.take() {
            self.closed = epoch;
            self.newest = self.newest.max(epoch);
        }
    }
}

/// As long as it exists, calls of programs outside transactions go through the gate.
pub struct Guard<D: Disk> {
    pub(crate) store: Store<D>,
    /// The calls that wait, each by a number of its own.
    pub(crate) waiting: Mutex<HashMap<u64, Awaited>>,
    pub(crate) wake: Wake,
}

/// A call that is inside the gate.
#[must_use = "the call is inside as long as this lives"]
pub struct Section<'a> {
    gate: &'a Gate,
    /// Whether the kernel may cache the answer: the call began while the gate was open.
    pub may_be_cached: bool,
}

/// The gate is closed, and no commit gets a sequence: a transaction begins.
pub(crate) struct Paused<'a> {
    gate: &'a Gate,
    is_call: bool,
}

/// The gate is closed: a commit changes the base.
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
    guarding: Arc<dyn Guarding>,
    /// The files that the commits are to give other inodes, and that programs used right before the
    /// gate closed.
    pub used: HashSet<Identity>,
    /// Whether the commit has got into the base.
    pub is_applied: bool,
}

impl<D: Disk> Guard<D> {
    /// The root directory of the base.
    pub fn root(&self) -> Arc<D::Handle> {
        self.store.0.core.root.clone()
    }

    /// Begins a call. `reads`: the object whose contents or entries the kernel will cache.
    pub fn enter(&self, reads: Option<Identity>) -> Section<'_> {
        self.store.0.gate.enter(reads)
    }

    /// Whether an earlier call has left the object in limbo for snapshots, or a link to it.
    pub fn has_in_limbo(&self, object: Identity) -> bool {
        self.store.0.gate.has_left_object(object)
    }
}

impl<D: Disk> Drop for Guard<D> {
    fn drop(&mut self) {
        let locks = &self.store.0.contention.locks;
        locks.stop_waking(&self.wake);
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        let mut table = locks.table();
        for awaited in waiting.into_values() {
            if let Awaited::Locks(ticket) = awaited {
                table.withdraw(ticket);
            }
        }
        locks.wake_all();
        drop(table);
        self.store.0.gate.lock().guarding = None;
        self.store.heed_calls_wait();
    }
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        lock(&self.state)
    }

    /// False: there is a guard. The caller holds the commit lock. `newest`: the log's sequence.
    pub fn guard(&self, guarding: Arc<dyn Guarding>, newest: Sequence) -> bool {
        let mut state = self.lock();
        if state.guarding.is_some() {
            return false;
        }
        state.newest = state.newest.max(newest);
        state.guarding = Some(guarding);
        true
    }

    fn enter(&self, reads: Option<Identity>) -> Section<'_> {
        let mut state = self.lock();
        while matches!(state.phase, Phase::Closed | Phase::Paused) {
            state = sync::wait(&self.changed, state);
        }
        let may_be_cached = match &mut state.phase {
            Phase::Open | Phase::Closed | Phase::Paused => true,
            Phase::Closing { touched, was_read } => {
                *was_read |= reads.is_some_and(|object| touched.objects.contains(&object));
                false
            }
        };
        state.inside[usize::from(!may_be_cached)] += 1;
        Section {
            gate: self,
            may_be_cached,
        }
    }

    /// The place in the commit order of what a call changes now. The caller is inside.
    pub fn epoch(&self) -> Sequence {
        let mut state = self.lock();
        let next = state.newest.next();
        *state.epoch.get_or_insert(next)
    }

    /// Claims the sequence of a commit. Returns the newest one before it, which may be that of an
    /// epoch that the log has not got yet. `newest`: the log's. Call [`Gate::entered`] once the commit
    /// is on the way, or has failed.
    pub fn claim(&self, newest: Sequence) -> Sequence {
        let mut state = self.lock();
        while state.guarding.is_some() && matches!(state.phase, Phase::Paused) {
            state = sync::wait(&self.changed, state);
        }
        state.close_epoch();
        let before = state.newest.max(newest);
        state.newest = before.next();
        state.is_claimed = true;
        before
    }

    /// The commit that has claimed the sequence after this one has failed.
    pub fn unclaim(&self, before: Sequence) {
        let mut state = self.lock();
        if state.newest == before.next() && state.epoch.is_none() {
            state.newest = before;
        }
        drop(state);
        self.entered();
    }

    pub fn entered(&self) {
        self.lock().is_claimed = false;
        self.changed.notify_all();
    }

    /// Waits until no call is inside, and keeps calls and commits from going on. `None`: there is no
    /// guard. The caller holds no lock.
    pub fn pause(&self) -> Option<Paused<'_>> {
        let mut state = self.lock();
        while state.guarding.is_some() && (!matches!(state.phase, Phase::Open) || state.is_claimed)
        {
            state = sync::wait(&self.changed, state);
        }
        state.guarding.as_ref()?;
        state.phase = Phase::Paused;
        while state.inside != [0, 0] {
            state = sync::wait(&self.changed, state);
        }
        Some(Paused {
            gate: self,
            is_call: false,
        })
    }

    /// The sequence of the newest epoch that snapshots may show.
    pub fn closed_epoch(&self) -> Sequence {
        self.lock().closed
    }

    /// Notes that a call has kept something until its epoch, perhaps in limbo.
    pub fn leave(&self, epoch: Sequence, name: Option<Name>) {
        let mut state = self.lock();
        state.left.epochs.insert(epoch);
        state.left.names.extend(name);
    }

    /// The history keeps these from now on.
    pub fn hand_over<'a>(&self, names: impl IntoIterator<Item = &'a Name>) {
        let mut state = self.lock();
        for name in names {
            state.left.names.remove(name);
        }
    }

    pub fn has_left(&self) -> bool {
        !self.lock().left.epochs.is_empty()
    }

    pub fn take_left(&self) -> Left {
        std::mem::take(&mut self.lock().left)
    }

    /// These objects have another number of links than the kernel may have cached.
    pub fn forget_links(&self, objects: Vec<Identity>) {
        self.lock().links.extend(objects);
        // Otherwise whoever has closed the gate does it: that may be this thread.
        self.forget_pending();
    }

    fn forget_now(&self, mut state: MutexGuard<'_, GateState>) {
        let objects: HashSet<Identity> = std::mem::take(&mut state.links).into_iter().collect();
        let guarding = state.guarding.clone().filter(|_| !objects.is_empty());
        drop(state);
        if let Some(guarding) = guarding {
            guarding.forget(&Touched {
                objects,
                ..Touched::default()
            });
        }
    }

    fn open_only(&self) {
        self.lock().phase = Phase::Open;
        self.changed.notify_all();
    }

    fn open(&self) {
        self.open_only();
        self.forget_pending();
    }

    /// Makes the kernel forget what nobody has made it forget while the gate was closed.
    pub fn forget_pending(&self) {
        let state = self.lock();
        if matches!(state.phase, Phase::Open) {
            self.forget_now(state);
        }
    }

    pub fn is_guarded(&self) -> bool {
        self.lock().guarding.is_some()
    }

    /// How programs use a file of the base through the guard. The gate must not be closed.
    pub fn users(&self, path: &[u8], file: Identity) -> FileUsers {
        let guarding = self.lock().guarding.clone();
        guarding.map_or_else(FileUsers::default, |guarding| guarding.users(path, file))
    }

    /// Whether a call has left the object in limbo, or a link to it.
    fn has_left_object(&self, object: Identity) -> bool {
        let names = &self.lock().left.names;
        !names.is_empty() && names.contains(&names::limbo(object))
    }

    /// Closes the gate for commits that are applied as one. `None`: there is no guard. The caller holds
    /// the commit lock, so there is one at a time. `replaced`: the files that they give other inodes.
    pub fn close<'a>(
        &self,
        commits: impl IntoIterator<Item = (&'a CommitRecord, &'a WriteSet)>,
        replaced: impl FnOnce() -> Vec<(Vec<u8>, Identity)>,
    ) -> Option<Closed<'_>> {
        let guarding = self.lock().guarding.clone()?;
        // Before `Closing`, which must be short: programs that read meanwhile make it begin anew.
        let in_use = replaced()
            .into_iter()
            .filter(|(path, file)| guarding.users(path, *file).is_in_use);
        let used = in_use.map(|(_, file)| file).collect();
        let mut touched = Touched::default();
        for (record, set) in commits {
            touched.note(record);
            touched
                .transactions
                .insert(TransactionId(record.transaction));
            let replaced = set.replaced().map(|base| base.identity());
            let dying = set.dying.values().map(|base| base.identity());
            touched.dying.extend(dying.chain(replaced));
        }
        let touched = Arc::new(touched);
        for tries_left in (0..TRIES_MAX).rev() {
            let mut state = self.lock();
            while matches!(state.phase, Phase::Paused) {
                state = sync::wait(&self.changed, state);
            }
            state.phase = Phase::Closing {
                touched: touched.clone(),
                was_read: false,
            };
            // Who may still give the kernel something to cache, so that it can forget it.
            while state.inside[0] > 0 {
                state = sync::wait(&self.changed, state);
            }
            drop(state);
            guarding.forget(&touched);
            let mut state = self.lock();
            let is_forgotten = !matches!(state.phase, Phase::Closing { was_read: true, .. });
            if is_forgotten || tries_left == 0 {
                state.phase = Phase::Closed;
                while state.inside != [0, 0] {
                    state = sync::wait(&self.changed, state);
                }
                break;
            }
        }
        Some(Closed {
            gate: self,
            guarding,
            used,
            is_applied: false,
        })
    }
}

impl Paused<'_> {
    /// A call of a program has paused the gate. Then this thread makes the kernel forget nothing:
    /// the kernel may keep locked for the call what that needs.
    pub fn by_call(mut self) -> Self {
        self.is_call = true;
        self
    }

    /// The snapshot of a transaction that begins now, and that shows all commits up to `at`.
    pub fn snapshot(&self, at: Sequence) -> Sequence {
        let mut state = self.gate.lock();
        state.close_epoch();
        state.closed.max(at)
    }

    /// The place in the commit order of all that calls have changed since the last commit.
    pub fn close(&self) -> Sequence {
        let mut state = self.gate.lock();
        let next = state.newest.next();
        state.epoch.get_or_insert(next);
        state.close_epoch();
        state.closed
    }

    /// Whether a snapshot that begins now has a later place in the commit order than `at`.
    pub fn is_beyond(&self, at: Sequence) -> bool {
        let state = self.gate.lock();
        state.epoch.is_some() || state.closed > at
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if self.is_call {
            self.gate.open_only();
        } else {
            self.gate.open();
        }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        let inside = &mut state.inside[usize::from(!self.may_be_cached)];
        *inside -= 1;
        if *inside == 0 {
            self.gate.changed.notify_all();
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.guarding.changed(self.is_applied);
        self.gate.open();
    }
}
