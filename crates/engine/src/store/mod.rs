//! An open store: the state that all its transactions and commits share.
//!
//! `open_transactions` knows which transactions are open, and ends them. `commit_state` is
//! the state that the commit lock guards: the log, the reserved space, and the `queue` of
//! commits that are logged and not yet in the base.
//!
//! Invariants
//! 1. A poisoned store accepts no commits and begins no transactions until it is opened
//!    again, which recovers it. Its applied mark is cleared.
//! 2. The queue holds commits in the order of the log.
//!
//! docs/lock-order.md lists the order in which locks are taken.

pub(crate) mod aside;
mod authors;
pub(crate) mod awaited;
mod clock;
pub(crate) mod commit_state;
pub(crate) mod flusher;
pub(crate) mod guard;
pub(crate) mod open_transactions;
pub(crate) mod queue;
pub(crate) mod remembered;
pub(crate) mod stranded;
pub(crate) mod touched;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use atomdir_disk::{Disk, Errno, Name};
use atomdir_format::header::StoreId;

use crate::base::Base;
use crate::base::core::Core;
use crate::control;
use crate::control::id_supply::IdSupply;
use crate::control::log_elsewhere::{self, NewLog};
use crate::control::trial::Layers;
use crate::error::{Poison, Stalled, StoreError};
use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::log::past_limits::{HistoryStatus, before};
use crate::names;
use crate::store::aside::Aside;
use crate::store::commit_state::CommitState;
use crate::store::flusher::Flusher;
use crate::store::guard::Gate;
use crate::store::open_transactions::OpenTransactions;
use crate::store::stranded::Stranded;
use crate::transaction::contention::Contention;

pub struct Store<D: Disk>(pub(crate) Arc<Inner<D>>);

impl<D: Disk> Clone for Store<D> {
    fn clone(&self) -> Self {
        Store(self.0.clone())
    }
}

pub(crate) struct Inner<D: Disk> {
    pub core: Arc<Core<D>>,
    pub contention: Arc<Contention>,
    /// Serializes commits and checkpoints.
    pub commit: Mutex<CommitState<D>>,
    pub flusher: Flusher,
    pub open: Mutex<OpenTransactions<D>>,
    /// Base objects with a history that an open snapshot may need, by serial.
    pub retained: Mutex<HashMap<u64, Arc<Base>>>,
    pub poisoned: Mutex<Option<Poison>>,
    /// Whether a lazy or stalled commit waits to be brought into the base.
    pub has_pending: AtomicBool,
    /// The obstacle that the first commit of the queue met when it was last tried.
    pub stalled: Mutex<Option<Stalled>>,
    /// Transactions whose commits were set aside.
    pub aside: Mutex<HashMap<TransactionId, Aside>>,
    /// Links in limbo to files that have other names. They show in the files' link counts,
    /// so they are removed when the last open snapshot ends.
    pub linked_in_limbo: Mutex<Vec<Name>>,
    /// Transactions that have survived and cannot be opened.
    pub stranded: Mutex<Vec<Stranded>>,
    /// Files that transactions have written get the time of the commit.
    pub dates_at_commit: AtomicBool,
    /// The commits after which the past is kept for transactions that are about to begin.
    pub past_holds: Mutex<Vec<Sequence>>,
    pub gate: Gate,
    /// What programs outside change through a guard is to be kept in the history.
    pub remembers: AtomicBool,
    /// Calls through a guard wait for transactions that have written what they change.
    pub calls_wait: AtomicBool,
}

impl<D: Disk> Drop for Inner<D> {
    /// Gives back the store's lock, also if the store was not closed in order. A process that was
    /// just forked from this one has a copy of the descriptor until it runs its program, and
    /// the lock would stay as long.
    fn drop(&mut self) {
        let state = lock(&self.commit);
        let _ = self.core.disk.unlock(&state.lock);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// The newest commit.
    pub sequence: Sequence,
    pub log_bytes: u64,
    pub open_transactions: usize,
    /// Base objects whose older state is kept for open snapshots.
    pub retained_objects: usize,
    /// Base objects in the index, some of which nothing may need any more.
    pub known_objects: usize,
    /// Why changes are refused, if they are.
    pub poisoned: Option<Poison>,
    /// The commit that cannot be applied yet, and why.
    pub stalled: Option<Stalled>,
    /// The commits that can be undone; `None` if the store does not keep what commits replace.
    pub history: Option<HistoryStatus>,
    /// The space that forgotten commits take until the open transactions have ended.
    pub held_bytes: u64,
}

impl<D: Disk> Store<D> {
    /// Formats an empty control directory. Doing so again is harmless.
    /// `id` must be random: it keeps foreign bytes from passing as records.
    pub fn create(
        disk: &D,
        root: &D::Handle,
        control: &D::Handle,
        id: [u8; 16],
    ) -> Result<(), StoreError> {
        control::create(disk, root, control, StoreId(id), (Layers::Any, None))
    }

