//! The open transactions of a store: their ids, their snapshots, and how they
//! end.

use crate::sync;
use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Timestamp, reason};
use atomdir_format::header::StoreId;

use crate::base::core::Core;
use crate::control::id_supply::IdSupply;
use crate::error::StoreError;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::store::Store;
use crate::store::commit_state::CommitState;
use crate::store::queue::Landing;
use crate::store::remembered::{Passing, Remembered};
use crate::transaction::Transaction;
use crate::view::View;

pub(crate) struct OpenTransactions<D: Disk> {
    pub by_id: BTreeMap<TransactionId, Arc<Transaction<D>>>,
    /// Those whose lazy commit waits to be applied. They have ended, unless the commit is set
    /// aside, so their snapshots are kept: see `commit::aside`.
    pub waiting: BTreeMap<TransactionId, Arc<Transaction<D>>>,
    /// What programs outside have changed since it was last logged, if that is remembered.
    pub remembered: Option<Remembered>,
    /// Objects that programs have left as they were, but for times: the next record says that these
    /// have changed.
    pub passing: Passing,
    pub ids: IdSupply,
    /// The newest commit that is in the base.
    pub published: Sequence,
    /// The oldest snapshot for which histories were last pruned, and its begin.
    pruned_for: (Sequence, Option<Timestamp>),
    /// How many objects had a history after that.
    left_by_prune: usize,
}

/// So few are left until they have doubled.
const RETAINED_MIN: usize = 64;

impl<D: Disk> OpenTransactions<D> {
    /// `published` is the newest commit, which must be in the base.
    pub fn new(published: Sequence, ids: IdSupply) -> OpenTransactions<D> {
        OpenTransactions {
            by_id: BTreeMap::new(),
            waiting: BTreeMap::new(),
            remembered: None,
            passing: Passing::new(),
            ids,
            published,
            pruned_for: (published, None),
            left_by_prune: 0,
        }
    }

    /// The transactions whose snapshots are kept.
    pub fn with_snapshots(&self) -> impl Iterator<Item = &Arc<Transaction<D>>> {
        self.by_id.values().chain(self.waiting.values())
    }

    /// The snapshot for which calls through a guard keep what they change, so that it is remembered.
    pub fn remembering(&self) -> Option<Sequence> {
        self.remembered.as_ref().map(|remembered| remembered.at)
    }

    pub fn has_snapshots(&self) -> bool {
        self.remembered.is_some() || self.with_snapshots().next().is_some()
    }
}

impl<D: Disk> Store<D> {
    /// The id with which the checksums of the store's records begin.
    pub fn id(&self) -> StoreId {
        self.0.core.control.applied.store()
    }

    pub(crate) fn take_id(&self) -> Result<TransactionId, StoreError> {
        let next = lock(&self.0.open).ids.take();
        next.map_or_else(|| self.take_id_in(&mut lock(&self.0.commit)), Ok)
    }

    pub(crate) fn take_id_in(
        &self,
        state: &mut CommitState<D>,
    ) -> Result<TransactionId, StoreError> {
        loop {
            let wanted = {
                let ids = &mut lock(&self.0.open).ids;
                // Others may have reserved some while this thread waited for the commit lock.
                if let Some(id) = ids.take() {
                    return Ok(id);
                }
                ids.wanted()
            };
            let high_water = state.journal.reserve_ids(&self.0.core, wanted)?;
            lock(&self.0.open).ids.refill(high_water);
        }
    }

    pub fn transactions(&self) -> Vec<Arc<Transaction<D>>> {
        lock(&self.0.open).by_id.values().cloned().collect()
    }

    pub fn transaction(&self, id: TransactionId) -> Option<Arc<Transaction<D>>> {
        lock(&self.0.open).by_id.get(&id).cloned()
    }

    /// Aborts a transaction and those nested in it. Returns false if it had
    /// already ended, perhaps by a commit that was under way, or is in doubt ([`Store::vote`]).
    pub fn abort(&self, transaction: &Transaction<D>) -> bool {
        self.end_with(transaction, Core::drop_stage)
    }

    /// Ends a transaction that has nothing to commit.
    pub(crate) fn end_unchanged(&self, transaction: &Transaction<D>) {
        self.end_with(transaction, Core::leave_stage);
    }

