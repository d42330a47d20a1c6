//! Which transaction holds which lock, and which waits for which.
//!
//! Invariants
//! 1. If two locks overlap and one of them is exclusive, they have the same
//!    holder.
//! 2. A request is granted as a whole or not at all.
//! 3. Conflicting requests are granted in the order in which they came, unless
//!    the later one would then wait for itself: fairness must not cause a
//!    deadlock.
//! 4. In each cycle of transactions that wait for one another, the request of the
//!    youngest fails. `--retry` keeps the age of the first try, so a transaction
//!    that is tried again becomes the oldest in the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_types::{ChangedBy, Conflict, ConflictKind, LockMode};

use super::reach::Reach;
use super::target::{Extent, Target};
use crate::base::above;
use crate::ids::TransactionId;

/// One of the parts that a request locks together.
#[derive(Clone)]
pub(crate) struct Lock {
    pub target: Target,
    pub mode: LockMode,
    /// The path as it was requested.
    pub path: Vec<u8>,
    /// The objects that the lock covers below its own, if it is on a subtree.
    pub reach: Reach,
    /// It was not asked for: its holder has voted for a commit, and must be able to carry it out.
    pub is_vote: bool,
}

impl Lock {
    fn conflicts_with(&self, other: &Lock) -> bool {
        let both_shared = self.mode == LockMode::Shared && other.mode == LockMode::Shared;
        !both_shared
            && self.target.overlaps(&other.target)
            && self.reaches(&other.target)
            && other.reaches(&self.target)
    }

    /// Whether the lock reaches a target that overlaps its own.
    pub fn reaches(&self, other: &Target) -> bool {
        let is_below = self.target.base.serial != other.base.serial
            && self.target.extent == Extent::Subtree
            && other.is_below(&self.target.base);
        !is_below || self.reach.covers(&other.base)
    }
}

/// The transaction that asks. The lower the age, the older it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asker {
    pub transaction: TransactionId,
    pub age: TransactionId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

/// `transaction` waits for `path`, which `holder` has locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    pub transaction: TransactionId,
    pub path: Vec<u8>,
    pub holder: TransactionId,
}

impl Waits {
    pub(super) fn held(&self) -> Conflict {
        self.conflict(ConflictKind::Locked)
    }

    /// For a deadlock, in which several transactions wait.
    pub(super) fn held_in_deadlock(&self) -> Conflict {
        let waiting = self.transaction;
        self.conflict(ConflictKind::LockedInDeadlock { waiting })
    }

    fn conflict(&self, what: ConflictKind) -> Conflict {
        Conflict {
            path: self.path.clone(),
            what,
            by: ChangedBy::Open {
                transaction: self.holder,
                label: Vec::new(),
            },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestState {
    Granted,
    Waiting,
    /// This request was chosen to fail. The cycle begins with its own
    /// transaction.
    Deadlock(Vec<Waits>),
    /// The transaction has ended.
    Ended,
}

struct Request {
    asker: Asker,
    locks: Vec<Lock>,
    deadlock: Option<Vec<Waits>>,
}

#[derive(Default)]
pub(crate) struct LockTable {
    /// Keyed by the serial of the locked object.
    held: HashMap<u64, Vec<(TransactionId, Lock)>>,
    /// In the order in which they came.
    waiting: BTreeMap<Ticket, Request>,
    next_ticket: u64,
    /// How many locks each transaction holds.
    counts: HashMap<TransactionId, usize>,
    /// Whether somebody holds a lock, or waits.
    in_use: Arc<AtomicBool>,
}

impl LockTable {
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Whether somebody holds a lock, or waits, from now on.
    pub fn in_use(&self) -> Arc<AtomicBool> {
        self.in_use.clone()
    }

    fn note_use(&self) {
        self.in_use.store(!self.is_empty(), Ordering::Release);
    }

    /// Asks for locks; [`LockTable::progress`] returns the outcome.
    pub fn ask(&mut self, asker: Asker, locks: Vec<Lock>) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let request = Request {
            asker,
            locks,
            deadlock: None,
        };
        self.waiting.insert(ticket, request);
        self.note_use();
        ticket
    }

    /// Whether a request that has asked has its turn. It is granted nothing: it is over then.
    pub fn pass(&mut self, ticket: Ticket) -> bool {
        let has_turn = self.waiting.get(&ticket).is_none_or(|request| {
            self.holders_of(request).is_empty() && !self.must_queue(ticket, request)
        });
        if has_turn {
            self.withdraw(ticket);
        }
        has_turn
    }

    /// Returns the state of a request. Call it again whenever the table has
    /// changed.
    pub fn progress(&mut self, ticket: Ticket) -> RequestState {
        let Some(request) = self.waiting.get(&ticket) else {
            return RequestState::Ended;
        };
        if let Some(cycle) = request.deadlock.clone() {
            self.waiting.remove(&ticket);
            return RequestState::Deadlock(cycle);
        }
        if self.holders_of(request).is_empty() {
            if self.must_queue(ticket, request) {
                return RequestState::Waiting;
            }
            if let Some(request) = self.waiting.remove(&ticket) {
                self.grant(request);
            }
            return RequestState::Granted;
        }
        let Some(cycle) = self.cycle(request.asker.transaction) else {
            return RequestState::Waiting;
        };
        self.choose(ticket, &cycle)
    }

    /// Gives up the request.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
        self.note_use();
    }

    /// The locks of others that a waiting request waits for. Each holder is listed once.
    pub fn waits_for(&self, ticket: Ticket) -> Vec<Waits> {
        let request = self.waiting.get(&ticket);
        request.map_or_else(Vec::new, |request| self.holders_of(request))
    }

    /// Returns the locks of others that forbid `transaction` to change these
    /// targets.
    pub fn forbid(&self, transaction: TransactionId, changes: &[Target]) -> Vec<Waits> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for target in changes {
            let lock = Lock {
                target: target.clone(),
                mode: LockMode::Exclusive,
                path: Vec::new(),
                reach: Reach::everything(),
                is_vote: false,
            };
            self.conflicts_of(transaction, &lock, &mut found);
        }
        found
    }

