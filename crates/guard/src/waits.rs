//! Calls that wait for transactions: for their locks, and for those that have written what the call
//! changes (`atomdir_engine::Guard::may_change`).
//!
//! A call that must wait is answered with `EINPROGRESS`: its request is put aside, outside the gate and
//! away from the workers, and comes again when locks have changed or a transaction has ended. Meanwhile the kernel keeps locked
//! what the program's call needs: the directories in which it changes names, for all who look up
//! or list something in them without finding it in the cache; and the pages that it writes. So
//!
//! - commits do not wait for these (`forgetting`). A call that waits for other transactions than the one
//!   that commits gives way if that one changes names in its directory: it fails with `EBUSY`. One that
//!   waits for that one alone is about to have its turn: what the kernel keeps locked for it is
//!   forgotten right after it;
//! - a call that changes names waits a minute at most, then the user's next ones do not wait for as long;
//! - a rename between directories does not wait: the kernel lets no other one begin before it ends;
//! - one user has so many calls waiting at most.
//!
//! The kernel has checked the caller's rights when the call came. If what it has checked is another
//! when the call has its turn, the answer is `ESTALE`, after which the kernel looks again.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use atomdir_disk::{Disk, Identity, Name, Owner, Stat, sync};
use atomdir_engine::{GuardedChange as Change, LOCK_ALLOW, MustWait, Section, TransactionId};
use atomdir_fuse::{Request, Result};
use rustix::io::Errno;

use crate::nodes::{Node, Place};
use crate::processes::process_of;
use crate::{Guarded, Known};

/// How long a call that changes names waits at most, unless a test says otherwise.
const NAMES_TIME_MAX: Duration = Duration::from_secs(60);
/// How often it is checked whether such calls have waited too long.
const PERIOD: Duration = Duration::from_secs(1);
/// How many calls of one user wait at most.
const USER_CALLS_MAX: usize = 64;
const ACCESS_ACL: &[u8] = b"system.posix_acl_access";

