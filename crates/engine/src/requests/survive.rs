//! Requests that a transaction survives its service: see `view::log`.

use atomdir_disk::Disk;

use crate::error::{StoreError, SurvivalError};
use crate::ids::Sequence;
use crate::lock;
use crate::log::past_limits::Excess;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::log::Brought;

/// While this value exists, commits record what they replace, so that a transaction that begins now
/// can survive: see [`Store::hold_past`].
pub struct PastHold<D: Disk> {
    store: Store<D>,
    after: Sequence,
}

impl<D: Disk> Drop for PastHold<D> {
    fn drop(&mut self) {
        let mut holds = lock(&self.store.0.past_holds);
        if let Some(place) = holds.iter().position(|after| *after == self.after) {
            holds.swap_remove(place);
        }
    }
}

impl<D: Disk> Store<D> {
    /// From now on the transaction survives the death of this process, and
    /// [flushed](Transaction::flush) changes survive a crash of the system. The next process that
    /// opens the store finds it among the open transactions, unless its snapshot cannot be
    /// restored: see [`Store::stranded`]. `note` is kept with it. Doing it again replaces the note.
    /// While it is open, the store keeps what commits replace, whatever [`Options::history`] says.
    ///
    /// [`Options::history`]: crate::Options::history
    pub fn survive(
        &self,
        transaction: &Transaction<D>,
        note: Vec<u8>,
    ) -> Result<(), SurvivalError> {
        let survives = self.try_survive(transaction, note);
        transaction.note_survival(survives.as_ref().err().cloned());
        survives
    }

    fn try_survive(
        &self,
        transaction: &Transaction<D>,
        note: Vec<u8>,
    ) -> Result<(), SurvivalError> {
        transaction.may_survive()?;
        if transaction.survives() {
            return transaction.set_note(note);
        }
        let kept = self.keep_past_for(transaction)?;
        let begun = transaction.begin_to_survive(kept, note);
        if begun.is_err() {
            transaction.hold_past(false);
        }
        begun
    }

    /// From now on commits record what they replace, until the hold is dropped. Without it, a
    /// commit that comes between the begin of a transaction and [`Store::survive`] makes the latter
    /// fail if the store keeps no history.
    pub fn hold_past(&self) -> Result<PastHold<D>, StoreError> {
        let mut state = self.lock_without_pending()?;
        if state.history.is_none() && self.held_past().is_none() {
            self.keep_past(&mut state)?;
        }
        let after = state.journal.newest;
        lock(&self.0.past_holds).push(after);
        Ok(PastHold {
            store: self.clone(),
            after,
        })
    }

    /// Makes a checkpoint. All later commits record what they replace. Without the checkpoint,
    /// recovery would redo commits that are in the snapshot. That would change files that the
    /// snapshot shows, and the transaction would see these as changes of an outside writer. Returns
    /// the newest commit of the same base as the snapshot.
    fn keep_past_for(
        &self,
        transaction: &Transaction<D>,
    ) -> Result<(Sequence, Brought), SurvivalError> {
        let state = self.lock_without_pending();
        let mut state = state.map_err(SurvivalError::Store)?;
        // This comes before the checkpoint, which would otherwise forget commits that are beyond
        // the limits of the history.
        transaction.hold_past(true);
        let kept = self.log_epochs(&mut state);
        let kept = kept.and_then(|()| self.keep_past(&mut state));
        let kept = kept.map_err(SurvivalError::Store);
        let kept = kept.and_then(|()| {
            let journal = &state.journal;
            let at = journal.same_base(transaction.at());
            let needed = transaction.used_past().map_or(at, |used| used.min(at));
            match journal.past_has_all_after(needed) {
                true => Ok((at, self.brought_for(transaction))),
                false => Err(SurvivalError::NotKept(needed)),
            }
        });
        if kept.is_err() {
            transaction.hold_past(false);
        }
        kept
    }

    /// The files that commits in the transaction's snapshot have changed since its begin, and how they
    /// have left them. All of these commits are in the base.
    fn brought_for(&self, transaction: &Transaction<D>) -> Brought {
        let (at, began) = (transaction.at(), transaction.began_change_time());
        let retained = lock(&self.0.retained);
        let brought = retained.values().filter_map(|base| {
            let own = base
                .state()
                .changed()
                .and_then(|changed| changed.own_stamp)?;
            let is_brought = own.left_by <= at && own.stamp.changed() >= began;
            is_brought.then(|| (base.clone(), own.stamp))
        });
        brought.collect()
    }

    /// How many commits came after this one.
    pub fn commits_after(&self, sequence: Sequence) -> u64 {
        let newest = lock(&self.0.open).published;
        newest.0.saturating_sub(sequence.0)
    }

    /// The space that the commits after this one take in the past and in limbo beyond the limits of
    /// the history, as of the last checkpoint. It stays taken until no open transaction needs these
    /// commits any more. Takes no lock that a commit holds for long.
    pub fn bytes_kept_after(&self, sequence: Sequence) -> u64 {
        let core = &*self.0.core;
        let status = core.disk.status(&core.root);
        let free_bytes = status.map_or(u64::MAX, |status| status.bytes_available());
        let now = core.options.clock.now();
        let sizes = lock(&core.past_sizes);
        let excess = match &sizes.limits {
            Some(limits) => Excess::of(limits, now, free_bytes, sizes.total()),
            None => Excess::all(),
        };
        excess.held_after(sequence, &sizes)
    }

    /// Whether all commits since the transaction's snapshot are of parts of it.
    pub fn has_own_commits_only(&self, transaction: &Transaction<D>) -> bool {
        let newest = lock(&self.0.open).published;
        let since = newest.0.saturating_sub(transaction.at().0);
        transaction.landed_since() == since
    }
}
