//! Group commit: commits that wait together share one flush of the log.
//!
//! A commit is appended under the commit lock and joins the queue. Then one of
//! the waiting threads flushes the log for all of them, without the lock, so that
//! others can append meanwhile (`store/flusher`). The next flush covers those. It runs
//! while the first thread that gets the lock applies what is durable.
//!
//! Invariants
//! 1. Commits are applied in the order of the log, and only once a flush that
//!    began after they were appended has succeeded. Several that are published early are applied as
//!    one.
//! 2. A queued commit is in no history yet, unless it is published early (`early`). So another commit
//!    is validated meanwhile only if the two touch no common object, and if it has read nothing that
//!    the queued one changes. It may touch what a commit has changed that is published early and
//!    that its snapshot shows.

use std::sync::atomic::Ordering;

use atomdir_disk::Disk;

use crate::commit::in_place;
use crate::error::{CommitError, Poison, Stalled, StoreError};
use crate::ids::Sequence;
use crate::lock;
use crate::options::Durability;
use crate::progress::Meter;
use crate::store::Store;
use crate::store::commit_state::{CommitState, Guard};
use crate::store::guard::Closed;
use crate::store::queue::{Logged, Pending, Waiter};
use crate::transaction::Transaction;
use crate::transaction::view_slot::Committing;
use crate::view::{Joint, View};
use crate::write_set::WriteSet;

impl<D: Disk> Store<D> {
    /// Makes lazy commits durable, and brings them into the base. Those that come meanwhile may be
    /// left.
    pub fn sync(&self) -> Result<(), StoreError> {
        self.bring_queue_to_base().map(drop)
    }

    /// Brings everything into the base that is on the way (`base::on_the_way`), or fails. Who gets no
    /// error may look again, so it must not succeed if nothing brings a commit there any more.
    pub(crate) fn settle_commits(&self) -> Result<(), StoreError> {
        self.refuse_if_poisoned()?;
        let held = self.bring_queue_to_base()?;
        match held.and_then(|_held| self.0.core.on_the_way.oldest()) {
            None => Ok(()),
            // An error has poisoned the store just now, or the thread that took it out panicked.
            Some(sequence) => Err(self.poison(Poison::NotApplied {
                sequence,
                obstacle: None,
            })),
        }
    }

    /// Like [`Store::sync`], but does nothing if no lazy or stalled commit is pending.
    pub(crate) fn apply_pending(&self) -> Result<(), StoreError> {
        if self.0.has_pending.load(Ordering::Acquire) {
            self.sync()?;
        }
        Ok(())
    }