    /// Ends the locks and requests of a transaction.
    pub fn release_all(&mut self, transaction: TransactionId) -> u64 {
        self.waiting
            .retain(|_, request| request.asker.transaction != transaction);
        self.release(transaction, |_| true)
    }

    /// Ends some of a transaction's locks; returns how many.
    pub fn release(&mut self, transaction: TransactionId, wanted: impl Fn(&Lock) -> bool) -> u64 {
        let mut released = 0;
        self.held.retain(|_, locks| {
            let before = locks.len();
            locks.retain(|(holder, lock)| *holder != transaction || !wanted(lock));
            released += (before - locks.len()) as u64;
            !locks.is_empty()
        });
        if let Some(count) = self.counts.get_mut(&transaction) {
            *count -= released as usize;
            if *count == 0 {
                self.counts.remove(&transaction);
            }
        }
        self.note_use();
        released
    }

    pub fn count_held_by(&self, transaction: TransactionId) -> u64 {
        self.counts.get(&transaction).copied().unwrap_or(0) as u64
    }

    pub fn held_by(&self, transaction: TransactionId) -> Vec<Lock> {
        let all = self.held.values().flatten();
        let own = all.filter(|(holder, _)| *holder == transaction);
        own.map(|(_, lock)| lock.clone()).collect()
    }

    pub fn awaited_by(&self, transaction: TransactionId) -> Vec<Lock> {
        let own = self
            .waiting
            .values()
            .filter(|request| request.asker.transaction == transaction);
        own.flat_map(|request| request.locks.clone()).collect()
    }

    fn grant(&mut self, request: Request) {
        self.in_use.store(true, Ordering::Release);
        let holder = request.asker.transaction;
        let in_the_way = self.holders_of(&request);
        assert!(in_the_way.is_empty(), "granted beside {in_the_way:?}");
        for lock in request.locks {
            let locks = self.held.entry(lock.target.base.serial).or_default();
            let is_known = |(of, known): &(TransactionId, Lock)| {
                *of == holder
                    && known.target.extent == lock.target.extent
                    && (known.mode == lock.mode || known.mode == LockMode::Exclusive)
            };
            if locks.iter().any(is_known) {
                continue;
            }
            let before = locks.len();
            // An exclusive lock replaces the shared one.
            locks.retain(|(of, known)| *of != holder || known.target.extent != lock.target.extent);
            locks.push((holder, lock));
            let count = self.counts.entry(holder).or_default();
            *count = *count + locks.len() - before;
        }
    }

    /// Grants locks that nobody was asked for. The caller knows that nobody holds one in their way.
    pub fn hold(&mut self, holder: TransactionId, wanted: impl Iterator<Item = Lock>) {
        for lock in wanted {
            let locks = self.held.entry(lock.target.base.serial).or_default();
            locks.push((holder, lock));
            *self.counts.entry(holder).or_default() += 1;
        }
        self.note_use();
    }

    fn holders_of(&self, request: &Request) -> Vec<Waits> {
        let mut found = Vec::new();
        for lock in &request.locks {
            self.conflicts_of(request.asker.transaction, lock, &mut found);
        }
        let mut seen = HashSet::new();
        found.retain(|waits| seen.insert(waits.holder));
        found
    }

