//! Transactions within transactions, forks of transactions, and savepoints: see `view::fork`.
//!
//! A nested transaction has a view over the outer one's and shares its
//! snapshot. Its commit is neither logged nor validated against the base: that
//! happens when the outermost one commits. Several can be nested in one at the
//! same time, unless it is serializable: what one reads of another's commit would not
//! be in its read set.
//!
//! A fork begins with the state of another transaction, too, but is a transaction like any other:
//! each of the two is committed or aborted without the other, and where both have changed the same,
//! the first to commit wins.

use std::sync::Arc;

use atomdir_disk::Disk;

use crate::error::{BeginError, ForkError, FreezeError, SavepointError};
use crate::ids::TransactionId;
use crate::lock;
use crate::options::{BeginOptions, Conflicts, Isolation};
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::{Outdated, View};

impl<D: Disk> Store<D> {
    /// Begins a transaction that sees the outer one's present state. It has the isolation and the
    /// durability of the outer one.
    pub fn begin_nested(
        &self,
        outer: &Arc<Transaction<D>>,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        self.refuse_if_poisoned()?;
        let options = BeginOptions {
            isolation: outer.isolation(),
            durability: outer.durability(),
            conflicts: outer.conflicts(),
            ..options
        };
        // This may wait for a commit, which must not happen with the view locked: see invariant 2 of
        // `base::moving`.
        let id = self.take_id()?;
        let mut guard = outer.view.lock();
        let view = may_begin_in(&mut guard)?;
        outer.leave_to_user();
        if view.lower {
            let reader = view.reader_of_upper().map_err(BeginError::Upper)?;
            drop(guard);
            return self.begin_over_upper(outer, &reader, id, options);
        }
        view.unplace_staged().map_err(BeginError::Staging)?;
        let nested = view.begin_nested(id);
        Ok(self.add_open(|| Transaction::nested(outer, nested, options)))
    }

    /// Copies the objects that the overlay shows, without holding the outer view's lock
    /// (`view::upper`).
    fn begin_over_upper(
        &self,
        outer: &Arc<Transaction<D>>,
        reader: &View<D>,
        id: TransactionId,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, BeginError> {
        let copied = reader.copy_upper(&outer.view, id, outer.began_change_time());
        let (nested, begun) = copied.map_err(BeginError::Upper)?;
        let mut guard = outer.view.lock();
        let view = may_begin_in(&mut guard).and_then(|view| match view.lower {
            true => Ok(view),
            // Its programs have ended meanwhile.
            false => Err(BeginError::Ended),
        });
        let view = view.inspect_err(|_| self.0.core.drop_stage(id))?;
        view.note_begun_over(id, begun);
        Ok(self.add_open(|| Transaction::nested(outer, nested, options)))
    }

    /// Begins a transaction with the snapshot and the present changes of another one, and its
    /// isolation and durability. Neither sees what the other does from then on.
    ///
    /// The other one's programs wait while its files are copied, unless they work in an overlay.
    pub fn fork(
        &self,
        of: &Arc<Transaction<D>>,
        options: BeginOptions,
    ) -> Result<Arc<Transaction<D>>, ForkError> {
        self.refuse_if_poisoned()?;
        if of.conflicts() == Conflicts::Early {
            return Err(ForkError::Early);
        }
        let options = BeginOptions {
            isolation: of.isolation(),
            durability: of.durability(),
            conflicts: Conflicts::AtCommit,
            ..options
        };
        let room = of.share.require_room();
        // It gets a copy of the names as well.
        let room = room.and_then(|()| of.share.require_room_to_look());
        room.map_err(ForkError::Copies)?;
        let id = self.take_id()?;
        let _charge = of.charge().map_err(ForkError::Copies)?;
        let mut guard = of.view.lock();
        let view = may_fork(&mut guard)?;
        if !view.lower {
            let fork = view.fork(id).map_err(ForkError::Copies)?;
            let fork = self.add_open(|| Transaction::forked(of, fork, options));
            drop(guard);
            self.note_writes_of(&fork);
            return self.with_reads_of_outer(of, fork);
        }
        let reader = view.reader_of_upper().map_err(ForkError::Upper)?;
        drop(guard);
        let copied = reader.copy_upper(&of.view, id, of.began_change_time());
        let (mut fork, _) = copied.map_err(ForkError::Upper)?;
        let mut guard = of.view.lock();
        let still_lower = may_fork(&mut guard).and_then(|view| match view.lower {
            true => Ok(view),
            // Its programs have ended meanwhile, and perhaps it has got another snapshot.
            false => Err(ForkError::Ended),
        });
        let lower = still_lower.inspect_err(|_| self.0.core.drop_stage(id))?;
        fork.be_apart_from(lower);
        let fork = self.add_open(|| Transaction::forked(of, fork, options));
        drop(guard);
        self.note_writes_of(&fork);
        Ok(fork)
    }

    /// A fork has written what it has from the other one.
    fn note_writes_of(&self, fork: &Transaction<D>) {
        if let Some(view) = fork.view.lock().as_ref() {
            fork.note_writes(view);
        }
    }

    /// The fork of a nested transaction gets the outer ones' reads as well: the nested one has noted
    /// only its own, and what it shows may have followed from all. To be called when the fork exists,
    /// since an outer view is locked before one that is nested in it.
    fn with_reads_of_outer(
        &self,
        of: &Transaction<D>,
        fork: Arc<Transaction<D>>,
    ) -> Result<Arc<Transaction<D>>, ForkError> {
        let mut next = of
            .outer()
            .filter(|_| of.isolation() == Isolation::Serializable);
        while let Some(outer) = next {
            let reads = outer.view.lock().as_ref().map(|view| view.reads.clone());
            let Some(reads) = reads else {
                self.abort(&fork);
                return Err(ForkError::Ended);
            };
            if let Some(view) = fork.view.lock().as_mut() {
                view.take_reads(reads);
            }
            next = outer.outer();
        }
        Ok(fork)
    }

    /// To be called under the lock of the view that this one comes from: it cannot end meanwhile, so the
    /// snapshot of both is kept without a gap.
    fn add_open(&self, transaction: impl FnOnce() -> Transaction<D>) -> Arc<Transaction<D>> {
        let mut open = lock(&self.0.open);
        let transaction = Arc::new(transaction());
        open.by_id.insert(transaction.id(), transaction.clone());
        transaction
    }
}

fn may_begin_in<D: Disk>(outer: &mut Option<View<D>>) -> Result<&mut View<D>, BeginError> {
    let view = outer.as_mut().ok_or(BeginError::Ended)?;
    match view.nested() {
        Some(nested) if view.reads.is_some() => Err(BeginError::Nested { nested }),
        _ if view.frozen => Err(BeginError::Frozen),
        _ => Ok(view),
    }
}

fn may_fork<D: Disk>(of: &mut Option<View<D>>) -> Result<&mut View<D>, ForkError> {
    let view = of.as_mut().ok_or(ForkError::Ended)?;
    match view.frozen {
        true => Err(ForkError::Frozen),
        false => Ok(view),
    }
}

impl<D: Disk> Transaction<D> {
    /// Returns the open transactions that are nested in this one, in the order of their begins.
    pub fn nested_in_it(&self) -> Vec<TransactionId> {
        let guard = self.view.lock();
        guard.as_ref().map_or_else(Vec::new, View::all_nested)
    }