/// What a call is about to change.
pub enum Planned<'a> {
    /// Contents, from one byte up to another.
    Contents(&'a Node, u64, u64),
    /// Contents, by a write: the kernel keeps the pages locked.
    Write(&'a Node, u64, u64),
    Attributes(&'a Node),
    /// The attribute that says who may lock it.
    Leave(&'a Node),
    Name(&'a Node, &'a Name),
    /// The name's object is moved or loses the name.
    Leaving(&'a Node, &'a Name),
}

/// Tells whether a process holds a transaction.
pub type Holds = Box<dyn Fn(TransactionId, u32) -> bool + Send + Sync>;

#[derive(Default)]
pub struct Waits {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// By the numbers of the requests.
    calls: HashMap<u64, Call>,
    /// How many writes have begun to wait so far.
    writes: u64,
    /// Users whose calls that change names have waited too long, and until when others of them do
    /// not wait.
    impatient: HashMap<u32, Instant>,
    is_timed: bool,
    names_time: Duration,
    /// What is about to be applied.
    commit: Option<Commit>,
}

struct Commit {
    directories: HashSet<Identity>,
    transactions: HashSet<TransactionId>,
}

impl State {
    fn gives_way(&self, call: &Call) -> bool {
        self.commit.as_ref().is_some_and(|commit| {
            let touches = |directory| commit.directories.contains(directory);
            call.directories.iter().any(touches) && !call.holders.is_subset(&commit.transactions)
        })
    }
}

impl Default for State {
    fn default() -> State {
        State {
            calls: HashMap::new(),
            writes: 0,
            impatient: HashMap::new(),
            is_timed: false,
            names_time: NAMES_TIME_MAX,
            commit: None,
        }
    }
}

struct Call {
    user: u32,
    process: u32,
    seen: Vec<Seen>,
    /// For which transactions it waits. None: for its turn.
    holders: HashSet<TransactionId>,
    /// Where it is to change names.
    directories: Vec<Identity>,
    /// Since when a call waits that changes names.
    names_since: Option<Instant>,
    /// A write: the file, and the first byte and the one behind the last.
    write: Option<(Identity, u64, u64)>,
}

/// What the kernel has looked at to check the caller's rights.
#[derive(PartialEq, Eq)]
struct Seen {
    object: Identity,
    mode: u32,
    owner: Owner,
    acl: Option<Vec<u8>>,
}

impl Waits {
    /// How many calls wait.
    pub fn count(&self) -> usize {
        sync::lock(&self.state).calls.len()
    }

    /// Waits until `is_done`, or until a write begins to wait. `seen`: how many have before.
    pub fn until_done_or_write(&self, seen: u64, is_done: &dyn Fn() -> bool) {
        let mut state = sync::lock(&self.state);
        while !is_done() && state.writes == seen {
            state = sync::wait(&self.changed, state);
        }
    }

    /// Until [`end_commit`](Self::end_commit), calls that change names in these directories and wait
    /// for other transactions than these give way.
    pub fn begin_commit(
        &self,
        directories: HashSet<Identity>,
        transactions: HashSet<TransactionId>,
    ) {
        sync::lock(&self.state).commit = Some(Commit {
            directories,
            transactions,
        });
    }

    pub fn end_commit(&self) {
        sync::lock(&self.state).commit = None;
    }

    /// Waits for something to be done. `holds` gets the directories in which calls that wait are to
    /// change names, and tells whether that is enough.
    pub fn until(&self, holds: &mut dyn FnMut(&HashSet<Identity>) -> bool) {
        let mut state = sync::lock(&self.state);
        loop {
            let calls = state.calls.values();
            let staying = calls.filter(|call| !state.gives_way(call));
            let directories = staying.flat_map(|call| call.directories.iter().copied());
            if holds(&directories.collect()) {
                return;
            }
            state = sync::wait(&self.changed, state);
        }
    }

    /// Something may be done.
    pub fn wake(&self) {
        drop(sync::lock(&self.state));
        self.changed.notify_all();
    }

    /// The parts of a file that no write waits to change, each as the first byte and the length (0: to
    /// the end), and how many writes have begun to wait so far.
    pub fn apart(&self, file: Identity) -> (u64, Vec<(i64, i64)>) {
        let state = sync::lock(&self.state);
        let writes = state.calls.values().filter_map(|call| call.write);
        let writes = writes.filter(|(written, ..)| *written == file);
        let mut taken: Vec<(u64, u64)> = writes.map(|(_, start, end)| (start, end)).collect();
        taken.sort_unstable();
        (state.writes, gaps(&taken))
    }

    /// The processes whose calls wait, but for this call, and for which transactions.
    pub fn of_others(&self, unique: u64) -> Vec<(u32, Vec<TransactionId>)> {
        let state = sync::lock(&self.state);
        let others = state.calls.iter().filter(|(other, _)| **other != unique);
        others
            .map(|(_, call)| (call.process, call.holders.iter().copied().collect()))
            .collect()
    }

    fn take(&self, unique: u64) -> Option<Call> {
        sync::lock(&self.state).calls.remove(&unique)
    }

    fn is_waiting(&self, unique: u64) -> bool {
        sync::lock(&self.state).calls.contains_key(&unique)
    }
}

const PAGE: u64 = 4096;

/// What lies between parts, which are sorted, in whole pages.
fn gaps(taken: &[(u64, u64)]) -> Vec<(i64, i64)> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for (start, end) in taken {
        let start = start / PAGE * PAGE;
        if start > at {
            gaps.push((at as i64, (start - at) as i64));
        }
        at = at.max(end.div_ceil(PAGE) * PAGE);
    }
    gaps.push((at as i64, 0));
    gaps
}

impl<'a> Planned<'a> {
    pub fn xattr(node: &'a Node, name: &[u8]) -> Planned<'a> {
        match name == LOCK_ALLOW.as_bytes() {
            true => Planned::Leave(node),
            false => Planned::Attributes(node),
        }
    }

    fn node(&self) -> &Node {
        match self {
            Planned::Contents(node, ..)
            | Planned::Write(node, ..)
            | Planned::Attributes(node)
            | Planned::Leave(node)
            | Planned::Name(node, _)
            | Planned::Leaving(node, _) => node,
        }
    }

    fn name(&self) -> Option<&Name> {
        match self {
            Planned::Name(_, name) | Planned::Leaving(_, name) => Some(name),
            _ => None,
        }
    }
}

impl Guarded {
    /// Tells who holds transactions, so that no process waits for itself.
    pub fn tell_holders(&self, holds: Holds) {
        let _ = self.holds.set(holds);
    }

    /// Begins a call that changes something. `EINPROGRESS`: it must wait, and will come again.
    pub(crate) fn enter_to_change(
        &self,
        request: &Request,
        planned: &[Planned<'_>],
    ) -> Result<Section<'_>> {
        let section = self.enter_as(request);
        let waits = &self.known.waits;
        let may_wait = self.known.may_wait() && self.guard.may_have_to_wait();
        if !may_wait && !waits.is_waiting(request.unique) {
            return Ok(section);
        }
        let places: Vec<Place<'_>> = planned
            .iter()
            .map(|one| one.node().located(&self.known))
            .collect();
        let located: Vec<_> = places.iter().map(Place::as_ref).collect();
        let changes = planned.iter().zip(&located).map(|(one, place)| match one {
            Planned::Contents(_, start, end) | Planned::Write(_, start, end) => {
                Change::Contents(place, *start, *end)
            }
            Planned::Attributes(_) => Change::Attributes(place),
            Planned::Leave(_) => Change::Leave(place),
            Planned::Name(_, name) => Change::Name(place, name),
            Planned::Leaving(_, name) => Change::Leaving(place, name),
        });
        let changes: Vec<Change<'_>> = changes.collect();
        match self.guard.may_change(request.unique, &changes)? {
            Ok(()) => match waits.take(request.unique) {
                Some(call) if call.seen != self.seen(planned) => Err(Errno::STALE),
                Some(Call { write: Some(_), .. }) => {
                    // A commit may have left these pages to be forgotten now.
                    if let Some(Planned::Write(node, ..)) = planned.first()
                        && let Some(number) = self.known.nodes.of_identity(node.identity)
                    {
                        self.known.forget_later(number);
                    }
                    Ok(section)
                }
                _ => Ok(section),
            },
            Err(MustWait(holders)) => {
                let seen = self.seen(planned);
                drop(section);
                Err(self.wait(request, planned, (seen, &holders)))
            }
        }
    }

    fn wait(
        &self,
        request: &Request,
        planned: &[Planned<'_>],
        (seen, holders): (Vec<Seen>, &[TransactionId]),
    ) -> Errno {
        let refused = self.refuses_to_wait(request, planned, holders);
        let errno = refused.unwrap_or_else(|| self.note_wait(request, planned, (seen, holders)));
        if errno != Errno::INPROGRESS {
            self.stop_waiting(request.unique);
        }
        errno
    }

    fn refuses_to_wait(
        &self,
        request: &Request,
        planned: &[Planned<'_>],
        holders: &[TransactionId],
    ) -> Option<Errno> {
        if self.would_wait_for_itself(request, holders) {
            return Some(Errno::DEADLK);
        }
        let directories = planned.iter().filter(|one| one.name().is_some());
        let mut directories = directories.map(|one| one.node().identity);
        let first = directories.next()?;
        let is_between = directories.any(|other| other != first);
        is_between.then_some(Errno::BUSY)
    }

    fn note_wait(
        &self,
        request: &Request,
        planned: &[Planned<'_>],
        (seen, holders): (Vec<Seen>, &[TransactionId]),
    ) -> Errno {
        let now = Instant::now();
        let (user, process) = (request.user, process_of(request.process));
        let waits = &self.known.waits;
        let mut state = sync::lock(&waits.state);
        let names_time = state.names_time;
        let is_over = |since: Instant| now.duration_since(since) >= names_time;
        let holders = holders.iter().copied().collect();
        if let Some(call) = state.calls.get_mut(&request.unique) {
            call.holders = holders;
            let call = &state.calls[&request.unique];
            if state.gives_way(call) {
                return Errno::BUSY;
            }
            if call.names_since.is_some_and(is_over) {
                state.impatient.insert(user, now + names_time);
                return Errno::BUSY;
            }
            return Errno::INPROGRESS;
        }
        let changes_names = planned.iter().any(|one| one.name().is_some());
        state.impatient.retain(|_, until| *until > now);
        let own = state.calls.values().filter(|call| call.user == user);
        let is_impatient = changes_names && state.impatient.contains_key(&user);
        if is_impatient || own.count() >= USER_CALLS_MAX {
            return Errno::BUSY;
        }
        let write = planned.iter().find_map(|one| match one {
            Planned::Write(node, start, end) => Some((node.identity, *start, *end)),
            _ => None,
        });
        let named = planned.iter().filter(|one| one.name().is_some());
        let call = Call {
            user,
            process,
            seen,
            holders,
            directories: named.map(|one| one.node().identity).collect(),
            names_since: changes_names.then_some(now),
            write,
        };
        if state.gives_way(&call) {
            return Errno::BUSY;
        }
        state.calls.insert(request.unique, call);
        state.writes += u64::from(write.is_some());
        waits.changed.notify_all();
        let starts = changes_names && !std::mem::replace(&mut state.is_timed, true);
        drop(state);
        if starts {
            self.known.time_waits();
        }
        Errno::INPROGRESS
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.known.waits.count()
    }

    /// Says how long calls that change names wait at most.
    pub fn limit_waits(&self, names_time: Duration) {
        sync::lock(&self.known.waits.state).names_time = names_time;
    }

    pub(crate) fn stop_waiting(&self, unique: u64) {
        self.guard.give_up(unique);
        self.known.waits.take(unique);
    }

    /// What the kernel has looked at for the call: each object and, if a name is to change, what that
    /// leads to. A write needs no right any more.
    fn seen(&self, planned: &[Planned<'_>]) -> Vec<Seen> {
        let mut seen = Vec::new();
        let mut note = |stat: Result<Stat>, acl: Option<Vec<u8>>| {
            seen.extend(stat.map(|stat| Seen {
                object: stat.identity,
                mode: stat.attributes.mode,
                owner: stat.attributes.owner,
                acl,
            }));
        };
        for one in planned {
            if matches!(one, Planned::Write(..)) {
                continue;
            }
            let object = &one.node().object;
            note(
                self.disk.stat(object),
                self.disk.xattr(object, ACCESS_ACL).ok(),
            );
            if let Some(name) = one.name() {
                note(self.disk.stat_at(object, name), None);
            }
        }
        seen
    }
}

impl Known {
    /// Has calls that change names come again once they have waited too long.
    fn time_waits(self: &Arc<Self>) {
        let known = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("guard-waits".to_owned());
        let tend = move || {
            while tend_waits(&known) {
                std::thread::sleep(PERIOD);
            }
        };
        if let Err(error) = thread.spawn(tend) {
            tracing::warn!("calls that change names may wait for long: {error}");
        }
    }
}

/// Whether calls wait that change names.
fn tend_waits(known: &Weak<Known>) -> bool {
    let Some(known) = known.upgrade() else {
        return false;
    };
    let mut state = sync::lock(&known.waits.state);
    let mut since = state.calls.values().filter_map(|call| call.names_since);
    let oldest = since.next().map(|first| since.fold(first, Instant::min));
    let Some(oldest) = oldest else {
        state.is_timed = false;
        return false;
    };
    let is_over = oldest.elapsed() >= state.names_time;
    drop(state);
    if is_over {
        atomdir_engine::Guarding::retry(&*known);
    }
    true
}
