//! Early conflicts: a transaction that asks for them learns already at a write, and not
//! only at its commit, that another open transaction has written the same part.
//!
//! The oldest transaction wins. So a younger one's commit is refused while the older one is open,
//! as if the older one held locks. A transaction that is tried again keeps the age of its first
//! try. So in the end it is the oldest and succeeds.
//!
//! `noted_writes` states the invariants. Writes are noted in memory, with the granularity of
//! conflicts.
//!
//! Calls of programs outside that wait for writers (`requests::guarded`) use the same notes.
//!
//! Invariant: writes are noted only while an open transaction wants to know of conflicts early, or
//! calls wait for writers.
//! Earlier writes are noted when that begins. So at other times a write costs
//! only one look at a flag. That time may end just after that look. So every method
//! that notes a write checks the flag again with the state locked. Otherwise the note would outlast
//! its transaction, because the end of a transaction is not noted at such times either.

mod intents;
mod noted_writes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::lock;
use crate::locks::{Target, Waits};
use noted_writes::NotedWrites;
pub(crate) use noted_writes::{Author, Busy};

#[derive(Default)]
pub(crate) struct Writers {
    /// Whether writes must be noted.
    is_needed: AtomicBool,
    /// Calls of programs outside wait for those that have written what they change.
    calls_wait: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The transactions that want to know early.
    early: BTreeSet<TransactionId>,
    calls_wait: bool,
    noted: NotedWrites,
}

impl State {
    fn is_needed(&self) -> bool {
        !self.early.is_empty() || self.calls_wait
    }
}

impl Writers {
    /// Whether writes must be noted.
    pub fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Acquire)
    }

    pub fn ended(&self, transaction: TransactionId) {
        if !self.is_needed() {
            return;
        }
        let mut state = lock(&self.state);
        state.noted.remove(transaction);
        state.early.remove(&transaction);
        self.drop_unneeded(&mut state);
    }

    fn drop_unneeded(&self, state: &mut State) {
        if !state.is_needed() {
            state.noted = NotedWrites::default();
            self.is_needed.store(false, Ordering::Release);
        }
    }

    /// The transaction's lazy commit has returned. It is applied later, then call
    /// [`ended`](Writers::ended).
    pub fn returned(&self, transaction: TransactionId) {
        if !self.is_needed() {
            return;
        }
        let mut state = lock(&self.state);
        match state.calls_wait {
            true => state.noted.note_returned(transaction),
            false => state.noted.remove(transaction),
        }
        state.early.remove(&transaction);
        self.drop_unneeded(&mut state);
    }

    /// No lazy commit that has returned will be applied.
    pub fn forget_returned(&self) {
        lock(&self.state).noted.forget_returned();
    }

    /// Says whether calls of programs outside wait for writers from now on. If the result is true,
    /// nothing was noted so far, and the caller must note what open transactions have written.
    pub fn let_calls_wait(&self, calls_wait: bool) -> bool {
        let mut state = lock(&self.state);
        let was_needed = state.is_needed();
        state.calls_wait = calls_wait;
        self.calls_wait.store(calls_wait, Ordering::Release);
        if state.is_needed() {
            self.is_needed.store(true, Ordering::Release);
        }
        self.drop_unneeded(&mut state);
        calls_wait && !was_needed
    }

    pub fn calls_wait(&self) -> bool {
        self.calls_wait.load(Ordering::Acquire)
    }

    /// Whether calls wait for writers, from now on.
    pub fn calls_wait_flag(&self) -> Arc<AtomicBool> {
        self.calls_wait.clone()
    }

    /// Whether a call may have to wait now.
    pub fn has_for_calls(&self) -> bool {
        self.calls_wait() && !lock(&self.state).noted.is_empty()
    }

    /// For which transactions a call that changes these waits.
    pub fn written(&self, targets: &[Target]) -> BTreeSet<TransactionId> {
        match self.calls_wait() {
            true => lock(&self.state).noted.written(targets),
            false => BTreeSet::new(),
        }
    }

    /// Call this when a transaction has committed a part of its writes. `written` are the others.
    pub fn landed(&self, author: &Author, written: &[Target]) {
        let mut state = lock(&self.state);
        if state.is_needed() {
            state.noted.remove(author.transaction);
            state.noted.note(author, written);
        }
    }

    /// To be called if a commit that was entered has failed.
    pub fn leave_commit(&self, transaction: TransactionId) {
        if self.is_needed() {
            let mut state = lock(&self.state);
            state.noted.set_committing(transaction, false);
        }
    }

    /// Adds a transaction that wants to know early. If true, nothing was noted so far,
    /// and the caller must note what open transactions have written.
    pub fn begin(&self, transaction: TransactionId) -> bool {
        let mut state = lock(&self.state);
        let was_needed = state.is_needed();
        state.early.insert(transaction);
        self.is_needed.store(true, Ordering::Release);
        !was_needed
    }

    pub fn note(&self, author: &Author, written: &[Target]) {
        let mut state = lock(&self.state);
        if state.is_needed() {
            state.noted.note(author, written);
        }
    }

    /// Returns the conflicts for which a commit is refused. If there are none, the commit
    /// is entered.
    pub fn enter_commit(&self, author: &Author, written: &[Target]) -> Vec<Conflict> {
        let mut state = lock(&self.state);
        if !state.is_needed() {
            return Vec::new();
        }
        state.noted.note(author, written);
        state.noted.enter_commit(author.transaction)
    }

    /// Notes a write that is about to happen, or the conflict with a transaction that was
    /// first. `locked`: the locks of others that forbid the write.
    pub fn announce(
        &self,
        author: &Author,
        targets: &[Target],
        locked: Vec<Waits>,
    ) -> Result<(), Busy> {
        let mut state = lock(&self.state);
        if !state.is_needed() {
            return Ok(());
        }
        let noted = &mut state.noted;
        if !locked.is_empty() {
            let conflicts = locked.into_iter().map(|waits| Conflict {
                path: waits.path,
                what: ConflictKind::Locked,
                by: ChangedBy::Open {
                    transaction: waits.holder,
                    label: Vec::new(),
                },
            });
            noted.meet(author, conflicts.collect());
        }
        noted.announce(author, targets)
    }

    /// The conflicts that a transaction has met at its writes.
    pub fn met_by(&self, transaction: TransactionId) -> Vec<Conflict> {
        match self.is_needed() {
            true => lock(&self.state).noted.met_by(transaction),
            false => Vec::new(),
        }
    }
}
