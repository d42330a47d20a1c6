//! What the terms of a transaction ask of its commit: that files get the time of the commit, and that
//! it takes itself back unless somebody confirms it.

use std::sync::atomic::Ordering;

use atomdir_disk::{Disk, Errno, SetAttributes, SetTime, Timestamp};
use atomdir_format::annotations::UnconfirmedCommit;
use atomdir_types::Terms;

use crate::commit::prepare::{Chosen, Prepared, prepare};
use crate::error::{CommitError, TermsError};
use crate::ids::{NodeId, Sequence};
use crate::lock;
use crate::log::annotations::{await_confirmation, later};
use crate::progress::Meter;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::transaction::Transaction;
use crate::view::View;
use crate::view::part::Part;

impl<D: Disk> Store<D> {
    /// From now on files that transactions have written get the time of the commit, or keep that of
    /// the write, unless a transaction's terms say otherwise.
    pub fn date_at_commit(&self, dates: bool) {
        let core = &self.0;
        core.dates_at_commit.store(dates, Ordering::Relaxed);
    }

    /// Whether the transaction can be committed on these terms. At its commit, that may have changed.
    pub fn check_terms(
        &self,
        transaction: &Transaction<D>,
        terms: &Terms,
    ) -> Result<(), TermsError> {
        if terms.confirm_ms.is_none_or(|wait_ms| wait_ms == 0) {
            return Ok(());
        }
        if transaction.outer().is_some() {
            return Err(TermsError::Nested);
        }
        // That older commits are still kept, because they are pinned, is not enough.
        match lock(&self.0.commit).history {
            Some(_) => Ok(()),
            None => Err(TermsError::NoHistory),
        }
    }

    /// Prepares the changes, perhaps with the time of the commit.
    pub(super) fn prepare_on_terms(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        (chosen, meter): (Chosen<'_>, &mut Meter<'_>),
    ) -> Result<Prepared, CommitError> {
        self.date_files(transaction, view, chosen.part)?;
        prepare(view, chosen, meter)
    }

    /// Gives the files that the transaction has written, and that land, the present time. A file whose time is from
    /// before the transaction was given that time on purpose, and keeps it.
    fn date_files(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        part: Option<&Part>,
    ) -> Result<(), CommitError> {
        let by_setting = self.0.dates_at_commit.load(Ordering::Relaxed);
        let dates = transaction.times_at_commit().unwrap_or(by_setting);
        // What an undo brings back has its old times.
        if !dates || transaction.uses_past() {
            return Ok(());
        }
        // The kernel's clock for files lags behind by some milliseconds.
        let since = Timestamp {
            nanoseconds: 0,
            ..transaction.began()
        };
        let now = self.0.core.options.clock.now();
        let is_written = |id: &NodeId| {
            let node = view.node(*id).ok().filter(|node| node.contents().is_some());
            let own = node.and_then(|node| node.own());
            own.is_some_and(|own| own.attributes.modified >= since)
                && part.is_none_or(|part| part.has_node(*id))
        };
        let written: Vec<NodeId> = view.changed_nodes().filter(is_written).collect();
        for id in written {
            let change = SetAttributes {
                modified: Some(SetTime::At(now)),
                ..SetAttributes::default()
            };
            match view.set_attributes(id, change) {
                // It has no name left, or an outside writer has removed it.
                Ok(_) | Err(Errno::STALE) => {}
                Err(errno) => return Err(CommitError::io("date", &view.path(id), errno)),
            }
        }
        Ok(())
    }

    /// Notes durably until when the commit waits, if it has to be confirmed.
    pub(super) fn await_confirmation(
        &self,
        transaction: &Transaction<D>,
        state: &mut CommitState<D>,
        (sequence, now): (Sequence, Timestamp),
    ) -> Result<(), CommitError> {
        let core = &*self.0.core;
        let annotations = &mut state.journal.annotations;
        let Some(wait_ms) = transaction.confirm_ms() else {
            // What was to become commit of this sequence before was not logged.
            let unconfirmed = &annotations.now().unconfirmed;
            if unconfirmed.iter().all(|one| one.sequence < sequence.0) {
                return Ok(());
            }
            let noted = annotations.change(core, |said| {
                said.unconfirmed.retain(|one| one.sequence < sequence.0);
            });
            return noted.map_err(CommitError::Store);
        };
        if state.history.is_none() {
            return Err(CommitError::NoHistory);
        }
        let waits = UnconfirmedCommit {
            sequence: sequence.0,
            transaction: transaction.id().0,
            due: later(now, wait_ms),
            wait_ms,
            refused: None,
        };
        let noted = annotations.change(core, |said| await_confirmation(said, waits));
        noted.map_err(CommitError::Store)
    }
}
