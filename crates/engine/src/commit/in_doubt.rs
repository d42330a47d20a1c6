//! Transactions of several stores that are committed together: two-phase commit with presumed abort.
//!
//! One of them, the coordinator, commits like any other. Its commit record, in the log of its own store,
//! is the decision. Before that each of the others *votes*: it is validated like a commit, and
//! whatever the commit needs is made durable, but nothing is logged. From then on it is in doubt.
//!
//! Transactions can be *linked* with those of other stores ([`Transaction::link_with`]). From then on none of
//! them is committed by itself: each either coordinates or votes.
//!
//! A transaction that votes is in one of these states:
//! 1. Open. Its view says nothing of a coordinator.
//! 2. In doubt. Its view is read-only, and the durable view log names the coordinator. It holds an
//!    exclusive lock on each part of the base that it changes.
//! 3. Committed. Its own record is in the log, as after any commit.
//!
//! From state 2, the coordinator's commit leads to state 3, and its end without a commit leads back to
//! state 1. What became of the coordinator, only its store knows ([`Store::outcome`]), and whoever asks
//! there tells this one ([`Store::commit_decided`], [`Store::withdraw_vote`]).
//!
//! Invariants
//! 1. A vote is answered only after the view log is durable that names the coordinator. So a crash
//!    before leaves the transaction open, or nothing of it; a crash after leaves it in doubt.
//! 2. From its validation to its end it holds its locks, also in the next process (`hold_vote`). So no
//!    commit of others conflicts with it. Of files it locks all, not only what it has written: after a
//!    restart nobody knows which pages others have changed.
//! 3. Nothing ends state 2 but a decision: an abort does nothing, and a commit is refused.
//! 4. A coordinator is committed as a whole, and durably whatever its durability. So whoever finds its
//!    commit in the log or the history knows the decision. Its view is read-only while it coordinates, so
//!    that it still has something to commit then. That it coordinates is not on the disk: after the death
//!    of this process nobody is about to commit it.
//!
//! A commit that was decided can still meet what no lock keeps away: programs outside that have no guard,
//! obstacles, a full disk. Then it fails as any commit would, the transaction stays in doubt, and
//! the caller tries again once that is out of the way. The other stores have committed by then.

use std::sync::Arc;

use atomdir_disk::{Disk, Kind};
use atomdir_types::{LockMode, Partner};

use crate::commit::prepare::Chosen;
use crate::commit::wanted::{Portion, Wanted};
use crate::commit::{Committed, at_its_expense};
use crate::error::CommitError;
use crate::ids::TransactionId;
use crate::lock;
use crate::locks::reach::Reach;
use crate::locks::table::Lock;
use crate::locks::{Extent, Target};
use crate::progress::{Meter, Progress};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::node::OwnBody;
use crate::view::{Joint, View};

impl<D: Disk> Store<D> {
    /// Checks the commit of a transaction as far as the log. Then it is in doubt, but not durable yet. Returns
    /// false if it has nothing to commit.
    pub(crate) fn cast_vote(
        &self,
        transaction: &Transaction<D>,
        coordinator: &Partner,
        report: &mut dyn FnMut(Progress),
    ) -> Result<bool, CommitError> {
        self.commit_to_base(transaction, Wanted::Vote(coordinator), report)?;
        Ok(transaction.coordinator().is_some())
    }

    /// From now on the transaction is in doubt. The commit lock is held.
    pub(super) fn enter_doubt(
        &self,
        transaction: &Transaction<D>,
        view: &mut View<D>,
        coordinator: &Partner,
    ) {
        view.set_coordinator(Some(coordinator.clone()));
        view.frozen = true;
        self.hold(transaction.id(), view);
    }

    /// Locks what a transaction changes that was in doubt when the last process ended.
    pub(crate) fn hold_vote(&self, transaction: &Transaction<D>) {
        if let Some(view) = transaction.view.lock().as_ref()
            && view.is_in_doubt()
        {
            self.hold(transaction.id(), view);
        }
    }