    /// Like [`Store::create`], for a base of which the caller knows more, or with the log elsewhere.
    pub fn create_in(
        disk: &D,
        root: &D::Handle,
        control: &D::Handle,
        id: [u8; 16],
        (layers, log): (Layers, Option<&NewLog<'_, D>>),
    ) -> Result<(), StoreError> {
        control::create(disk, root, control, StoreId(id), (layers, log))
    }

    /// The path of the store's log, if it is not in the control directory.
    pub fn log_path(disk: &D, control: &D::Handle) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(log_elsewhere::read_place(disk, control)?.map(|place| place.path))
    }

    /// Removes a control directory whose store is closed, or what is left of one.
    pub fn remove_control(disk: &D, parent: &D::Handle, name: &Name) -> Result<(), Errno> {
        control::remove_tree(disk, parent, name)
    }

    pub(crate) fn new(core: Core<D>, state: CommitState<D>, ids: IdSupply) -> Store<D> {
        let open = OpenTransactions::new(state.journal.newest, ids);
        let flusher = Flusher::new(state.journal.newest);
        let store = Store(Arc::new(Inner {
            core: Arc::new(core),
            contention: Arc::default(),
            commit: Mutex::new(state),
            flusher,
            open: Mutex::new(open),
            retained: Mutex::new(HashMap::new()),
            poisoned: Mutex::new(None),
            has_pending: AtomicBool::new(false),
            stalled: Mutex::new(None),
            aside: Mutex::default(),
            linked_in_limbo: Mutex::new(Vec::new()),
            stranded: Mutex::default(),
            dates_at_commit: AtomicBool::new(false),
            past_holds: Mutex::default(),
            gate: Gate::default(),
            remembers: AtomicBool::new(false),
            calls_wait: AtomicBool::new(false),
        }));
        let inner = Arc::downgrade(&store.0);
        let settle = move || {
            let store = inner.upgrade().map(Store).ok_or(Errno::STALE)?;
            store.settle_commits().map_err(|error| match error {
                StoreError::Stalled(_) => Errno::BUSY,
                _ => Errno::IO,
            })
        };
        store.0.core.on_the_way.settle_by(Box::new(settle));
        store
    }

    pub(crate) fn refuse_if_poisoned(&self) -> Result<(), StoreError> {
        match &*lock(&self.0.poisoned) {
            Some(reason) => Err(StoreError::Poisoned {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Whether the store's directory has been removed while the store was open.
    pub fn is_removed(&self) -> bool {
        let core = &self.0.core;
        let has_gone = |handle| matches!(core.disk.stat(handle), Ok(stat) if stat.links == 0);
        let header = names::fixed(names::HEADER);
        let header = core.disk.stat_at(&core.control.directory, &header);
        // Without a header nobody can open the store again, even if some files could not be
        // removed.
        has_gone(&core.root) || header == Err(Errno::NOENT)
    }

    pub(crate) fn poison_unflushed(&self, what: &'static str, errno: Errno) -> StoreError {
        self.poison(Poison::NotFlushed { what, errno })
    }

    pub(crate) fn poison(&self, reason: Poison) -> StoreError {
        tracing::error!(%reason, "the store refuses changes until it is recovered");
        let core = &self.0.core;
        if let Err(error) = core.control.applied.clear(&core.disk) {
            tracing::error!(error = %atomdir_disk::reason(error), "the applied mark cannot be cleared");
        }
        let reason = lock(&self.0.poisoned).get_or_insert(reason).clone();
        self.0.contention.writers.forget_returned();
        self.0.contention.locks.wake_all();
        StoreError::Poisoned { reason }
    }

    pub fn status(&self) -> StoreStatus {
        let (sequence, log_bytes, history, held_bytes) = {
            let state = lock(&self.0.commit);
            let journal = &state.journal;
            let mut history = journal.history_status();
            if let (Some(history), Some(limits)) = (&mut history, state.history) {
                // They are reported as long as their age alone would have kept them.
                let now = self.0.core.options.clock.now();
                let reported_from = before(now, limits.age_seconds_max);
                let early = journal.annotations.early();
                history.early = early.filter(|early| early.time >= reported_from);
            }
            (
                journal.newest,
                journal.log.length(),
                history,
                journal.forgotten.bytes,
            )
        };
        StoreStatus {
            sequence,
            log_bytes,
            open_transactions: lock(&self.0.open).by_id.len(),
            retained_objects: lock(&self.0.retained).len(),
            known_objects: self.0.core.known_objects(),
            poisoned: lock(&self.0.poisoned).clone(),
            stalled: lock(&self.0.stalled).clone(),
            history,
            held_bytes,
        }
    }
}
