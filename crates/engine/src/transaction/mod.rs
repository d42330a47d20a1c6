//! A transaction: its identity, and its view behind a lock.
//!
//! `operations` is what programs do in the view. `view_slot` lends the view to a commit.
//! `contention` holds what transactions block for one another: locks, and writes that are
//! noted for early conflicts. `budget` bounds the memory that one user's transactions take,
//! `part` drops some of its changes, `listed` remembers its conflicts, `snapshot_object` shows what a
//! path was in the snapshot, `overlay` makes the view the lower layer of an overlay and takes its
//! upper layer over, `terms` says on what terms it is committed, and `survival` keeps the transaction on disk for the next service.
//!
//! Invariants
//! 1. A transaction has a view until it ends, and none afterwards. During a commit the commit
//!    has the view, and threads that must not wait do not wait for it (`view_slot`).
//! 2. Every write is announced before the view changes, so that a conflict found early leaves
//!    the view as it was.

pub(crate) mod budget;
pub(crate) mod contention;
mod declared;
pub(crate) mod listed;
mod operations;
mod overlay;
pub(crate) mod part;
pub(crate) mod snapshot_object;
mod survival;
pub(crate) mod terms;
pub(crate) mod view_slot;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use atomdir_disk::{Charge, Disk, Errno, FileSystemStatus, Owner, Result, Timestamp};
use atomdir_format::record::Before;
use atomdir_types::{ChangeLine, Partner, Terms, TreePath};

use crate::base::core::Core;
use crate::base::credentials::Credentials;
use crate::base::snapshot::SnapshotPoint;
use crate::error::SurvivalError;
use crate::ids::{NodeId, Sequence, TransactionId};
use crate::lock;
use crate::options::{BeginOptions, Conflicts, Durability, Isolation};
use crate::transaction::budget::Share;
use crate::transaction::contention::Contention;
use crate::transaction::listed::Listed;
use crate::transaction::view_slot::ViewSlot;
use crate::view::View;
use crate::view::read_set::ReadSet;

pub struct Transaction<D: Disk> {
    pub(crate) core: Arc<Core<D>>,
    contention: Arc<Contention>,
    id: TransactionId,
    options: BeginOptions,
    began: Timestamp,
    /// The transaction that this one is nested in.
    outer: Option<Arc<Transaction<D>>>,
    snapshot: Mutex<SnapshotPoint>,
    /// Its own commits since, of parts of its changes.
    landed: Mutex<Vec<Sequence>>,
    /// It had landed parts before its snapshot was refreshed.
    has_landed_before: AtomicBool,
    /// Its conflicts when they were last listed.
    pub(crate) listed: Mutex<Vec<Listed>>,
    /// The commit after which its view shows the store, if that is not the snapshot.
    past: OnceLock<Sequence>,
    /// Set if the view may show objects that the past keeps in limbo. All of these are from commits
    /// after this one.
    uses_past: Mutex<Option<Sequence>>,
    /// It survives, so the past keeps what its snapshot needs after a restart.
    holds_past: AtomicBool,
    /// Why the last request that it survive was refused, if it was.
    ends_because: Mutex<Option<SurvivalError>>,
    /// The view is the lower layer of an overlay.
    lower: AtomicBool,
    /// The lower layer of its overlay is, or was, the base itself.
    over_base: AtomicBool,
    /// Its commit was set aside, and its view is as it was then: see `commit::aside`.
    pub(crate) is_as_set_aside: AtomicBool,
    /// The commits that it takes back, as long as the view is as the undo has made it.
    takes_back: Mutex<TakenBack>,
    terms: Mutex<Terms>,
    /// This one and those of other stores that are only committed together with it.
    pub(crate) linked: Mutex<Arc<[Partner]>>,
    pub(crate) share: Share,
    pub(crate) view: ViewSlot<D>,
}

/// The commits that an undo takes back. See [`Before`].
#[derive(Clone, Default)]
pub(crate) struct TakenBack {
    pub commits: Vec<u64>,
    pub leaves_traces: bool,
}