    fn hold(&self, id: TransactionId, view: &View<D>) {
        let locks = needed(view).into_iter().map(|target| Lock {
            path: view.path_of_base(&target.base),
            target,
            mode: LockMode::Exclusive,
            reach: Reach::everything(),
            is_vote: true,
        });
        self.0.contention.locks.table().hold(id, locks);
    }

    /// Commits a transaction that has voted for it, since its coordinator has committed. `portion` is all
    /// of it, or takes sides in conflicts with programs outside.
    pub fn commit_decided(
        &self,
        transaction: &Transaction<D>,
        portion: Portion<'_>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        self.commit_to_base(transaction, Wanted::Decided(portion), report)
    }

    /// Opens a transaction again that has voted, since its coordinator has ended without a commit. Does
    /// nothing with another.
    pub fn withdraw_vote(&self, transaction: &Transaction<D>) -> Result<(), CommitError> {
        let mut guard = transaction.view.lock();
        let view = guard.as_mut().ok_or(CommitError::Ended)?;
        if !view.is_in_doubt() {
            return Ok(());
        }
        view.set_coordinator(None);
        let written = view.flush();
        if let Err(errno) = written {
            // It may be in doubt again after a crash, and is told again then.
            tracing::warn!(%errno, transaction = %view.id, "its vote may come back");
        }
        view.frozen = false;
        drop(guard);
        self.0.contention.writers.leave_commit(transaction.id());
        let locks = &self.0.contention.locks;
        let mut table = locks.table();
        table.release(transaction.id(), |lock| lock.is_vote);
        locks.wake_all();
        Ok(())
    }

    /// From now on others may be in doubt until this transaction has ended, by
    /// [`commit_coordinated`](Store::commit_coordinated) or without a commit. Returns false if it has
    /// nothing to commit, and so cannot decide. In both cases its view is read-only until
    /// [`cease_to_coordinate`](Store::cease_to_coordinate).
    pub fn coordinate(&self, transaction: &Transaction<D>) -> Result<bool, CommitError> {
        if transaction.outer().is_some() {
            let reason = "it is nested, and the outer one decides";
            return Err(CommitError::OnlyWhole { reason });
        }
        let mut committing = transaction.view.take_for_commit();
        let view = committing.view.as_mut().ok_or(CommitError::Ended)?;
        if let Some(coordinator) = view.coordinator() {
            return Err(CommitError::InDoubt(Box::new(coordinator.clone())));
        }
        if let Some(nested) = view.nested() {
            return Err(CommitError::Nested { nested });
        }
        view.release_savepoints();
        let mut report = |_| {};
        let mut meter = Meter::new(&mut report);
        let chosen = (Chosen::default(), &mut meter);
        let prepare = || self.prepare_on_terms(transaction, view, chosen);
        let prepared = at_its_expense(transaction, prepare);
        let prepared = prepared.map_err(|error| self.heed_flush(error))?;
        let has_changed = !prepared.set.is_empty();
        view.frozen = true;
        view.joint = Some(match has_changed {
            true => Joint::Coordinates,
            false => Joint::Unchanged,
        });
        Ok(has_changed)
    }

    /// Commits a transaction that coordinates others. They may be in doubt because of it: they commit then,
    /// too.
    pub fn commit_coordinated(
        &self,
        transaction: &Transaction<D>,
        report: &mut dyn FnMut(Progress),
    ) -> Result<Committed, CommitError> {
        self.commit_to_base(transaction, Wanted::Coordinated, report)
    }

    /// Nobody is in doubt because of this transaction any more, nor will be. Does nothing with one in doubt.
    pub fn cease_to_coordinate(&self, transaction: &Transaction<D>) -> Result<(), CommitError> {
        let mut guard = transaction.view.lock();
        let view = guard.as_mut().ok_or(CommitError::Ended)?;
        if matches!(view.joint, Some(Joint::Coordinates | Joint::Unchanged)) {
            view.joint = None;
            view.frozen = false;
        }
        Ok(())
    }
}

