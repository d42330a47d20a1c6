//! An open store: its transactions, its commit order, its state.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use atomdir_disk::{Access, Disk, Errno, Name, Times, Timestamp};
use atomdir_format::header::StoreId;
use atomdir_format::record::SummaryLine;
use atomdir_format::summary::SummaryRecord;

use crate::base::Base;
use crate::base::core::Core;
use crate::commit::CommitState;
use crate::control;
use crate::control::id_supply::IdSupply;
use crate::control::trial;
use crate::error::{BeginError, Stalled, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::names;
use crate::options::{BeginOptions, Conflicts, Options};
use crate::recovery::{self, RecoveryReport};
use crate::transaction::Transaction;

pub struct Store<D: Disk>(pub(crate) Arc<Inner<D>>);

impl<D: Disk> Clone for Store<D> {
    fn clone(&self) -> Self {
        Store(self.0.clone())
    }
}

/// Locks are taken in the order: a transaction's view before that of one nested
/// in it, `commit`, `core.applying`, `locks`, `open`, `retained`, `stalled`, a base object.
pub(crate) struct Inner<D: Disk> {
    pub core: Arc<Core<D>>,
    /// Serializes commits and checkpoints.
    pub commit: Mutex<CommitState<D>>,
    /// With `commit`: a flush of the log has ended.
    pub flushed: Condvar,
    pub open: Mutex<OpenTransactions<D>>,
    /// Base objects with a history that an open snapshot may need, by serial.
    pub retained: Mutex<HashMap<u64, Arc<Base>>>,
    pub poisoned: Mutex<Option<String>>,
    /// A lazy commit, or one that is stalled, waits to be brought into the base.
    pub has_pending: AtomicBool,
    /// What the first commit of the queue met when it was last tried.
    pub stalled: Mutex<Option<Stalled>>,
    /// Names in limbo of files that have other names: they go with the last
    /// open snapshot, as they show in the files' link counts.
    pub linked_in_limbo: Mutex<Vec<Name>>,
}

pub(crate) struct OpenTransactions<D: Disk> {
    pub by_id: BTreeMap<TransactionId, Arc<Transaction<D>>>,
    pub ids: IdSupply,
    /// The newest commit that is in the base.
    pub published: Sequence,
    /// For which oldest snapshot histories were pruned last, and its begin.
    pruned_for: (Sequence, Option<Timestamp>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitSummary {
    pub sequence: Sequence,
    pub transaction: TransactionId,
    pub time: Timestamp,
    pub user: u32,
    pub label: Vec<u8>,
    pub lines: Vec<SummaryLine>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// The newest commit.
    pub sequence: Sequence,
    pub log_bytes: u64,
    pub open_transactions: usize,
    /// Base objects whose older state is kept for open snapshots.
    pub retained_objects: usize,
    /// Why changes are refused, if they are.
    pub poisoned: Option<String>,
    /// The commit that cannot be applied yet, and why.
    pub stalled: Option<Stalled>,
}

impl<D: Disk> Store<D> {
    /// Formats an empty control directory; harmless if that was done before.
    /// `id` must be random: it keeps foreign bytes from passing as records.
    pub fn create(disk: &D, control: &D::Handle, id: [u8; 16]) -> Result<(), StoreError> {
        control::create(disk, control, StoreId(id))
    }

    /// Opens the store for this process alone and recovers it.
    /// `hidden`: the control directory's name, if it lies in the root.
    pub fn open(
        disk: D,
        root: D::Handle,
        control: D::Handle,
        hidden: Option<Name>,
        options: Options,
    ) -> Result<(Store<D>, RecoveryReport), StoreError> {
        let status = disk.status(&root);
        let status = status.map_err(|errno| StoreError::Control {
            step: "examine",
            errno,
        })?;
        if status.read_only {
            return Err(StoreError::ReadOnly);
        }
        trial::refuse_layered(&status)?;
        let opened = control::open(&disk, control, Access::ReadWrite)?;
        let last_id = opened.header.transaction_high_water;
        let (core, state, report) = recovery::recover(disk, root, opened, hidden, options)?;
        let sequence = state.sequence();
        let open = OpenTransactions {
            by_id: BTreeMap::new(),
            ids: IdSupply::new(last_id, state.transaction_high_water()),
            published: sequence,
            pruned_for: (sequence, None),
        };
        let inner = Inner {
            core: Arc::new(core),
            commit: Mutex::new(state),
            flushed: Condvar::new(),
            open: Mutex::new(open),
            retained: Mutex::new(HashMap::new()),
            poisoned: Mutex::new(None),
            has_pending: AtomicBool::new(false),
            stalled: Mutex::new(None),
            linked_in_limbo: Mutex::new(Vec::new()),
        };
        Ok((Store(Arc::new(inner)), report))
    }

    pub fn begin(&self, options: BeginOptions) -> Result<Arc<Transaction<D>>, BeginError> {
        self.refuse_if_poisoned()?;
        // A snapshot is the base plus nothing: lazy and stalled commits must be in it.
        self.settle_lazy()?;
        let id = self.take_id()?;
        let not_applying = self
            .0
            .core
            .applying
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let now = self.stamp()?;
        let mut open = lock(&self.0.open);
        let core = self.0.core.clone();
        let transaction = Transaction::new(core, id, options, open.published, now);
        let transaction = Arc::new(transaction);
        open.by_id.insert(id, transaction.clone());
        drop(open);
        // What follows locks views: of one that is committing, who has it waits
        // to apply.
        drop(not_applying);
        if transaction.conflicts() == Conflicts::Early {
            self.begin_early(&transaction);
        }
        Ok(transaction)
    }

    pub(crate) fn take_id(&self) -> Result<TransactionId, StoreError> {
        loop {
            if let Some(id) = lock(&self.0.open).ids.take() {
                return Ok(id);
            }
            let mut state = lock(&self.0.commit);
            let wanted = {
                let ids = &lock(&self.0.open).ids;
                // Others may have reserved some while this thread waited for the lock.
                ids.is_empty().then(|| ids.wanted())
            };
            if let Some(count) = wanted {
                let high_water = state.reserve_ids(&self.0.core, count)?;
                lock(&self.0.open).ids.refill(high_water);
            }
        }
    }

    /// A moment on the file system's own clock: what changed before has an
    /// earlier change time, what changes later has not. That clock may stand
    /// still for a tick; since Linux 6.13 it moves when a file is changed whose
    /// time, just read, would otherwise stay the same.
    pub(crate) fn stamp(&self) -> Result<Timestamp, StoreError> {
        let core = &self.0.core;
        let time = core.options.clock.now();
        let times = Times {
            accessed: time,
            modified: time,
        };
        let touch = || -> Result<Timestamp, Errno> {
            core.disk.set_times(&core.control.clock, times)?;
            Ok(core.disk.stat(&core.control.clock)?.changed)
        };
        let moment = || {
            let first = touch()?;
            loop {
                let next = touch()?;
                if next != first {
                    return Ok(next);
                }
            }
        };
        moment().map_err(|errno| StoreError::Control {
            step: "read the file system's clock",
            errno,
        })
    }

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
        self.0.core.locks.ended(id);
        self.0.core.writers.ended(id);
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

    pub(crate) fn refuse_if_poisoned(&self) -> Result<(), StoreError> {
        match &*lock(&self.0.poisoned) {
            Some(reason) => Err(StoreError::Poisoned {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Whether the store's directory has been removed under us.
    pub fn is_removed(&self) -> bool {
        let core = &self.0.core;
        let has_gone = |handle| matches!(core.disk.stat(handle), Ok(stat) if stat.links == 0);
        let header = names::fixed(names::HEADER);
        let header = core.disk.stat_at(&core.control.directory, &header);
        // Without a header nobody can open it again, whatever could not be removed.
        has_gone(&core.root) || header == Err(Errno::NOENT)
    }

    pub(crate) fn poison(&self, reason: String) -> StoreError {
        tracing::error!(reason, "the store refuses changes until it is recovered");
        let core = &self.0.core;
        if let Err(error) = core.control.applied.clear(&core.disk) {
            tracing::error!(%error, "the applied mark cannot be cleared");
        }
        let reason = lock(&self.0.poisoned).get_or_insert(reason).clone();
        core.locks.store_is_poisoned();
        StoreError::Poisoned { reason }
    }

    pub fn status(&self) -> StoreStatus {
        let (sequence, log_bytes) = {
            let state = lock(&self.0.commit);
            (state.sequence(), state.log_bytes())
        };
        StoreStatus {
            sequence,
            log_bytes,
            open_transactions: lock(&self.0.open).by_id.len(),
            retained_objects: lock(&self.0.retained).len(),
            poisoned: lock(&self.0.poisoned).clone(),
            stalled: lock(&self.0.stalled).clone(),
        }
    }
}

impl From<SummaryRecord> for CommitSummary {
    fn from(record: SummaryRecord) -> CommitSummary {
        CommitSummary {
            sequence: Sequence(record.sequence),
            transaction: TransactionId(record.transaction),
            time: record.time,
            user: record.user,
            label: record.label,
            lines: record.lines,
        }
    }
}
