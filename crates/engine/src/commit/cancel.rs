//! Cancels a commit that the base cannot take any more.
//!
//! A commit is checked before its record is logged (`feasible`). Until it is applied, the log is
//! flushed, and other commits may be applied. In that time somebody may mount a file system on a
//! name, make an object immutable, give it to another owner, or change it (`crate::seen`). So the commit is
//! checked once more right before it is applied. If it is refused then, nothing of it is in the base, and its caller
//! still waits. The commit is cancelled: a record says durably that it did not happen, and the
//! caller gets the error that the first check would have returned. The transaction is open, with
//! all its changes, and the store goes on with the next commit.
//!
//! A durable commit therefore is in one of these states:
//! 1. Waiting. Its record is in the log, and its transaction is among the open ones: commits before
//!    it keep the versions that its snapshot shows. The committing thread holds its view (for the
//!    commit of a part: `landing`).
//! 2. Passed. The second check has found nothing. The transaction is open no more, and from here on
//!    an obstacle stalls the commit (`stalled`).
//! 3. Cancelled. The cancelling record is durable, and the view goes back to the transaction.
//!
//! Invariants
//! 1. A commit is cancelled before the base or any history has changed for it. So there is nothing
//!    to take back.
//! 2. The cancelling record is durable before the caller is answered. A crash before that leaves
//!    the commit in the log, and recovery applies it.
//! 3. It is durable before a later commit is applied. So the applied mark never names a commit
//!    behind one that may still be cancelled.
//! 4. Commits that wait behind a cancelled one stay valid, since they touch none of its objects and
//!    know of none of its changes (`Queue::admits`). Those that do not are cancelled with it: their
//!    cancelling records come before its own, so no crash can leave one of them without it.
//! 5. Both sequences belong to no commit from then on: nobody sees them in the log, in the history
//!    or in the past.
//!
//! A lazy commit is cancelled in the same way, and nobody waits for its error: see `aside`.
//!
//! A commit that meets an obstacle after the second check is stalled and not cancelled, because a
//! part of it may be in the base. So is a commit that cannot be cancelled because no record can be
//! appended to the log, and a durable one that was reported to its caller as stalled.

use atomdir_disk::Disk;
use atomdir_format::record::{Cancellation, CommitRecord, Locator, LogRecord};