impl<D: Disk> Transaction<D> {
    /// Whether it has voted, and waits for a decision, as far as that is known without waiting for a
    /// commit under way.
    pub fn is_in_doubt(&self) -> bool {
        let view = self.view.try_lock();
        view.is_ok_and(|view| view.as_ref().is_some_and(View::is_in_doubt))
    }

    /// The transaction of another store that decides whether this one commits, if it has voted.
    pub fn coordinator(&self) -> Option<Partner> {
        self.view.lock().as_ref()?.coordinator().cloned()
    }

    /// Links it with transactions of other stores: from now on these and it, which is among them, are only
    /// committed together. The caller keeps them in the transaction's note, and links it again in the next
    /// process.
    pub fn link_with(&self, all: Vec<Partner>) {
        *lock(&self.linked) = all.into();
    }

    /// The transactions that are only committed together, this one among them.
    pub fn linked(&self) -> Arc<[Partner]> {
        lock(&self.linked).clone()
    }
}

/// Refuses what may not be done with a transaction that is committed together with others.
pub(super) fn refuse<D: Disk>(
    transaction: &Transaction<D>,
    view: &View<D>,
    wanted: Wanted<'_>,
) -> Result<(), CommitError> {
    match (&view.joint, wanted) {
        (Some(Joint::InDoubt(_)), Wanted::Decided(Portion::All | Portion::Sides(_))) => Ok(()),
        (Some(Joint::InDoubt(coordinator)), _) => {
            Err(CommitError::InDoubt(Box::new(coordinator.clone())))
        }
        (Some(Joint::Coordinates), Wanted::Portion(_) | Wanted::Vote(_)) => {
            let reason = "transactions of other stores are being committed together with it";
            Err(CommitError::OnlyWhole { reason })
        }
        (Some(Joint::Coordinates), Wanted::Coordinated) => Ok(()),
        (_, Wanted::Coordinated) => Err(CommitError::OnlyWhole {
            reason: "it is not the one that decides for those of other stores",
        }),
        (_, Wanted::Portion(_)) if !transaction.linked().is_empty() => {
            Err(CommitError::Linked(transaction.linked()))
        }
        (_, Wanted::Decided(_)) => Err(CommitError::OnlyWhole {
            reason: "it has not voted for a commit of several stores",
        }),
        _ => Ok(()),
    }
}

/// To be called if a view turns out to have nothing to commit.
pub(super) fn leave_unchanged<D: Disk>(
    view: &mut View<D>,
    wanted: Wanted<'_>,
) -> Result<(), CommitError> {
    match wanted {
        Wanted::Coordinated => {
            // Others have made the same changes. Without a record nobody would learn the decision.
            return Err(CommitError::Conflict(Vec::new()));
        }
        Wanted::Vote(_) => {
            view.frozen = true;
            view.joint = Some(Joint::Unchanged);
        }
        // It ends.
        Wanted::Decided(_) => view.set_coordinator(None),
        Wanted::Portion(_) | Wanted::AsSetAside => {}
    }
    Ok(())
}

/// The parts of the base that must stay as they are, so that nothing conflicts with the view's changes:
/// what it has written, and what has lost or got a name.
fn needed<D: Disk>(view: &View<D>) -> Vec<Target> {
    let mut needed = view.written();
    for id in view.changed_nodes() {
        let own = view.nodes.own(id);
        let Some(OwnBody::Directory(delta)) = own.map(|own| &own.body) else {
            continue;
        };
        for entry in delta.entries.values() {
            let now = entry.now.and_then(|now| view.nodes.get(now)?.base.clone());
            let named = entry.before.iter().cloned().chain(now);
            needed.extend(named.map(|base| Target {
                base,
                extent: Extent::Attributes,
            }));
        }
    }
    for Target { base, extent } in &mut needed {
        if base.kind != Kind::Directory {
            *extent = Extent::Object;
        }
    }
    needed
}