impl<D: Disk> Transaction<D> {
    pub(crate) fn new(
        core: Arc<Core<D>>,
        contention: Arc<Contention>,
        id: TransactionId,
        options: BeginOptions,
        at: Sequence,
        began_change_time: Timestamp,
    ) -> Transaction<D> {
        let mut view = View::new(core.clone(), id, at);
        view.old_texts.begin(began_change_time);
        if options.isolation == Isolation::Serializable {
            view.reads = Some(ReadSet::default());
        }
        let snapshot = SnapshotPoint {
            at,
            began: began_change_time,
        };
        Transaction::over(core, contention, options, (None, snapshot), view)
    }

    pub(crate) fn nested(
        outer: &Arc<Transaction<D>>,
        view: View<D>,
        options: BeginOptions,
    ) -> Transaction<D> {
        let (core, contention) = (outer.core.clone(), outer.contention.clone());
        let snapshot = *lock(&outer.snapshot);
        let around = (Some(outer.clone()), snapshot);
        Transaction::over(core, contention, options, around, view)
    }

    /// A transaction with the snapshot of another one, which it is independent of. `view` is a
    /// [`View::fork`] of the other one's, which must be open meanwhile.
    pub(crate) fn forked(
        of: &Transaction<D>,
        view: View<D>,
        options: BeginOptions,
    ) -> Transaction<D> {
        let (core, contention) = (of.core.clone(), of.contention.clone());
        let fork = Transaction::over(core, contention, options, (None, of.snapshot_point()), view);
        let outermost = of.outermost();
        *lock(&fork.landed) = lock(&outermost.landed).clone();
        *lock(&fork.uses_past) = outermost.used_past();
        fork.set_takes_back(lock(&of.takes_back).clone());
        fork
    }

    fn over(
        core: Arc<Core<D>>,
        contention: Arc<Contention>,
        options: BeginOptions,
        (outer, snapshot): (Option<Arc<Transaction<D>>>, SnapshotPoint),
        view: View<D>,
    ) -> Transaction<D> {
        let began = core.options.clock.now();
        Transaction {
            core,
            contention,
            id: view.id,
            options,
            began,
            outer,
            snapshot: Mutex::new(snapshot),
            landed: Mutex::default(),
            has_landed_before: AtomicBool::new(false),
            listed: Mutex::default(),
            past: OnceLock::new(),
            terms: Mutex::default(),
            linked: Mutex::default(),
            uses_past: Mutex::default(),
            holds_past: AtomicBool::new(false),
            ends_because: Mutex::default(),
            lower: AtomicBool::new(false),
            over_base: AtomicBool::new(false),
            is_as_set_aside: AtomicBool::new(false),
            takes_back: Mutex::default(),
            share: Share::default(),
            view: ViewSlot::new(view),
        }
    }

    /// Call it before the past after a commit is read: from then on nothing is removed from limbo.
    pub(crate) fn use_past(&self, after: Sequence) {
        let mut used = lock(&self.uses_past);
        *used = Some(used.map_or(after, |used| used.min(after)));
    }

    /// From now on the past keeps, or need not keep, the commits since the snapshot.
    pub(crate) fn hold_past(&self, holds: bool) {
        self.holds_past.store(holds, Ordering::SeqCst);
    }

    /// The commit after which the past must keep all others, if the transaction survives. An undo
    /// also needs older ones than its snapshot does.
    pub fn held_past(&self) -> Option<Sequence> {
        let holds = self.holds_past.load(Ordering::SeqCst);
        let used = self.used_past();
        holds.then(|| used.map_or(self.at(), |used| used.min(self.at())))
    }

    pub(crate) fn uses_past(&self) -> bool {
        self.used_past().is_some()
    }

    pub(crate) fn used_past(&self) -> Option<Sequence> {
        *lock(&self.uses_past)
    }

    /// Calls the listener whenever a commit of the transaction has ended, with any outcome.
    /// Requests that were answered with `ERESTART` meanwhile can then be tried again. The
    /// listener must neither wait nor call the store.
    pub fn on_commit_end(&self, listener: impl Fn() + Send + Sync + 'static) {
        self.view.on_return(Arc::new(listener));
    }

    pub fn id(&self) -> TransactionId {
        self.id
    }

    /// The numeric id of the user it belongs to.
    pub fn owner(&self) -> u32 {
        self.options.owner
    }

    pub(crate) fn options(&self) -> &BeginOptions {
        &self.options
    }

