//! Transactions that survive their service: their view has a log (`view::log`), from which the
//! next service makes it again.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Result};
use atomdir_format::view::ViewBegin;
use atomdir_types::Partner;

use crate::base::Base;
use crate::base::core::Core;
use crate::base::older::Older;
use crate::error::SurvivalError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::options::{BeginOptions, Conflicts, Durability, Isolation};
use crate::transaction::Transaction;
use crate::transaction::contention::Contention;
use crate::transaction::view_slot::ViewSlot;
use crate::view::View;
use crate::view::log::{Brought, LoggedView};

impl<D: Disk> Transaction<D> {
    /// Why it could not survive, if it could not.
    pub fn may_survive(&self) -> std::result::Result<(), SurvivalError> {
        if self.outer.is_some() {
            return Err(SurvivalError::Nested);
        }
        if self.isolation() == Isolation::Serializable {
            return Err(SurvivalError::Serializable);
        }
        if self.has_landed_since() {
            return Err(SurvivalError::Landed);
        }
        if self.past().is_some() {
            return Err(SurvivalError::Past);
        }
        match self.is_lower() {
            true => Err(SurvivalError::Native),
            false if self.is_over_base() => Err(SurvivalError::Exclusive),
            false => Ok(()),
        }
    }

    /// `at` is the snapshot, or a later commit of the same base.
    pub(crate) fn begin_to_survive(
        &self,
        (at, brought): (Sequence, Brought),
        note: Vec<u8>,
    ) -> std::result::Result<(), SurvivalError> {
        self.may_survive()?;
        self.change_log(|view| match view.log {
            // Another thread has come first.
            Some(_) => view.set_note(note),
            None => {
                let begin = self.log_begin(at, view.coordinator().cloned());
                view.begin_log((begin, note), brought)
            }
        })
    }

    pub(crate) fn set_note(&self, note: Vec<u8>) -> std::result::Result<(), SurvivalError> {
        self.change_log(|view| view.set_note(note))
    }

    fn change_log(
        &self,
        change: impl FnOnce(&mut View<D>) -> Result<()>,
    ) -> std::result::Result<(), SurvivalError> {
        let mut guard = self.view.lock();
        let view = guard.as_mut().ok_or(SurvivalError::Ended)?;
        let _charge = self.charge().map_err(SurvivalError::Staging)?;
        change(view).map_err(SurvivalError::Staging)
    }

    fn log_begin(&self, at: Sequence, coordinator: Option<Partner>) -> ViewBegin {
        let options = &self.options;
        ViewBegin {
            transaction: self.id.0,
            at: at.0,
            began: self.began,
            began_change_time: self.began_change_time(),
            user: options.owner,
            // A deferred one waits for the base after all, once its service has died.
            is_lazy: options.durability == Durability::Lazy,
            has_early_conflicts: options.conflicts == Conflicts::Early,
            first_try: options.first_try.map(|first| first.0),
            label: options.label.clone(),
            past: self.used_past().map(|after| after.0),
            attachment: self.core.control.applied.attachment(),
            coordinator,
        }
    }

    pub(crate) fn note_survival(&self, refused: Option<SurvivalError>) {
        *lock(&self.ends_because) = refused;
    }

    /// Why it ends with this process, if it was asked to survive and does not.
    pub fn why_it_ends(&self) -> Option<SurvivalError> {
        if self.survives() {
            return None;
        }
        let refused = self.may_survive().err();
        refused.or_else(|| lock(&self.ends_because).clone())
    }

    /// Whether it survives the death of this process.
    pub fn survives(&self) -> bool {
        let guard = self.view.lock();
        guard.as_ref().is_some_and(|view| view.log.is_some())
    }

    /// The note last passed to [`Store::survive`](crate::Store::survive).
    pub fn note(&self) -> Option<Vec<u8>> {
        let guard = self.view.lock();
        Some(guard.as_ref()?.log.as_ref()?.note.clone())
    }

    /// Makes everything in the view durable, as far as the transaction survives. Otherwise it does
    /// nothing, since a crash ends the transaction.
    ///
    /// After a crash of the system the view has the names and attributes of the last flush, and
    /// every page of its files as of then or as of a later write.
    pub fn flush(&self) -> Result<()> {
        let mut view = self.view.try_lock()?;
        let _charge = self.charge()?;
        view.as_mut().ok_or(Errno::STALE)?.flush()
    }

    /// Files as commits of the snapshot have left them since the begin, if it survives.
    pub(crate) fn brought(&self) -> Vec<Arc<Base>> {
        let view = self.view.lock();
        let log = view.as_ref().and_then(|view| view.log.as_ref());
        let brought = log.into_iter().flat_map(|log| &log.brought);
        brought.map(|(base, _)| base.clone()).collect()
    }

    pub(crate) fn revive(
        core: Arc<Core<D>>,
        contention: Arc<Contention>,
        logged: LoggedView,
        older: &Older,
    ) -> Result<Transaction<D>> {
        let begin = logged.begin.clone();
        let shows_past = logged.shows_limbo();
        let view = View::revive(&core, logged, older)?;
        let options = BeginOptions {
            owner: begin.user,
            isolation: Isolation::Snapshot,
            durability: match begin.is_lazy {
                true => Durability::Lazy,
                false => Durability::Durable,
            },
            conflicts: match begin.has_early_conflicts {
                true => Conflicts::Early,
                false => Conflicts::AtCommit,
            },
            first_try: begin.first_try.map(TransactionId),
            label: begin.label,
        };
        let id = TransactionId(begin.transaction);
        let at = Sequence(begin.at);
        let made = Transaction::new(core, contention, id, options, at, begin.began_change_time);
        let past = begin.past.map(Sequence);
        if let Some(after) = past.or(shows_past.then_some(at)) {
            made.use_past(after);
        }
        made.hold_past(true);
        Ok(Transaction {
            began: begin.began,
            view: ViewSlot::new(view),
            ..made
        })
    }
}
