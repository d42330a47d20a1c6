//! Early conflicts: a transaction that asks for them learns at a write that
//! another open one has written the same, not only at its commit.
//!
//! The oldest wins. So that it does, a younger one's commit waits for it, as it
//! were: it is refused while the older is open, like the commit of what is
//! locked. One that tries again keeps the age of its first try, becomes the
//! oldest in the end, and gets on.
//!
//! Writes are noted in memory, with the granularity of conflicts, and only
//! while there is an open transaction that wants to know: others pay one look at
//! a counter.

mod intents;
mod marks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use atomdir_disk::{Disk, Errno, Result};

use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::lock;
use crate::locks::Target;
use crate::options::Conflicts;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::View;
use marks::{Author, Busy, Marks};

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
    fn is_needed(&self) -> bool {
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
}

impl<D: Disk> Store<D> {
    /// From now on writes are noted, and those of before as well.
    pub(crate) fn begin_early(&self, transaction: &Transaction<D>) {
        let writers = &self.0.core.writers;
        {
            let mut state = lock(&writers.state);
            let is_first = state.early.insert(transaction.id()) && state.early.len() == 1;
            writers.is_needed.store(true, Ordering::Release);
            if !is_first {
                return;
            }
        }
        for other in self.transactions() {
            let view = other.view.lock();
            if let Some(view) = view.as_ref() {
                let author = author(other.outermost());
                let written = view.written();
                lock(&writers.state).marks.note(&author, &written);
            }
        }
    }

    /// A commit is refused if its transaction has met a conflict, and while an
    /// older one that wants to know early has written the same.
    pub(crate) fn refuse_written(
        &self,
        transaction: &Transaction<D>,
        view: &View<D>,
    ) -> std::result::Result<(), CommitError> {
        let writers = &self.0.core.writers;
        if !writers.is_needed() {
            return Ok(());
        }
        // A native view's writes have passed by.
        let written = view.written();
        let marks = &mut lock(&writers.state).marks;
        marks.note(&author(transaction), &written);
        let conflicts = marks.enter_commit(transaction.id());
        if conflicts.is_empty() {
            Ok(())
        } else {
            Err(CommitError::Conflict(conflicts))
        }
    }
}

impl<D: Disk> Transaction<D> {
    /// To be called before a write, with the view locked: `EBUSY` if another
    /// transaction was there first.
    pub(crate) fn announce(
        &self,
        view: &mut View<D>,
        intents: impl FnOnce(&mut View<D>) -> Result<Vec<Target>>,
    ) -> Result<()> {
        let writers = &self.core.writers;
        if !writers.is_needed() {
            return Ok(());
        }
        let targets = intents(view)?;
        if targets.is_empty() {
            return Ok(());
        }
        let author = author(self.outermost());
        let locked = if author.is_early {
            self.core.locks.forbid(author.transaction, &targets)
        } else {
            Vec::new()
        };
        let marks = &mut lock(&writers.state).marks;
        if !locked.is_empty() {
            let conflicts = locked.into_iter().map(|waits| Conflict {
                path: waits.path,
                what: ConflictKind::Locked,
                by: ChangedBy::Open {
                    transaction: waits.holder,
                    label: Vec::new(),
                },
            });
            marks.meet(&author, conflicts.collect());
        }
        marks
            .announce(&author, &targets)
            .map_err(|Busy| Errno::BUSY)
    }

    /// The conflicts that the transaction has met at its writes: it can only be
    /// aborted.
    pub fn met(&self) -> Vec<Conflict> {
        let writers = &self.core.writers;
        if writers.is_needed() {
            lock(&writers.state).marks.met_by(self.outermost().id())
        } else {
            Vec::new()
        }
    }
}

fn author<D: Disk>(transaction: &Transaction<D>) -> Author {
    Author {
        transaction: transaction.id(),
        age: transaction.age(),
        is_early: transaction.conflicts() == Conflicts::Early,
        label: transaction.label().to_vec(),
    }
}