    pub fn began(&self) -> Timestamp {
        self.began
    }

    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// The commit after which its view shows the store, if it is a view of the past. Such a
    /// transaction is read-only and can only be aborted.
    pub fn past(&self) -> Option<Sequence> {
        self.past.get().copied()
    }

    pub(crate) fn show_past(&self, commit: Sequence) {
        // This is set once, when the transaction has just begun.
        let _ = self.past.set(commit);
    }

    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    pub fn conflicts(&self) -> Conflicts {
        self.options.conflicts
    }

    /// The age: the lower, the older. It is the transaction's id, or that of the first of
    /// several tries.
    pub(crate) fn age(&self) -> TransactionId {
        self.options.first_try.unwrap_or(self.id).min(self.id)
    }

    pub fn is_open(&self) -> bool {
        self.view.lock().is_some()
    }

    /// Whether it has ended, as far as this is known without waiting for a commit.
    pub fn has_ended(&self) -> bool {
        self.view.try_lock().is_ok_and(|slot| slot.is_none())
    }

    /// The transaction that this one is nested in.
    pub fn outer(&self) -> Option<&Arc<Transaction<D>>> {
        self.outer.as_ref()
    }

    /// The newest of the snapshots that it reads, and that does not show the commit. `None` if its
    /// present one shows it.
    pub(crate) fn snapshot_before(&self, commit: Sequence) -> Option<Sequence> {
        let at = Some(self.at()).filter(|at| *at < commit)?;
        let landed = lock(&self.landed);
        let landed = landed.iter().copied().filter(|one| *one < commit);
        landed.chain([at]).max()
    }

    /// The newest commit in the snapshot.
    pub(crate) fn at(&self) -> Sequence {
        self.snapshot_point().at
    }

    pub(crate) fn snapshot_point(&self) -> SnapshotPoint {
        *lock(&self.snapshot)
    }

    /// When the snapshot was taken, on the file system's own clock.
    pub(crate) fn began_change_time(&self) -> Timestamp {
        self.snapshot_point().began
    }

    /// From now on its view reads another snapshot, which holds what it has landed.
    pub(crate) fn set_snapshot(&self, snapshot: SnapshotPoint) {
        *lock(&self.snapshot) = snapshot;
        let landed = std::mem::take(&mut *lock(&self.landed));
        if !landed.is_empty() {
            self.has_landed_before.store(true, Ordering::SeqCst);
        }
    }

    pub(crate) fn note_landed(&self, sequence: Sequence) {
        lock(&self.landed).push(sequence);
    }

    /// The commit of a part did not happen.
    pub(crate) fn forget_landed(&self, sequence: Sequence) {
        lock(&self.landed).retain(|landed| *landed != sequence);
    }

    pub(crate) fn has_landed(&self) -> bool {
        self.has_landed_before.load(Ordering::SeqCst) || self.has_landed_since()
    }

    /// Whether it has landed a part since its snapshot, which then is no point in the commit order.
    pub(crate) fn has_landed_since(&self) -> bool {
        self.landed_since() > 0
    }

    /// How many parts it has landed since its snapshot.
    pub(crate) fn landed_since(&self) -> u64 {
        lock(&self.landed).len() as u64
    }

    /// The transaction itself, if it is not nested.
    pub(crate) fn outermost(&self) -> &Transaction<D> {
        self.outer.as_ref().map_or(self, |outer| outer.outermost())
    }

