//! Requests for locks: they wait for one another, in the order of the lock table.

use atomdir_disk::Disk;
use atomdir_types::{LockMode, LockStatus};

use crate::base::credentials::Credentials;
use crate::base::snapshot::SnapshotPoint;
use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::Sequence;
use crate::lock;
use crate::locks::reach::Reach;
use crate::locks::table::{Asker, Lock, LockTable, RequestState, Ticket};
use crate::locks::{Extent, LockError, LockRequest, Patience, Target, changes, resolve};
use crate::store::Store;
use crate::store::commit_state::Guard;
use crate::transaction::Transaction;

/// Charges a transaction's locks to its owner's budget, since they are kept in
/// memory.
fn charge<D: Disk>(holder: &Transaction<D>, table: &LockTable) {
    holder.share.update_locks(table.count_held_by(holder.id()));
}

impl<D: Disk> Store<D> {
    /// Grants locks to a transaction until it ends.
    pub fn lock(
        &self,
        transaction: &Transaction<D>,
        request: &LockRequest,
        credentials: &Credentials,
        patience: &mut Patience<'_>,
    ) -> Result<(), LockError> {
        self.refuse_if_poisoned()?;
        let wanted = {
            let mut guard = transaction.view.lock();
            let view = guard.as_mut().ok_or(LockError::Ended)?;
            resolve::locks(view, request, credentials)?
        };
        let state = self.granted(transaction, &wanted, patience)?;
        self.confirm(transaction, &wanted, state)
    }

    /// Grants a lock on the whole store to a transaction that has just begun, and then gives it a
    /// snapshot of the newest commit. So no other commit lands from its snapshot to its end. The lock
    /// covers everything: who asks for it must own the store.
    pub fn hold_whole(
        &self,
        transaction: &Transaction<D>,
        patience: &mut Patience<'_>,
    ) -> Result<(), LockError> {
        self.refuse_if_poisoned()?;
        let whole = Lock {
            target: Target {
                base: self.0.core.root_base.clone(),
                extent: Extent::Subtree,
            },
            mode: LockMode::Exclusive,
            path: b".".to_vec(),
            reach: Reach::everything(),
            is_vote: false,
        };
        drop(self.granted(transaction, &[whole], patience)?);
        let mut guard = transaction.view.lock();
        let view = guard.as_mut().ok_or(LockError::Ended)?;
        let _state = self.lock_without_pending()?;
        let snapshot = SnapshotPoint {
            at: lock(&self.0.open).published,
            began: self.stamp()?,
        };
        view.at = snapshot.at;
        view.old_texts.begin(snapshot.began);
        transaction.set_snapshot(snapshot);
        Ok(())
    }

