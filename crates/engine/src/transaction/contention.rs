//! How open transactions get in each other's way: locks and early conflicts.

use atomdir_disk::{Disk, Errno, Result};

use crate::early::{Author, Busy, Writers};
use crate::error::Conflict;
use crate::locks::{Locks, Target};
use crate::options::Conflicts;
use crate::transaction::Transaction;
use crate::view::View;

#[derive(Default)]
pub(crate) struct Contention {
    /// The locks of transactions.
    pub locks: Locks,
    /// The parts that open transactions have written. They are noted while any of these wants early
    /// conflicts.
    pub writers: Writers,
}

impl<D: Disk> Transaction<D> {
    /// Must be called before a write, with the view locked. Fails with `EBUSY` if
    /// another transaction wrote it first.
    pub(crate) fn announce(
        &self,
        view: &mut View<D>,
        intents: impl FnOnce(&mut View<D>) -> Result<Vec<Target>>,
    ) -> Result<()> {
        let Contention { locks, writers } = &*self.contention;
        if !writers.is_needed() {
            return Ok(());
        }
        let targets = intents(view)?;
        if targets.is_empty() {
            return Ok(());
        }
        let author = self.outermost().author();
        let locked = match author.is_early {
            true => locks.forbid(author.transaction, &targets),
            false => Vec::new(),
        };
        let announced = writers.announce(&author, &targets, locked);
        announced.map_err(|Busy| Errno::BUSY)
    }

    /// Notes what a view of the transaction has written, if writes are noted.
    pub(crate) fn note_writes(&self, view: &View<D>) {
        let writers = &self.contention.writers;
        if writers.is_needed() {
            writers.note(&self.outermost().author(), &view.written());
        }
    }

    /// The conflicts that the transaction has met when writing. If there are any, it
    /// can only be aborted.
    pub fn met(&self) -> Vec<Conflict> {
        self.contention.writers.met_by(self.outermost().id())
    }

    pub(crate) fn author(&self) -> Author {
        Author {
            transaction: self.id(),
            age: self.age(),
            is_early: self.conflicts() == Conflicts::Early,
            label: self.label(),
        }
    }
}
