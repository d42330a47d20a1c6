//! Requests that a transaction survives its service: see `view::log`.

use atomdir_disk::Disk;

use crate::error::{StoreError, SurvivalError};
use crate::ids::Sequence;
use crate::lock;
use crate::store::Store;
use crate::transaction::Transaction;

impl<D: Disk> Store<D> {
    /// From now on the transaction survives the death of this process, and what is
    /// [flushed](Transaction::flush) survives a crash of the system. Whoever opens the store next
    /// finds it among the open transactions, unless its snapshot cannot be restored: see
    /// [`Store::stranded`]. `note` is kept with it. Doing it again replaces the note. While it is
    /// open, the store keeps what commits replace, whatever [`Options::history`] says.
    ///
    /// [`Options::history`]: crate::Options::history
    pub fn survive(
        &self,
        transaction: &Transaction<D>,
        note: Vec<u8>,
    ) -> Result<(), SurvivalError> {
        transaction.may_survive()?;
        // Recovery would otherwise change files that the snapshot shows, by redoing commits that
        // it holds, and the transaction would take that for an outside writer's work.
        let is_first = !transaction.survives();
        if is_first {
            let held = self.hold_past(transaction);
            held.map_err(SurvivalError::Store)?;
        }
        let begun = transaction.begin_to_survive(note);
        if begun.is_err() && is_first {
            transaction.hold_past(false);
        }
        begun
    }

    /// Makes a checkpoint. All later commits say what they replace.
    fn hold_past(&self, transaction: &Transaction<D>) -> Result<(), StoreError> {
        let mut state = self.lock_without_pending()?;
        self.keep_past(&mut state)?;
        transaction.hold_past(true);
        Ok(())
    }

    /// How many commits came after this one.
    pub fn commits_after(&self, sequence: Sequence) -> u64 {
        let newest = lock(&self.0.open).published;
        newest.0.saturating_sub(sequence.0)
    }

    /// The commit after which the past must keep all others, for transactions that survive.
    pub(crate) fn held_past(&self) -> Option<Sequence> {
        let open = lock(&self.0.open);
        let held = open.with_snapshots().filter_map(|one| one.held_past());
        let stranded = lock(&self.0.stranded);
        held.chain(stranded.iter().filter_map(|one| one.needs))
            .min()
    }
}
