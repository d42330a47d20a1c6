//! The places of calls through a guard in the commit order, in the log: see `store::guard`.

use atomdir_disk::{Disk, Result};
use atomdir_format::record::{Cancellation, LogRecord};

use crate::base::snapshot::SnapshotPoint;
use crate::commit::Validated;
use crate::error::{CommitError, StoreError};
use crate::ids::Sequence;
use crate::lock;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::queue::Logged;
use crate::transaction::Transaction;

impl<D: Disk> Store<D> {
    /// Appends the record of a commit, behind those of all epochs before it.
    pub(super) fn append(
        &self,
        transaction: &Transaction<D>,
        state: &mut CommitState<D>,
        validated: (Validated, Option<&[u8]>),
    ) -> std::result::Result<Logged<D>, CommitError> {
        let remembered = self.record_outside(state);
        remembered.map_err(CommitError::Store)?;
        let before = self.0.gate.claim(state.journal.newest);
        let appended = self.append_epochs(state, before);
        let appended = appended.map_err(|errno| CommitError::io("write", b".atomdir/log", errno));
        let logged = appended.and_then(|()| self.append_commit(transaction, state, validated));
        // Otherwise it is about to be on the way.
        if logged.is_err() {
            self.0.gate.unclaim(before);
        }
        logged
    }

    /// Adds the records of epochs to the log, which belong to no commit.
    pub(super) fn append_epochs(&self, state: &mut CommitState<D>, until: Sequence) -> Result<()> {
        let core = &*self.0.core;
        while state.journal.newest < until {
            let sequence = state.journal.newest.next();
            let record = LogRecord::Cancellation(Cancellation {
                sequence: sequence.0,
                cancelled: sequence.0,
                time: core.options.clock.now(),
            });
            state.journal.log.append(&core.disk, &record)?;
            state.journal.note_no_commit(sequence);
            self.0.flusher.note_appended(sequence);
        }
        Ok(())
    }

    /// The present, as a new snapshot shows it. A checkpoint then makes its sequence durable.
    pub(super) fn present(
        &self,
        state: &mut CommitState<D>,
    ) -> std::result::Result<SnapshotPoint, StoreError> {
        self.record_outside(state)?;
        let paused = self.0.gate.pause();
        let at = lock(&self.0.open).published;
        let snapshot = SnapshotPoint {
            at: paused.as_ref().map_or(at, |paused| paused.snapshot(at)),
            began: self.stamp()?,
        };
        drop(paused);
        self.log_epochs(state)?;
        Ok(snapshot)
    }

    /// Appends the records of all epochs that snapshots may show, so that the next checkpoint keeps
    /// later commits from getting their sequences.
    pub(crate) fn log_epochs(
        &self,
        state: &mut CommitState<D>,
    ) -> std::result::Result<(), StoreError> {
        let appended = self.append_epochs(state, self.0.gate.closed_epoch());
        appended.map_err(|errno| StoreError::Control {
            step: "write the log",
            errno,
        })
    }
}