use crate::base::ahead::Found;
use crate::base::core::Core;
use crate::commit::early::leaned_on;
use crate::commit::{feasible, in_place, permitted};
use crate::error::{CommitError, ConflictKind, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::seen::changed_outside;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::guard::Closed;
use crate::store::queue::Pending;

impl<D: Disk> Store<D> {
    /// Checks once more whether the base can take a commit that is about to be applied. If not,
    /// cancels the commit and returns true. `closed`: no guarded call comes between.
    pub(super) fn cancel_if_refused(
        &self,
        state: &mut CommitState<D>,
        pending: &mut Pending<D>,
        closed: &mut Option<Closed<'_>>,
    ) -> Result<bool, StoreError> {
        if !pending.may_be_cancelled() {
            return Ok(false);
        }
        let core = &*self.0.core;
        let none = Found::default();
        let found = pending.early.as_ref().map_or(&none, |early| &early.found);
        let mut checked = feasible::check_last(core, (&pending.set, found), &pending.seen);
        if let Some(closed) = closed {
            checked = checked
                .and_then(|()| in_place::refuse_used(&pending.set, &closed.used))
                .and_then(|()| check_places(core, &pending.record));
        }
        match checked.and_then(|()| permitted::check_again(core, &pending.set, &pending.record)) {
            Ok(()) => Ok(false),
            Err(refused) => {
                // The base stays as it is, and guarded calls do not wait for the log.
                *closed = None;
                self.cancel(state, pending, refused)
            }
        }
    }

    /// Cancels a commit, and first those that lean on it. Fails to do so if the log takes no record.
    fn cancel(
        &self,
        state: &mut CommitState<D>,
        pending: &mut Pending<D>,
        refused: CommitError,
    ) -> Result<bool, StoreError> {
        let mut leaning = Vec::new();
        for sequence in state.queue.leaning_on(pending).into_iter().rev() {
            let Some(mut behind) = state.queue.take_out(sequence) else {
                continue;
            };
            if self.append_cancellation(state, &behind).is_none() {
                state.queue.put_back(behind);
                break;
            }
            self.0.core.on_the_way.leave(sequence);
            self.take_back_early(&mut behind);
            leaning.push(behind);
        }
        let is_cancelled = self.append_cancellation(state, pending).is_some();
        if !is_cancelled && leaning.is_empty() {
            return Ok(false);
        }
        self.flush_appended(state)?;
        let path = first_path(pending);
        for mut behind in leaning {
            self.conclude_cancelled(state, &mut behind, leaned_on(&path));
        }
        if is_cancelled {
            self.take_back_early(pending);
            self.conclude_cancelled(state, pending, refused);
        }
        Ok(is_cancelled)
    }

    /// Says in the log that a commit did not happen.
    fn append_cancellation(&self, state: &mut CommitState<D>, pending: &Pending<D>) -> Option<()> {
        let core = &*self.0.core;
        let sequence = Sequence(pending.record.sequence);
        let before = self.0.gate.claim(state.journal.newest);
        // It takes no part in what snapshots show.
        self.0.gate.entered();
        if let Err(error) = self.append_epochs(state, before) {
            tracing::warn!(%error, "commit {sequence} cannot be cancelled");
            return None;
        }
        let by = state.journal.newest.next();
        let record = LogRecord::Cancellation(Cancellation {
            sequence: by.0,
            cancelled: sequence.0,
            time: core.options.clock.now(),
        });
        if let Err(error) = state.journal.log.append(&core.disk, &record) {
            tracing::warn!(%error, "commit {sequence} cannot be cancelled");
            return None;
        }
        let behind = state.queue.commits.iter().map(|behind| &behind.record);
        let next = behind
            .filter(|record| record.before.is_some() && record.sequence > sequence.0)
            .min_by_key(|record| record.sequence);
        let next = next.map(|record| (Sequence(record.sequence), record.time));
        state.journal.note_cancelled(&pending.record, by, next);
        self.0.flusher.note_appended(by);
        Some(())
    }

    /// Tells the caller of a cancelled commit, or sets it aside.
    fn conclude_cancelled(
        &self,
        state: &mut CommitState<D>,
        pending: &mut Pending<D>,
        refused: CommitError,
    ) {
        let sequence = Sequence(pending.record.sequence);
        let stage = TransactionId(pending.record.stage);
        match pending.landing() {
            Some(landing) => landing.transaction.forget_landed(sequence),
            None if !pending.keeps_stage => _ = state.stages.remove(&stage),
            None => {}
        }
        state.queue.vanished.insert(sequence, first_path(pending));
        tracing::info!("commit {sequence} is cancelled: {refused}");
        match pending.take_returned() {
            Some(returned) => {
                returned.view.leans_on.take(|_| true);
                self.open_again(returned, sequence, &refused);
            }
            None => _ = state.queue.cancelled.insert(sequence, refused),
        }
    }
}

/// Apply looks for an object that gets a name where the record says it is. A call through a guard may
/// have moved it since, and the engine knows the new place.
fn check_places<D: Disk>(core: &Core<D>, record: &CommitRecord) -> Result<(), CommitError> {
    let placed = record.entries.iter().filter_map(|entry| entry.after);
    for object in placed.map(|number| &record.objects[number as usize]) {
        let Locator::Entry { directory, name } = &object.locator else {
            continue;
        };
        let above = record.directories[*directory as usize].identity;
        let handle = core.known(above).map(|above| core.directory(&above));
        if let Some(Ok(handle)) = handle
            && !core.ahead.has_made(object.identity)
        {
            let present = core.disk.stat_at(&handle, name);
            if !present.is_ok_and(|stat| stat.identity == object.identity) {
                let path = core.path_in(above, name);
                return Err(changed_outside(&path[..], ConflictKind::Entry));
            }
        }
    }
    Ok(())
}

/// A path that the commit changes, for messages.
fn first_path<D: Disk>(pending: &Pending<D>) -> Vec<u8> {
    let line = pending.record.summary.first();
    line.map_or_else(Vec::new, |line| line.path.to_bytes())
}