    /// Saves the present state under a name. Replaces an older savepoint of
    /// that name.
    pub fn set_savepoint(&self, name: &[u8]) -> Result<(), SavepointError> {
        self.with_savepoints(|view| {
            self.share.require_room().map_err(SavepointError::Staging)?;
            view.unplace_staged().map_err(SavepointError::Staging)?;
            view.set_savepoint(name);
            self.share.update(|| view.kept_objects());
            Ok(())
        })
    }

    /// Returns everything to its state at the savepoint. That savepoint stays;
    /// later ones are dropped. Returns what caches of the view must drop.
    pub fn roll_back(&self, name: &[u8]) -> Result<Vec<Outdated>, SavepointError> {
        self.with_savepoints(|view| {
            let outdated = view.roll_back(name);
            self.share.update(|| view.kept_objects());
            view.record().map_err(SavepointError::Staging)?;
            outdated.ok_or(SavepointError::NoSuchSavepoint)
        })
    }

    /// The names of the savepoints, oldest first.
    pub fn savepoints(&self) -> Vec<Vec<u8>> {
        let guard = self.view.lock();
        guard.as_ref().map_or_else(Vec::new, View::savepoints)
    }

    /// Makes the view read-only: from now on every call that would change it
    /// fails with `EROFS`, and a commit lands exactly what [`changes`] says.
    /// Doing it again is harmless.
    ///
    /// [`changes`]: Transaction::changes
    pub fn freeze(&self) -> Result<(), FreezeError> {
        let mut guard = self.view.lock();
        let view = guard.as_mut().ok_or(FreezeError::Ended)?;
        match view.nested() {
            Some(nested) => return Err(FreezeError::Nested { nested }),
            None if view.lower => return Err(FreezeError::Native),
            None => view.frozen = true,
        }
        Ok(())
    }

    /// Undoes [`freeze`](Transaction::freeze). A view of the past stays
    /// read-only, and so does one that is being committed together with others.
    pub fn thaw(&self) {
        if self.past().is_some() {
            return;
        }
        if let Some(view) = self.view.lock().as_mut() {
            view.frozen = view.joint.is_some();
        }
    }

    pub fn is_frozen(&self) -> bool {
        self.view.lock().as_ref().is_some_and(|view| view.frozen)
    }

    fn with_savepoints<T>(
        &self,
        act: impl FnOnce(&mut View<D>) -> Result<T, SavepointError>,
    ) -> Result<T, SavepointError> {
        let mut guard = self.view.lock();
        let view = guard.as_mut().ok_or(SavepointError::Ended)?;
        match view.nested() {
            Some(nested) => Err(SavepointError::Nested { nested }),
            None if view.lower => Err(SavepointError::Native),
            None if view.frozen => Err(SavepointError::Frozen),
            None => act(view),
        }
    }
}
