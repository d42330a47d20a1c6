//! The open transactions of a store: their ids, their snapshots, their end.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use atomdir_disk::{Disk, Timestamp};

use crate::control::id_supply::IdSupply;
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::view::View;

pub(crate) struct OpenTransactions<D: Disk> {
    pub by_id: BTreeMap<TransactionId, Arc<Transaction<D>>>,
    pub ids: IdSupply,
    /// The newest commit that is in the base.
    pub published: Sequence,
    /// For which oldest snapshot histories were pruned last, and its begin.
    pruned_for: (Sequence, Option<Timestamp>),
}

impl<D: Disk> OpenTransactions<D> {
    /// `published`: the newest commit, which is in the base.
    pub fn new(published: Sequence, ids: IdSupply) -> OpenTransactions<D> {
        OpenTransactions {
            by_id: BTreeMap::new(),
            ids,
            published,
            pruned_for: (published, None),
        }
    }
}

impl<D: Disk> Store<D> {
    pub fn transactions(&self) -> Vec<Arc<Transaction<D>>> {
        lock(&self.0.open).by_id.values().cloned().collect()
    }

    pub fn transaction(&self, id: TransactionId) -> Option<Arc<Transaction<D>>> {
        lock(&self.0.open).by_id.get(&id).cloned()
    }

    /// Aborts the transactions nested in it as well. False: it has ended before,
    /// perhaps by a commit that was under way.
    pub fn abort(&self, transaction: &Transaction<D>) -> bool {
        let Some(view) = self.take_view(transaction) else {
            return false;
        };
        if let Some(outer) = transaction.outer() {
            self.drop_nested(outer, view);
            return true;
        }
        drop(view);
        self.ended(transaction.id());
        self.0.core.drop_stage(transaction.id());
        true
    }

    /// Bookkeeping for a transaction that has just ended.
    pub(crate) fn ended(&self, id: TransactionId) {
        self.0.core.handles.remove_transaction(id);
        let prune_for = {
            let mut open = lock(&self.0.open);
            open.by_id.remove(&id);
            if open.by_id.is_empty() {
                // While none can begin and need what is held next.
                self.0.core.handles.release_held();
            }
            let oldest = open.by_id.values().map(|transaction| transaction.at).min();
            let begin = open.by_id.values().map(|open| open.began_change_time).min();
            let prune_for = (oldest.unwrap_or(open.published), begin);
            let is_same = std::mem::replace(&mut open.pruned_for, prune_for) == prune_for;
            (!is_same).then_some(prune_for)
        };
        self.0.contention.locks.ended(id);
        self.0.contention.writers.ended(id);
        if let Some((oldest, oldest_begin)) = prune_for {
            self.prune(oldest, oldest_begin);
        }
        if !lock(&self.0.linked_in_limbo).is_empty() {
            self.drop_links_in_limbo();
        }
    }

    /// What no open snapshot can ask for is forgotten.
    fn prune(&self, oldest: Sequence, oldest_begin: Option<Timestamp>) {
        lock(&self.0.retained).retain(|_, base| {
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
    }

    /// Takes back the links that only snapshots needed, once none is open.
    fn drop_links_in_limbo(&self) {
        let core = &self.0.core;
        // None may begin meanwhile: the change shows in the files' change times.
        let _not_beginning = core
            .applying
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if self.oldest_snapshot().is_some() {
            return;
        }
        for name in lock(&self.0.linked_in_limbo).drain(..) {
            // What remains goes at the next checkpoint.
            if let Err(error) = core.disk.unlink(&core.control.limbo, &name) {
                tracing::debug!(%error, ?name, "a link in limbo is left over");
            }
        }
    }

    /// The oldest snapshot that is open.
    pub(crate) fn oldest_snapshot(&self) -> Option<Sequence> {
        lock(&self.0.open)
            .by_id
            .values()
            .map(|transaction| transaction.at)
            .min()
    }

    /// When the oldest open transaction began.
    pub(crate) fn oldest_begin(&self) -> Option<Timestamp> {
        let open = lock(&self.0.open);
        open.by_id.values().map(|one| one.began_change_time).min()
    }

    /// The view of a transaction that is to be aborted; none is nested in it
    /// any more. `None`: it has ended.
    pub(crate) fn take_view(&self, transaction: &Transaction<D>) -> Option<View<D>> {
        loop {
            let nested = {
                let mut guard = transaction.view.lock();
                match guard.as_ref()?.nested() {
                    None => return guard.take(),
                    Some(nested) => nested,
                }
            };
            // It may just have ended by itself.
            if let Some(nested) = self.transaction(nested) {
                self.abort(&nested);
            }
        }
    }

    pub(crate) fn drop_nested(&self, outer: &Transaction<D>, view: View<D>) {
        let id = view.id;
        if let Some(outer_view) = outer.view.lock().as_mut() {
            outer_view.drop_nested(view);
        }
        self.ended(id);
    }
}
