//! Early conflicts: a transaction that asks for them learns at a write that
//! another open one has written the same, not only at its commit.
//!
//! The oldest wins. So that it does, a younger one's commit waits for it, as it
//! were: it is refused while the older is open, like the commit of what is
//! locked. One that tries again keeps the age of its first try, becomes the
//! oldest in the end, and gets on.
//!
//! `marks` states the invariants. Writes are noted in memory, with the granularity of
//! conflicts.
//!
//! Invariant: writes are noted only while an open transaction wants to know. What was
//! written before is noted when the first such transaction begins. So all others pay only
//! one look at a flag.

mod intents;
mod marks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::lock;
use crate::locks::{Target, Waits};
use marks::Marks;
pub(crate) use marks::{Author, Busy};

#[derive(Default)]
pub(crate) struct Writers {
    /// Whether any open transaction wants to know of conflicts early.
    is_needed: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Those who want to know.
    early: BTreeSet<TransactionId>,
    marks: Marks,
}

impl Writers {
    /// Otherwise nothing has to be noted.
    pub fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Acquire)
    }

    pub fn ended(&self, transaction: TransactionId) {
        if !self.is_needed() {
            return;
        }
        let mut state = lock(&self.state);
        state.marks.remove(transaction);
        state.early.remove(&transaction);
        if state.early.is_empty() {
            state.marks = Marks::default();
            self.is_needed.store(false, Ordering::Release);
        }
    }

    /// A commit that was entered has failed.
    pub fn leave_commit(&self, transaction: TransactionId) {
        if self.is_needed() {
            let mut state = lock(&self.state);
            state.marks.set_committing(transaction, false);
        }
    }

    /// One more that wants to know. True: nothing was noted so far, and what open
    /// transactions have written is to be noted now.
    pub fn begin(&self, transaction: TransactionId) -> bool {
        let mut state = lock(&self.state);
        let is_first = state.early.insert(transaction) && state.early.len() == 1;
        self.is_needed.store(true, Ordering::Release);
        is_first
    }

    pub fn note(&self, author: &Author, written: &[Target]) {
        lock(&self.state).marks.note(author, written);
    }

    /// The conflicts for which a commit is refused; none: it is entered.
    pub fn enter_commit(&self, author: &Author, written: &[Target]) -> Vec<Conflict> {
        let marks = &mut lock(&self.state).marks;
        marks.note(author, written);
        marks.enter_commit(author.transaction)
    }

    /// Notes what is about to be written, or that another was there first.
    /// `locked`: the locks of others that forbid it.
    pub fn announce(
        &self,
        author: &Author,
        targets: &[Target],
        locked: Vec<Waits>,
    ) -> Result<(), Busy> {
        let marks = &mut lock(&self.state).marks;
        if !locked.is_empty() {
            let conflicts = locked.into_iter().map(|waits| Conflict {
                path: waits.path,
                what: ConflictKind::Locked,
                by: ChangedBy::Open {
                    transaction: waits.holder,
                    label: Vec::new(),
                },
            });
            marks.meet(author, conflicts.collect());
        }
        marks.announce(author, targets)
    }

    /// The conflicts that a transaction has met at its writes.
    pub fn met_by(&self, transaction: TransactionId) -> Vec<Conflict> {
        match self.is_needed() {
            true => lock(&self.state).marks.met_by(transaction),
            false => Vec::new(),
        }
    }
}