    /// Finds the locks of others that conflict with a lock: those on its object,
    /// those on whole subtrees above it and, if it is on a subtree itself, those
    /// below it.
    fn conflicts_of(&self, transaction: TransactionId, lock: &Lock, found: &mut Vec<Waits>) {
        let mut look_at = |(holder, held): &(TransactionId, Lock)| {
            if *holder != transaction && held.conflicts_with(lock) {
                found.push(Waits {
                    transaction,
                    path: held.path.clone(),
                    holder: *holder,
                });
            }
        };
        if lock.target.extent == Extent::Subtree {
            self.held.values().flatten().for_each(look_at);
            return;
        }
        let base = &lock.target.base;
        for at in std::iter::once(base.clone()).chain(above(base)) {
            self.held
                .get(&at.serial)
                .into_iter()
                .flatten()
                .for_each(&mut look_at);
        }
    }

    /// Whether an earlier request must be granted first.
    fn must_queue(&self, ticket: Ticket, request: &Request) -> bool {
        let asker = request.asker.transaction;
        self.earlier_than(ticket, request)
            .any(|earlier| self.path_of_waits(earlier, asker, true).is_none())
    }

    /// The transactions with earlier conflicting requests that are still waiting.
    fn earlier_than<'a>(
        &'a self,
        ticket: Ticket,
        request: &'a Request,
    ) -> impl Iterator<Item = TransactionId> + 'a {
        let asker = request.asker.transaction;
        let earlier = self.waiting.range(..ticket).map(|(_, earlier)| earlier);
        let conflicts = move |earlier: &&Request| {
            let conflicts = |lock: &Lock| earlier.locks.iter().any(|e| e.conflicts_with(lock));
            earlier.asker.transaction != asker
                && earlier.deadlock.is_none()
                && request.locks.iter().any(conflicts)
        };
        earlier
            .filter(conflicts)
            .map(|earlier| earlier.asker.transaction)
    }

    /// How a transaction waits for itself, through locks that others hold.
    fn cycle(&self, transaction: TransactionId) -> Option<Vec<Waits>> {
        self.path_of_waits(transaction, transaction, false)
    }

    /// How `from` waits for `to`, if it does: at least one step. A request that
    /// waits for no holder may still wait for its turn.
    fn path_of_waits(
        &self,
        from: TransactionId,
        to: TransactionId,
        with_turns: bool,
    ) -> Option<Vec<Waits>> {
        let mut reached_by: HashMap<TransactionId, Waits> = HashMap::new();
        let mut open = vec![from];
        while let Some(at) = open.pop() {
            for waits in self.all_waits(at, with_turns) {
                let holder = waits.holder;
                if reached_by.contains_key(&holder) {
                    continue;
                }
                reached_by.insert(holder, waits);
                if holder == to {
                    return Some(trace(&reached_by, from, to));
                }
                open.push(holder);
            }
        }
        None
    }

    fn all_waits(&self, transaction: TransactionId, with_turns: bool) -> Vec<Waits> {
        let mut all = Vec::new();
        for (ticket, request) in &self.waiting {
            if request.asker.transaction != transaction || request.deadlock.is_some() {
                continue;
            }
            let holders = self.holders_of(request);
            if holders.is_empty() && with_turns {
                let turns = self.earlier_than(*ticket, request);
                all.extend(turns.map(|holder| Waits {
                    transaction,
                    path: Vec::new(),
                    holder,
                }));
            }
            all.extend(holders);
        }
        all
    }

    /// Chooses the youngest transaction of a cycle to fail.
    fn choose(&mut self, ticket: Ticket, cycle: &[Waits]) -> RequestState {
        let in_cycle: HashSet<TransactionId> = cycle.iter().map(|one| one.transaction).collect();
        let asks = self
            .waiting
            .iter()
            .filter(|(_, request)| in_cycle.contains(&request.asker.transaction));
        let youngest = asks.max_by_key(|(ticket, request)| (request.asker.age, **ticket));
        let Some((&chosen, request)) = youngest else {
            return RequestState::Waiting;
        };
        let chosen_transaction = request.asker.transaction;
        let first = cycle
            .iter()
            .position(|waits| waits.transaction == chosen_transaction);
        let mut cycle = cycle.to_vec();
        cycle.rotate_left(first.unwrap_or(0));
        if chosen_transaction == self.waiting[&ticket].asker.transaction {
            self.waiting.remove(&ticket);
            return RequestState::Deadlock(cycle);
        }
        if let Some(request) = self.waiting.get_mut(&chosen) {
            request.deadlock = Some(cycle);
        }
        RequestState::Waiting
    }
}

/// The steps that led from one to the other.
fn trace(
    reached_by: &HashMap<TransactionId, Waits>,
    from: TransactionId,
    to: TransactionId,
) -> Vec<Waits> {
    let mut steps = Vec::new();
    let mut at = to;
    while let Some(waits) = reached_by.get(&at) {
        steps.push(waits.clone());
        at = waits.transaction;
        if at == from {
            break;
        }
    }
    steps.reverse();
    steps
}
