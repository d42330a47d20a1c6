//! Sets a lazy commit aside if something in the base has got in its way, and tries it again.
//!
//! A lazy commit returns before it is durable, and is applied later. `cancel` says what may get in
//! its way meanwhile. By then, no caller is left to receive an error. Its record is cancelled by a
//! second, durable record, and its transaction is open again with all its changes: it is *set
//! aside*. The store goes on with the next commit.
//!
//! A lazy commit therefore is in one of these states:
//! 1. Waiting. The call has returned. The transaction has given up its locks, and a request for it
//!    fails because it has ended. It is among `OpenTransactions::waiting`, so commits before it
//!    keep the versions that its snapshot shows. `Waiter::Returned` has its view.
//! 2. Passed. The second check has found nothing. Transaction and view are gone. From here on an
//!    obstacle stalls the commit (`stalled`).
//! 3. Set aside. The cancelling record is durable. The transaction is open, with the reason. It is
//!    tried again every now and then, by a commit like any other: validated, appended, and waiting.
//! 4. Left to its user. A program has changed something in the view since, or others have changed
//!    what the transaction had written. Only the user commits or aborts it from now on. Like every
//!    transaction it can also be committed or aborted in state 3.
//!
//! Invariants
//! 1. Nobody sees a lazy commit before it has passed, unless it is published early (`early`): what it
//!    changes is read, and the commits are listed, only after everything in the queue was applied or
//!    set aside (`base::on_the_way`), and a commit that touches the same objects is appended only
//!    then (`Queue::admits`). A commit whose transaction has seen one that was
//!    published early is set aside with it, or has a conflict.
//! 2. The invariants of `cancel` hold. A crash before the cancelling record is durable leaves the
//!    commit, and recovery applies it. A crash after that leaves an open transaction: recovery
//!    opens it if it survives, and discards it otherwise.
//! 3. A retry commits exactly the changes that were committed first. So the first change in the view ends the
//!    retries, and a retry checks for changes when it has the view.
//! 4. While the process lives, everything that was committed is in the base, or is an open
//!    transaction that `set_aside` lists until it has ended. For the next process, a transaction
//!    that survives is open like any other and is not tried again; the service's note of it has
//!    the reason. A transaction that cannot survive is discarded.
//!
//! A later commit of the same client can be in the base while an earlier one is set aside. The
//! later one has seen nothing of the earlier one, but its client may know of both. This is the one
//! exception from the commit order, and `sync` and the list of transactions report it.
//!
//! The commit of a part is never lazy, a nested transaction commits to the outer one, and a sealed
//! transaction that is set aside is sealed no more, since its command has ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use atomdir_disk::Disk;