    fn end_with(
        &self,
        transaction: &Transaction<D>,
        drop_stage: fn(&Core<D>, TransactionId),
    ) -> bool {
        let Some(mut view) = self.take_view(transaction) else {
            return false;
        };
        view.end_log();
        if let Some(outer) = transaction.outer() {
            if view.owns_stage() {
                self.0.core.drop_stage(transaction.id());
            }
            self.drop_nested(outer, view);
            return true;
        }
        drop(view);
        let id = transaction.id();
        self.let_go(id);
        // The transaction is listed, or its staging directory taken, until that is gone: `check` reports
        // other staging directories as damage. If a part has landed, the log may need objects in the
        // directory; then the checkpoint removes it.
        let stage = self.0.core.stages.of(id);
        match transaction.has_landed() && lock(&self.0.commit).stages.contains(&stage) {
            true => _ = self.0.core.stages.release(id),
            false => drop_stage(&self.0.core, id),
        }
        self.drop_snapshot(id);
        true
    }

    /// Bookkeeping for a transaction that has just ended.
    pub(crate) fn ended(&self, id: TransactionId) {
        self.drop_snapshot(id);
        self.let_go(id);
    }

    /// The transaction holds nothing any more that others wait for.
    pub(crate) fn let_go(&self, id: TransactionId) {
        self.0.contention.locks.ended(id);
        self.forget_writes(id);
        lock(&self.0.aside).remove(&id);
    }

    /// Like [`let_go`](Store::let_go), for a transaction whose lazy commit has returned. Calls through
    /// a guard wait for what it has written until the commit is applied: they would be in its way.
    pub(crate) fn let_go_returned(&self, id: TransactionId) {
        self.0.contention.locks.ended(id);
        self.0.contention.writers.returned(id);
        lock(&self.0.aside).remove(&id);
    }

    /// Nobody reads the transaction's view any more.
    pub(crate) fn drop_snapshot(&self, id: TransactionId) {
        self.drop_snapshots(&[id]);
    }

    pub(crate) fn drop_snapshots(&self, ended: &[TransactionId]) {
        if ended.is_empty() {
            return;
        }
        for id in ended {
            self.0.core.handles.remove_transaction(*id);
        }
        {
            let mut open = lock(&self.0.open);
            for id in ended {
                open.by_id.remove(id);
                open.waiting.remove(id);
            }
            if !open.has_snapshots() {
                // Under this lock no transaction can begin and need the held
                // handles.
                self.0.core.handles.release_held();
            }
        }
        self.prune_versions();
        self.drop_links_in_limbo();
    }

    /// Drops the versions that no open snapshot can read, if a snapshot has ended. While others are
    /// open, this waits until there are twice as many, so that it costs little for each.
    pub(crate) fn prune_versions(&self) {
        let mut open = lock(&self.0.open);
        let (mut oldest, mut begin) = (None, None);
        for point in open.with_snapshots().map(|one| one.snapshot_point()) {
            oldest = Some(oldest.map_or(point.at, |oldest: Sequence| oldest.min(point.at)));
            begin = Some(begin.map_or(point.began, |begin: Timestamp| begin.min(point.began)));
        }
        oldest = oldest.into_iter().chain(open.remembering()).min();
        let is_worth_it = begin.is_none()
            || lock(&self.0.retained).len() >= 2 * open.left_by_prune + RETAINED_MIN;
        // What begins from now on shows these.
        let newest = open.published.max(self.0.gate.closed_epoch());
        let prune_for = (oldest.unwrap_or(newest), begin);
        if is_worth_it && open.pruned_for != prune_for {
            open.pruned_for = prune_for;
            // Under this lock no transaction can begin and need what is dropped: a commit that it
            // shows may reach the base meanwhile, and what that leaves behind is noted for it.
            open.left_by_prune = self.drop_versions(prune_for.0, prune_for.1);
        }
    }

    fn drop_versions(&self, oldest: Sequence, oldest_begin: Option<Timestamp>) -> usize {
        let mut retained = lock(&self.0.retained);
        retained.retain(|_, base| {
            let mut state = base.state();
            let Some(history) = &mut state.history else {
                return false;
            };
            let is_empty = history.prune(oldest, oldest_begin);
            if is_empty {
                state.history = None;
            }
            !is_empty
        });
        retained.len()
    }