    /// Fails with `ERESTART` while the view is being committed: callers that may not wait can
    /// try again.
    fn with<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        let mut view = self.view.try_lock()?;
        self.reading(view.as_mut().ok_or(Errno::STALE)?, act)
    }

    /// Like `with`, but waits for a commit under way.
    pub(crate) fn wait_with<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        act(self.view.lock().as_mut().ok_or(Errno::STALE)?)
    }

    /// Like `with`, for calls that change the view.
    fn with_changes<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        let mut view = self.view.try_lock()?;
        let view = view.as_mut().ok_or(Errno::STALE)?;
        if view.frozen {
            return Err(Errno::ROFS);
        }
        self.leave_to_user();
        let done = self.charged(view, act);
        // A call that fails may have changed something, too.
        view.record().and(done)
    }

    /// Like `with_changes`, for calls that may stage contents.
    fn with_contents<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        self.with_changes(|view| {
            let _charge = self.charge()?;
            act(view)
        })
    }

    /// Call it before the view changes: then the store does not commit it by itself any more, and
    /// it is more than an undo.
    pub(crate) fn leave_to_user(&self) {
        *lock(&self.takes_back) = TakenBack::default();
        if self.is_as_set_aside() {
            self.is_as_set_aside.store(false, Ordering::Release);
        }
    }

    /// To be called when its view takes this back and nothing else.
    pub(crate) fn set_takes_back(&self, taken_back: TakenBack) {
        *lock(&self.takes_back) = taken_back;
    }

    /// If another undo has landed since its begin, that may have taken the same back.
    pub(crate) fn add_taken_back(&self, before: &mut Before, newest_undo: Sequence) {
        if self.at() < newest_undo {
            return;
        }
        let taken_back = lock(&self.takes_back);
        before.takes_back.clone_from(&taken_back.commits);
        before.leaves_traces = taken_back.leaves_traces;
    }

    pub(crate) fn is_as_set_aside(&self) -> bool {
        self.is_as_set_aside.load(Ordering::Acquire)
    }

    /// Until the result is dropped, what this thread stages counts towards the owner's quota,
    /// and root's right to exceed quotas does not apply. If this process is not root, it
    /// already runs as the owner.
    pub(crate) fn charge(&self) -> Result<Charge> {
        let privileges = &self.core.options.privileges;
        match privileges.all && self.owner() != privileges.user {
            true => self.core.disk.charge(self.owner()),
            false => Ok(Charge::none()),
        }
    }

    /// From now on the view shows only those parts of the base that this user may read now,
    /// and a commit changes only what they may change. A service that has more rights than
    /// the transaction's user needs this. Nested transactions are restricted likewise.
    pub fn restrict_to(&self, user: Credentials) -> Result<()> {
        self.wait_with(|view| {
            view.restricted_to = Some(user);
            Ok(())
        })
    }

    /// The user to whom the view is restricted.
    pub fn restriction(&self) -> Option<Credentials> {
        self.view.lock().as_ref()?.restricted_to.clone()
    }

    /// Like `with_changes`, for calls that change names.
    fn with_names<T>(&self, act: impl FnOnce(&mut View<D>) -> Result<T>) -> Result<T> {
        self.with_changes(|view| {
            view.refuse_while_nested()?;
            act(view)
        })
    }

    /// The changes that a commit would land, sorted by path.
    pub fn changes(&self) -> Result<Vec<ChangeLine>> {
        let lines = self.changed_paths()?.into_iter();
        Ok(lines.map(ChangeLine::written_out).collect())
    }

    /// Like [`changes`](Self::changes), with paths that share memory.
    pub fn changed_paths(&self) -> Result<Vec<ChangeLine<TreePath>>> {
        let looked = self.wait_with(|view| match view.lower {
            true => view.reader_of_upper().map(Err),
            false => view.changes().map(Ok),
        })?;
        looked.or_else(|reader| {
            let began = self.began_change_time();
            let mut layer = reader.look_at_upper(&self.view, began)?;
            layer.is_layer = true;
            layer.changes()
        })
    }

    /// How many objects it has staged, which is about how many changes are lost if it is aborted.
    /// `None` if that is not known at once: while it is being committed, in an overlay, and for a
    /// nested transaction, which shares objects with the outer one.
    pub fn count_staged(&self) -> Option<u64> {
        let guard = self.view.try_lock().ok()?;
        let view = guard.as_ref()?;
        if view.lower || self.outer().is_some() {
            return None;
        }
        let is_staged = |id: &NodeId| {
            let own = view.nodes.own(*id);
            own.is_some_and(|own| own.staged.is_some())
        };
        Some(view.changed_nodes().filter(is_staged).count() as u64)
    }

    /// The owner and group of the store's root directory.
    pub fn root_owner(&self) -> Result<Owner> {
        self.wait_with(|view| Ok(view.settled_stat(&view.core.root_base)?.attributes.owner))
    }

    /// The space of the file system that the store is on.
    pub fn status(&self) -> Result<FileSystemStatus> {
        self.core.disk.status(&self.core.root)
    }
}