use crate::commit::wanted::Wanted;
use crate::error::{ChangedBy, CommitError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::options::Conflicts;
use crate::store::Store;
use crate::store::aside::{Aside, SetAside};
use crate::store::commit_state::CommitState;
use crate::store::queue::{Logged, Pending, Returned, Waiter};
use crate::transaction::Transaction;
use crate::transaction::view_slot::Committing;

impl<D: Disk> Store<D> {
    /// Queues a lazy commit. From here on it has happened, unless it is set aside.
    pub(super) fn return_early(
        &self,
        state: &mut CommitState<D>,
        (mut logged, keeps_stage): (Logged<D>, bool),
        mut committing: Committing<'_, D>,
    ) {
        let id = TransactionId(logged.record.transaction);
        let view = committing.view.take();
        drop(committing);
        let mut open = lock(&self.0.open);
        let waiter = match (open.by_id.remove(&id), view) {
            (Some(transaction), Some(view)) => {
                open.waiting.insert(id, transaction.clone());
                Waiter::Returned(Returned { transaction, view })
            }
            _ => Waiter::Nobody(None),
        };
        let carried = std::mem::take(&mut logged.carried);
        let mut pending = Pending::whole(logged, waiter, keeps_stage);
        self.publish_early(state, &open, (&mut pending, &carried));
        state.queue.push(&self.0.core, pending);
        self.0.gate.entered();
        self.0.has_pending.store(true, Ordering::Release);
        drop(open);
        // Under the commit lock: whoever sets it aside notes that afterwards.
        self.let_go(id);
    }

    /// Opens the transaction of a cancelled commit again.
    pub(super) fn open_again(
        &self,
        returned: Returned<D>,
        sequence: Sequence,
        refused: &CommitError,
    ) {
        let Returned { transaction, view } = returned;
        let id = transaction.id();
        tracing::warn!("commit {sequence} is set aside, and transaction {id} is open: {refused}");
        let writers = &self.0.contention.writers;
        if transaction.conflicts() == Conflicts::Early {
            writers.begin(id);
        }
        if writers.is_needed() {
            writers.note(&transaction.author(), &view.written());
        }
        let aside = Aside::new(
            sequence,
            refused.to_string(),
            self.0.core.options.clock.now(),
        );
        lock(&self.0.aside).insert(id, aside);
        transaction.is_as_set_aside.store(true, Ordering::Release);
        let mut open = lock(&self.0.open);
        open.waiting.remove(&id);
        // Under this lock: a thread that finds the transaction also finds its view, and an abort
        // that takes the view removes the transaction afterwards. A thread that has the slot waits
        // for this lock only after it has found a view there, so there is no deadlock.
        transaction.view.give_back(Some(view));
        open.by_id.insert(id, transaction);
    }

    /// The transactions whose commits were set aside and that have not ended since.
    pub fn set_aside(&self) -> Vec<SetAside> {
        let ids: BTreeSet<TransactionId> = lock(&self.0.aside).keys().copied().collect();
        let listed = ids.into_iter().filter_map(|id| self.find_set_aside(id));
        listed.collect()
    }

    /// The transaction, if its commit was set aside and it has not ended since.
    pub fn find_set_aside(&self, id: TransactionId) -> Option<SetAside> {
        if !lock(&self.0.aside).contains_key(&id) {
            return None;
        }
        let transaction = self.transaction(id)?;
        let aside = lock(&self.0.aside);
        let one = aside.get(&id)?;
        Some(SetAside {
            transaction: id,
            owner: transaction.owner(),
            sequence: one.sequence,
            reason: one.reason.clone(),
            is_retried: !one.is_left && transaction.is_as_set_aside(),
        })
    }

    /// Whether [`Store::set_aside_due`] may return something later.
    pub(super) fn retries_set_aside(&self) -> bool {
        lock(&self.0.aside).values().any(|one| !one.is_left)
    }

    /// The transactions whose commits are to be tried again now.
    pub fn set_aside_due(&self) -> Vec<Arc<Transaction<D>>> {
        let now = self.0.core.options.clock.now();
        let mut due = Vec::new();
        for (id, one) in lock(&self.0.aside).iter_mut() {
            if one.take_turn(now) {
                due.push(*id);
            }
        }
        let due = due.into_iter().filter_map(|id| self.transaction(id));
        due.filter(|one| one.is_as_set_aside()).collect()
    }

    /// The commits of this user that were set aside are due now, and then again after the shortest
    /// pause. Their cause may have gone if the user asks.
    pub fn hasten_set_aside(&self, owner: u32) {
        let owned = |id: &TransactionId| {
            let transaction = self.transaction(*id);
            transaction.is_some_and(|transaction| transaction.owner() == owner)
        };
        let ids: Vec<TransactionId> = lock(&self.0.aside).keys().copied().collect();
        let ids: Vec<TransactionId> = ids.into_iter().filter(owned).collect();
        let mut aside = lock(&self.0.aside);
        for id in ids {
            if let Some(one) = aside.get_mut(&id) {
                one.hasten();
            }
        }
    }

    /// Commits a transaction again whose commit was set aside, if nothing has changed in its view.
    /// Returns true if it has ended.
    pub fn retry_set_aside(&self, transaction: &Transaction<D>) -> bool {
        let id = transaction.id();
        match self.commit_to_base(transaction, Wanted::AsSetAside, &mut |_| {}) {
            Ok(committed) => {
                if let Some(sequence) = committed.sequence {
                    tracing::info!("transaction {id}, which was set aside, is commit {sequence}");
                }
            }
            Err(CommitError::Store(error)) => {
                tracing::debug!(%error, "transaction {id} cannot be tried again");
            }
            Err(refused) => self.note_refused_again(id, &refused),
        }
        !transaction.is_open()
    }

    /// Its user has just tried to commit it.
    pub(super) fn retry_sooner(&self, id: TransactionId) {
        if let Some(one) = lock(&self.0.aside).get_mut(&id) {
            one.was_tried(self.0.core.options.clock.now());
        }
    }

    fn note_refused_again(&self, id: TransactionId, refused: &CommitError) {
        if let Some(one) = lock(&self.0.aside).get_mut(&id) {
            let reason = refused.to_string();
            if one.reason != reason {
                tracing::warn!("transaction {id} is still set aside: {reason}");
                one.reason = reason;
            }
            one.is_left = is_final(refused);
        }
    }
}

/// Whether only the user can resolve it.
fn is_final(refused: &CommitError) -> bool {
    let CommitError::Conflict(conflicts) = refused else {
        return false;
    };
    let mut by = conflicts.iter().map(|conflict| &conflict.by);
    by.any(|by| !matches!(by, ChangedBy::Open { .. }))
}