    /// Removes the links in limbo that only snapshots needed, and what calls through a guard have left
    /// there, once no snapshot is open.
    pub(crate) fn drop_links_in_limbo(&self) {
        let core = &self.0.core;
        if lock(&self.0.linked_in_limbo).is_empty() && !self.0.gate.has_left() {
            return;
        }
        // No transaction may begin meanwhile: removing a link changes the file's
        // change time.
        let not_beginning = sync::write(&core.applying);
        if self.oldest_snapshot().is_some() {
            return;
        }
        let mut linked = Vec::new();
        let mut names = std::mem::take(&mut *lock(&self.0.linked_in_limbo));
        let mut left = self.0.gate.take_left();
        names.extend(std::mem::take(&mut left.names));
        for base in lock(&self.0.retained).values() {
            let mut state = base.state();
            if let Some(history) = &mut state.history {
                left.epochs
                    .iter()
                    .for_each(|epoch| history.forget_versions(*epoch));
            }
        }
        for name in names {
            let removed = match core.disk.unlink(&core.control.limbo, &name) {
                Err(Errno::ISDIR) => core.disk.remove_directory(&core.control.limbo, &name),
                removed => removed,
            };
            // The next checkpoint removes the links that remain.
            if let Err(error) = removed {
                tracing::debug!(error = %reason(error), ?name, "a link in limbo is left over");
            }
            linked.extend(names::parse_limbo(&name).map(|(identity, _)| identity));
        }
        drop(not_beginning);
        self.0.gate.forget_links(linked);
    }

    /// Whether a view shows objects that the past keeps in limbo.
    pub(crate) fn is_past_in_use(&self) -> bool {
        let open = lock(&self.0.open);
        open.with_snapshots().any(|one| one.uses_past())
    }

    /// The commit after which the past must keep all others, for transactions that survive.
    pub(crate) fn held_past(&self) -> Option<Sequence> {
        let open = lock(&self.0.open);
        let held = open.with_snapshots().filter_map(|one| one.held_past());
        let stranded = lock(&self.0.stranded);
        let held = held.chain(stranded.iter().filter_map(|one| one.needs));
        let holds = lock(&self.0.past_holds);
        held.chain(holds.iter().copied()).min()
    }

    /// The oldest snapshot that is open.
    pub(crate) fn oldest_snapshot(&self) -> Option<Sequence> {
        let open = lock(&self.0.open);
        let snapshots = open.with_snapshots().map(|one| one.at());
        snapshots.chain(open.remembering()).min()
    }

    /// When the oldest open transaction began.
    pub(crate) fn oldest_begin(&self) -> Option<Timestamp> {
        let open = lock(&self.0.open);
        let began = open.with_snapshots().map(|one| one.began_change_time());
        began.min()
    }

    /// Takes the view of a transaction that is being aborted, and in which none
    /// is nested any more. Returns `None` if it has ended.
    pub(crate) fn take_view(&self, transaction: &Transaction<D>) -> Option<View<D>> {
        if transaction.has_landed()
            && let Some(mut landing) = self.take_landing(transaction.id())
        {
            return landing.view.take();
        }
        loop {
            let nested = {
                let mut guard = transaction.view.lock();
                let view = guard.as_ref()?;
                match view.nested() {
                    _ if view.is_in_doubt() => return None,
                    None => return guard.take(),
                    Some(nested) => nested,
                }
            };
            // The nested transaction may have ended meanwhile.
            if let Some(nested) = self.transaction(nested) {
                self.abort(&nested);
            }
        }
    }

    /// Takes a landing out of the queue, since its transaction ends.
    pub(crate) fn take_landing(&self, id: TransactionId) -> Option<Landing<D>> {
        let mut state = lock(&self.0.commit);
        let mut waiting = state.queue.commits.iter_mut();
        waiting.find_map(|pending| {
            let landing = pending.landing()?;
            match landing.transaction.id() == id {
                true => pending.take_landing(),
                false => None,
            }
        })
    }

    pub(crate) fn drop_nested(&self, outer: &Transaction<D>, view: View<D>) {
        let id = view.id;
        if let Some(outer_view) = outer.view.lock().as_mut() {
            outer_view.drop_nested(view);
            outer_view.record_after_commit();
        }
        self.ended(id);
    }
}
