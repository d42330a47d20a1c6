//! Requests that a transaction survives its service: see `view::log`.

use atomdir_disk::Disk;

use crate::error::SurvivalError;
use crate::store::Store;
use crate::transaction::Transaction;

impl<D: Disk> Store<D> {
    /// From now on the transaction survives the death of this process, and what is
    /// [flushed](Transaction::flush) survives a crash of the system. Whoever opens the store next
    /// finds it among the open transactions, unless commits have landed since its begin: see
    /// [`Store::stranded`]. `note` is kept with it. Doing it again replaces the note.
    pub fn survive(
        &self,
        transaction: &Transaction<D>,
        note: Vec<u8>,
    ) -> Result<(), SurvivalError> {
        transaction.may_survive()?;
        // Recovery would otherwise change files that the snapshot shows, by redoing commits that
        // it holds, and the transaction would take that for an outside writer's work.
        if !transaction.survives() {
            self.checkpoint().map_err(SurvivalError::Store)?;
        }
        transaction.begin_to_survive(note)
    }
}