    /// Waits until the locks are granted. No commit is pending then.
    fn granted(
        &self,
        transaction: &Transaction<D>,
        wanted: &[Lock],
        patience: &mut Patience<'_>,
    ) -> Result<Guard<'_, D>, LockError> {
        let locks = &self.0.contention.locks;
        let holder = transaction.outermost();
        holder.share.require_room().map_err(|errno| {
            let path = wanted.first().map_or(&[][..], |lock| &lock.path);
            let path = String::from_utf8_lossy(path).into_owned();
            LockError::Path { path, errno }
        })?;
        let ticket = {
            let mut table = locks.table();
            if self.transaction(holder.id()).is_none() {
                return Err(LockError::Ended);
            }
            let asker = Asker {
                transaction: holder.id(),
                age: holder.age(),
            };
            let ticket = table.ask(asker, wanted.to_vec());
            // A request may now overtake an earlier one.
            locks.wake_all();
            ticket
        };
        // From here on, changes to the table wake this request, and it looks once
        // before each wait.
        let _waiter = locks.add_waiter(&patience.wake);
        loop {
            let sound = self.refuse_if_poisoned();
            let locked = sound.and_then(|()| self.lock_without_pending());
            // No call through a guard is between its look at the table and its change.
            let paused = locked.is_ok().then(|| self.0.gate.pause());
            let mut table = locks.table();
            if locked.is_err() {
                // Nobody may wait for a request that has been given up.
                table.withdraw(ticket);
                locks.wake_all();
            }
            let state = locked?;
            match table.progress(ticket) {
                RequestState::Granted => {
                    charge(holder, &table);
                    // Requests that were overtaken may now wait for this one.
                    locks.wake_all();
                    drop(table);
                    return Ok(state);
                }
                RequestState::Ended => return Err(LockError::Ended),
                RequestState::Deadlock(cycle) => {
                    locks.wake_all();
                    return Err(LockError::Deadlock(cycle));
                }
                RequestState::Waiting => {}
            }
            drop(table);
            drop(paused);
            drop(state);
            if !(patience.wait)() {
                return Err(self.give_up(ticket));
            }
        }
    }

    fn give_up(&self, ticket: Ticket) -> LockError {
        let mut table = self.0.contention.locks.table();
        let waits = table.waits_for(ticket);
        table.withdraw(ticket);
        self.0.contention.locks.wake_all();
        LockError::Held(waits)
    }

    /// Fails if the base has changed since the snapshot: the lock would then be of
    /// no use.
    fn confirm(
        &self,
        transaction: &Transaction<D>,
        locks: &[Lock],
        state: Guard<'_, D>,
    ) -> Result<(), LockError> {
        let changed = locks
            .iter()
            .filter_map(|lock| self.changed_since(lock, transaction.at()));
        let changed: Vec<(Vec<u8>, Sequence)> = changed.collect();
        if changed.is_empty() {
            return Ok(());
        }
        let mut table = self.0.contention.locks.table();
        table.release(transaction.outermost().id(), |held| {
            locks
                .iter()
                .any(|lock| lock.path == held.path && lock.target.extent == held.target.extent)
        });
        charge(transaction.outermost(), &table);
        self.0.contention.locks.wake_all();
        let conflicts = changed.into_iter().map(|(path, by)| Conflict {
            path,
            what: ConflictKind::ChangedBeforeLock,
            by: ChangedBy::commit(by),
        });
        let mut conflicts: Vec<Conflict> = conflicts.collect();
        drop(state);
        drop(table);
        self.describe(&mut conflicts);
        Err(LockError::Changed(conflicts))
    }

    /// Returns the newest commit after `at` that changed what a lock covers.
    fn changed_since(&self, lock: &Lock, at: Sequence) -> Option<(Vec<u8>, Sequence)> {
        let Target { base, extent } = &lock.target;
        let mut newest = changes::newest(base, extent);
        if *extent == Extent::Subtree {
            let retained: Vec<_> = crate::lock(&self.0.retained).values().cloned().collect();
            for below in retained {
                let target = Target {
                    base: below,
                    extent: Extent::Object,
                };
                if target.is_below(base) && lock.reaches(&target) {
                    newest = newest.max(changes::newest(&target.base, &target.extent));
                }
            }
        }
        newest
            .filter(|changed| *changed > at)
            .map(|changed| (lock.path.clone(), changed))
    }

    /// Releases a transaction's locks on these paths, or all of them; returns how
    /// many there were.
    pub fn unlock(&self, transaction: &Transaction<D>, paths: Option<&[Vec<u8>]>) -> u64 {
        let mut table = self.0.contention.locks.table();
        let released = table.release(transaction.outermost().id(), |lock| {
            !lock.is_vote && paths.is_none_or(|paths| paths.contains(&lock.path))
        });
        charge(transaction.outermost(), &table);
        self.0.contention.locks.wake_all();
        released
    }

    /// The locks a transaction holds, and those it waits for, by path.
    pub fn locks(&self, transaction: &Transaction<D>) -> Vec<LockStatus> {
        let transaction = transaction.outermost().id();
        let table = self.0.contention.locks.table();
        let status = |lock: Lock, granted| LockStatus {
            scope: resolve::scope(&lock.target.extent),
            path: lock.path,
            mode: lock.mode,
            granted,
        };
        let held = table.held_by(transaction).into_iter();
        let awaited = table.awaited_by(transaction).into_iter();
        let mut all: Vec<LockStatus> = held
            .map(|lock| status(lock, true))
            .chain(awaited.map(|lock| status(lock, false)))
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }
}