    /// Takes the commit lock, with everything in the log durable and in the base.
    pub(crate) fn lock_without_pending(&self) -> Result<Guard<'_, D>, StoreError> {
        let mut state = lock(&self.0.commit);
        // The second time the lock is held during the flush, so that nothing more comes.
        for holds_lock in [false, true] {
            if state.queue.commits.is_empty() {
                break;
            }
            state = self.bring_to_base(state, holds_lock)?;
        }
        Ok(state)
    }

    /// If nothing was queued, returns the commit lock, under which that is known.
    fn bring_queue_to_base(&self) -> Result<Option<Guard<'_, D>>, StoreError> {
        let state = lock(&self.0.commit);
        if state.queue.commits.is_empty() {
            return Ok(Some(state));
        }
        self.bring_to_base(state, false).map(|_| None)
    }

    /// Flushes and applies all commits that are in the log now.
    fn bring_to_base<'a>(
        &'a self,
        state: Guard<'a, D>,
        holds_lock: bool,
    ) -> Result<Guard<'a, D>, StoreError> {
        self.refuse_if_poisoned()?;
        let (log, newest) = (state.journal.log.file(), state.journal.newest);
        let held = holds_lock.then_some(state);
        self.flush_log(&log, newest)?;
        let mut state = held.unwrap_or_else(|| lock(&self.0.commit));
        state.journal.log.note_durable(newest.0);
        self.publish_queue(&mut state, newest, &mut Meter::new(&mut |_| {}))?;
        Ok(state)
    }

    /// Waits for what the transaction's durability asks for. If the commit is cancelled, the
    /// transaction gets its view back.
    pub(super) fn conclude(
        &self,
        transaction: &Transaction<D>,
        (mut state, logged): (Guard<'_, D>, Logged<D>),
        mut committing: Committing<'_, D>,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Stalled>, CommitError> {
        let id = transaction.id();
        let sequence = Sequence(logged.record.sequence);
        state.stages.insert(self.0.core.stages.of(id));
        // The record of a part may need something in it.
        let keeps_stage = transaction.has_landed();
        let durability = durability_of(transaction, committing.view.as_ref());
        if durability != Durability::Durable {
            self.return_early(&mut state, (logged, keeps_stage), committing);
            let log = state.journal.log.file();
            drop(state);
            if durability == Durability::Deferred {
                let flushed = self.flush_log(&log, sequence);
                flushed.map_err(CommitError::Logged)?;
            }
            return Ok(None);
        }
        let pending = Pending::whole(logged, Waiter::Caller, keeps_stage);
        state.queue.push(&self.0.core, pending);
        self.0.gate.entered();
        let applied = self.wait_until_applied(state, sequence, meter);
        if matches!(applied, Ok(_) | Err(CommitError::Logged(_))) {
            committing.view = None;
            drop(committing);
            self.ended(id);
        }
        applied
    }

    /// Takes the commit lock, with no commit published that is not in the base: what a transaction has
    /// read is compared with the base.
    pub(super) fn lock_for_reads(&self) -> Result<Guard<'_, D>, StoreError> {
        let state = lock(&self.0.commit);
        let way = &self.0.core.on_the_way;
        match way.look(|waiting| waiting.has_early()) {
            false => Ok(state),
            true => {
                drop(state);
                self.lock_without_pending()
            }
        }
    }

    /// Takes the commit lock, with no commit on its way to the base that touches what this one does,
    /// but for such as are published early. `may_lean`: on these.
    pub(super) fn lock_for(
        &self,
        view: &mut View<D>,
        set: &WriteSet,
        may_lean: bool,
    ) -> Result<Guard<'_, D>, StoreError> {
        let state = lock(&self.0.commit);
        let is_stalled = lock(&self.0.stalled).is_some();
        view.is_validated = true;
        if !is_stalled && state.queue.admits(view, set, may_lean) {
            return Ok(state);
        }
        drop(state);
        self.lock_without_pending()
    }

    /// Waits until an appended commit is durable and in the base. If it or a
    /// commit before it is stalled, waits only until it is durable. Any error but
    /// [`CommitError::Logged`] means that the commit was cancelled.
    pub(crate) fn wait_until_applied<'a>(
        &'a self,
        mut state: Guard<'a, D>,
        sequence: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<Option<Stalled>, CommitError> {
        loop {
            if let Some(refused) = state.queue.cancelled.remove(&sequence) {
                return Err(refused);
            }
            if lock(&self.0.open).published >= sequence {
                return Ok(None);
            }
            self.refuse_if_poisoned().map_err(CommitError::Logged)?;
            let stalled = lock(&self.0.stalled).clone();
            if stalled.is_some() && self.0.flusher.durable() >= sequence.0 {
                state.queue.note_returned(sequence);
                return Ok(stalled);
            }
            if !state.queue.holds(sequence) {
                // The thread that took it out panicked, so nobody would ever
                // publish it.
                return Err(CommitError::Logged(self.poison(Poison::NotApplied {
                    sequence,
                    obstacle: None,
                })));
            }
            let durable = Sequence(self.0.flusher.durable());
            if durable < sequence {
                let log = state.journal.log.file();
                drop(state);
                let flushed = self.flush_log(&log, sequence);
                state = lock(&self.0.commit);
                flushed.map_err(CommitError::Logged)?;
                continue;
            }
            state.journal.log.note_durable(durable.0);
            // If this failed for a later commit, this one may be in the base
            // already.
            let _ = self.publish_queue(&mut state, durable, meter);
        }
    }

    fn publish_queue(
        &self,
        state: &mut CommitState<D>,
        durable: Sequence,
        meter: &mut Meter<'_>,
    ) -> Result<(), StoreError> {
        let mut published = Ok(());
        while published.is_ok() {
            let (mut batch, mut closed) = (Vec::new(), None);
            published = self.take_batch(state, durable, (&mut batch, &mut closed));
            if published.is_ok() && batch.is_empty() {
                break;
            }
            if published.is_ok() {
                published = self.publish(state, &mut batch, meter);
                if let Some(closed) = &mut closed {
                    closed.is_applied = published.is_ok();
                }
            }
            drop(closed);
            let stalled = match &published {
                Err(StoreError::Stalled(stalled)) => Some(stalled.clone()),
                _ => None,
            };
            for mut pending in batch.into_iter().rev() {
                if published.is_ok() {
                    if let Some(landing) = pending.take_landing() {
                        self.finish_landing(landing, &pending);
                    }
                    self.0.core.on_the_way.leave(pending.sequence());
                } else if stalled.is_some() {
                    state.queue.commits.push_front(pending);
                } else {
                    state.queue.failed.push(pending.set);
                }
            }
            self.note_stalled(stalled);
        }
        if published.is_ok() && state.queue.commits.is_empty() {
            // The newest records of the log may belong to no commit.
            lock(&self.0.open).published = state.journal.newest;
        }
        let has_lazy = state.queue.commits.iter().any(Pending::has_returned);
        let is_stalled = matches!(published, Err(StoreError::Stalled(_)));
        let has_pending = has_lazy || is_stalled;
        self.0.has_pending.store(has_pending, Ordering::Release);
        published
    }

    /// Takes the next commits out of the queue that are to be applied as one, and cancels those that
    /// the base cannot take. If there is a guard, closes its gate for them.
    fn take_batch<'a>(
        &'a self,
        state: &mut CommitState<D>,
        durable: Sequence,
        (batch, closed): (&mut Vec<Pending<D>>, &mut Option<Closed<'a>>),
    ) -> Result<(), StoreError> {
        // With a guard one at a time: guarded calls do not wait while others are checked.
        let is_alone = self.0.gate.is_guarded();
        let goes_with = |first: &Pending<D>, next: &Pending<D>, commits| {
            (!is_alone || first.attempt.is_some()) && first.goes_with(next, commits)
        };
        let mut ended = Vec::new();
        let mut taken = Ok(());
        while taken.is_ok()
            && let Some(next) = state.queue.commits.front()
            && next.sequence() <= durable
            && batch
                .first()
                .is_none_or(|first| goes_with(first, next, batch.len()))
        {
            if batch.is_empty() {
                let tried = next.attempt.as_ref().map_or(1, |tried| tried.commits);
                let commits = || state.queue.commits.iter().take(tried);
                let replaced = || {
                    commits()
                        .flat_map(|one| in_place::given_up(&one.set))
                        .collect()
                };
                let records = commits().map(|pending| (&pending.record, &pending.set));
                *closed = self.0.gate.close(records, replaced);
            }
            let Some(mut pending) = state.queue.commits.pop_front() else {
                break;
            };
            match self.cancel_if_refused(state, &mut pending, closed) {
                Ok(true) => {
                    self.0.core.on_the_way.leave(pending.sequence());
                    continue;
                }
                Ok(false) => {
                    let returned = pending.take_returned();
                    ended.extend(returned.map(|returned| returned.transaction.id()));
                }
                Err(error) => taken = Err(error),
            }
            batch.push(pending);
        }
        ended.iter().for_each(|id| self.forget_writes(*id));
        self.drop_snapshots(&ended);
        taken
    }
}

/// Whoever learns that a coordinator has committed takes it for the decision.
fn durability_of<D: Disk>(transaction: &Transaction<D>, view: Option<&View<D>>) -> Durability {
    match view.and_then(|view| view.joint.as_ref()) {
        Some(Joint::Coordinates) => Durability::Durable,
        _ => transaction.durability(),
    }
}
