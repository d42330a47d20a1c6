//! The state that all connections share.
//!
//! # Nobody holds up the others
//!
//! No thread or child process that serves several users waits for what one of them
//! controls. The service may wait for a client or for a client's files in these places:
//!
//! - A peer that does not send or does not read: its connection has a thread of its own,
//!   and time limits (`socket`).
//! - The barrier, and opening a view's root: a child process of the user's own mount
//!   waits (`views`, and `barrier` of the crate fuse). Programs in the mount can keep the
//!   kernel's locks of its directories. Then the threads of that user's connections
//!   wait, until the service ends (`connections::close_all`, `Views::give_up_barriers`).
//! - The end of a transaction: the same child makes the kernel forget its view, and
//!   nobody waits longer than a second for that (`forgetting` of the crate fuse).
//! - Workers of a mount: they wait neither for commits nor for leases (`waiting` of the
//!   crate fuse), and serve one user.
//! - A lease on a file of the base: the engine's opens do not wait, except those that
//!   apply a commit which is in the log. The thread of the committing connection waits,
//!   with no lock held (`leases`).
//! - Requests that wait until others have left a transaction: the thread of the asking
//!   connection waits, with no lock held (`waiters`).
//! - Requests for locks: the thread of the asking connection waits. A transaction can
//!   lock only what its user may change or, for a shared lock, read (`locks` of the
//!   engine).
//! - The end of the service: after two minutes the process exits, even if something
//!   still waits (`lifecycle`).
//!
//! The kernel leaves one case: a user who may list a directory of the base can keep it
//! locked. A commit that changes its entries then waits, as any program would, and later
//! commits wait behind it.

use crate::clients::connections::{ConnectionId, Connections};
use crate::clients::latch::Latch;
use crate::clients::limits::Budgets;
use crate::clients::socket::Stream;
use crate::process::history_settings::HistorySettings;
use crate::rights::access::Access;
use crate::transactions::aside::Tended;
use crate::transactions::committers::Committers;
use crate::transactions::expiry::Expiry;
use crate::transactions::in_doubt::Questions;
use crate::transactions::notices::{How, Notices};
use crate::transactions::survival;
use crate::transactions::{OpenTransaction, Transactions};
use crate::views::Views;
use crate::views::guard::GuardMount;
use crate::views::lending;
use crate::views::merges::Merges;
use atomdir::hosting::Ticks;
use atomdir_disk::LinuxDisk;
use atomdir_disk::sync;
use atomdir_engine::Store;
use atomdir_protocol::{RecoveryReport, Surroundings, Timestamp, TransactionId, WhileOpen};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

pub(crate) struct Service {
    pub(crate) store: Store<LinuxDisk>,
    /// The path of the store's root.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) history: HistorySettings,
    pub(crate) views: Views,
    pub(crate) guard: GuardMount,
    /// The socket on which it listens for programs in views.
    pub(crate) inner_socket: Option<Vec<u8>>,
    pub(crate) transactions: Arc<Transactions>,
    /// Commits into native views that are under way.
    pub(crate) merges: Merges,
    pub(crate) notices: Notices,
    /// The transactions that were set aside and that a thread looks after.
    pub(crate) tended: Tended,
    /// Who commits which transaction together with those of other stores.
    pub(crate) committers: Committers,
    /// What is asked of other stores for transactions in doubt.
    pub(crate) questions: Questions,
    pub(crate) budgets: Budgets,
    pub(crate) expiry: Expiry,
    pub(crate) connections: Arc<Connections>,
    /// Wakes the thread that maintains the store.
    pub(crate) maintenance: Ticks,
    /// Set when the service may have become idle or been asked to stop.
    pub(crate) latch: Arc<Latch>,
    pub(crate) started: Timestamp,
    pub(crate) started_at: Instant,
    pub(crate) recovery: RecoveryReport,
    /// It runs in the foreground, for a supervisor that starts it again.
    pub(crate) is_supervised: bool,
    pub(crate) stop: Stop,
    pub(crate) idle_time: IdleTime,
    /// The restrictions under which this process runs.
    pub(crate) surroundings: Surroundings,
}

/// The service ends after nothing was open for this long; `None`: it stays.
pub(crate) struct IdleTime(Mutex<Option<Duration>>);

impl IdleTime {
    pub(crate) fn new(time: Option<Duration>) -> IdleTime {
        IdleTime(Mutex::new(time))
    }

    pub(crate) fn get(&self) -> Option<Duration> {
        *sync::lock(&self.0)
    }

    /// The service applies it when the connection that asks has closed.
    pub(crate) fn set(&self, time: Option<Duration>) {
        *sync::lock(&self.0) = time;
    }
}

#[derive(Default)]
pub(crate) struct Stop {
    requested: AtomicBool,
    /// Even transactions that could survive are to be aborted.
    aborts_all: AtomicBool,
    /// The user who asked first.
    by: OnceLock<u32>,
    /// The end has begun.
    begun: AtomicBool,
    /// The clients that asked, and wait until the service has ended.
    waiting: Mutex<Vec<Asker>>,
}

pub(crate) struct Asker {
    pub(crate) stream: Stream,
    /// How many were open when the client asked: these the request aborts or keeps.
    pub(crate) transactions_open: u64,
}

impl Stop {
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(crate) fn aborts_all(&self) -> bool {
        self.aborts_all.load(Ordering::Acquire)
    }

    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// How the end of the service ends transactions; `None` before it has begun.
    pub(crate) fn how(&self) -> Option<How> {
        let by = self.by.get().copied();
        let begun = self.begun.load(Ordering::Acquire);
        begun.then_some(How::Stopped { by })
    }

    pub(crate) fn take_waiting(&self) -> Vec<Asker> {
        std::mem::take(&mut *sync::lock(&self.waiting))
    }
}

impl Service {
    pub(crate) fn request_stop(&self, stream: Stream, by: u32, open: WhileOpen) {
        self.stop.by.get_or_init(|| by);
        if open == WhileOpen::Abort {
            self.stop.aborts_all.store(true, Ordering::Release);
        }
        let transactions_open = self.transactions.count() as u64;
        let mut waiting = sync::lock(&self.stop.waiting);
        waiting.push(Asker {
            stream,
            transactions_open,
        });
        drop(waiting);
        self.stop.requested.store(true, Ordering::Release);
        self.latch.set();
    }

    /// Called when a connection has closed.
    pub(crate) fn release_all(&self, holder: ConnectionId) {
        for id in self.committers.taken_by(holder) {
            self.let_go(id);
        }
        for one in self.transactions.kept_after(holder) {
            self.keep(&one, holder);
        }
        let mut ended = self.transactions.remove_mounted_by(holder);
        let lent = self.transactions.lent_to(holder);
        ended.extend(self.transactions.release_all(holder));
        for (id, mounter) in lent {
            lending::left(self, id, mounter);
        }
        self.merges.mounter_has_gone(holder);
        let Some(how) = self.stop.how() else {
            self.abort(ended);
            return;
        };
        for one in &mut ended {
            // The end of the service has closed the connection, and its peer is to learn of it.
            one.holders.insert(holder, 0);
        }
        self.abort_by_force(ended, how);
    }

    /// A commit of several stores has ended without a commit of this one. Others may take it again, and
    /// programs change it, unless it is in doubt.
    pub(crate) fn let_go(&self, id: TransactionId) {
        let open = self.transactions.get(id);
        if let Some(one) = &open {
            // It fails only if the transaction has ended.
            let _ = self.store.cease_to_coordinate(&one.transaction);
        }
        match open.is_some_and(|one| one.transaction.coordinator().is_some()) {
            true => self.committers.leave(id),
            false if self.committers.forget(id) => {
                self.transactions.set_detached(id, false);
            }
            false => {}
        }
        self.transactions.waiters.wake(id);
    }

    /// Lets the transaction outlive the connection, and programs change it again.
    pub(crate) fn keep(&self, one: &OpenTransaction, holder: ConnectionId) {
        self.transactions.keep(one.id(), holder);
        one.transaction.thaw();
        survival::survive(self, one);
    }

    /// Forgets a transaction that its commit has ended.
    pub(crate) fn forget(&self, one: &OpenTransaction) {
        self.notices.done(one.id().0);
        self.clear_away(one);
        self.transactions.wake_waiters(one);
        lending::nested_has_ended(self, one);
        self.latch.set();
    }

    /// Hides a transaction that has ended, and no longer lists it.
    fn clear_away(&self, one: &OpenTransaction) {
        self.expiry.forget(&one.transaction);
        self.views.hide(&one.transaction);
        // It may have left what it has staged.
        self.maintenance.wake();
        // At last: a lazy commit may already be set aside, and `aside` then lists and shows the
        // transaction again as soon as it is not listed here. If an abort that came too late had
        // taken it off the list before, it is listed again already.
        self.transactions.remove_listing(one);
        let Some(again) = self.transactions.get(one.id()) else {
            return;
        };
        if again.transaction.has_ended() {
            self.transactions.remove_listing(&again);
            return;
        }
        self.notices.opened(&again.transaction);
        self.expiry.resume(&again.transaction);
        if let Err(failure) = self.views.show(&again.transaction) {
            self.notices.done(again.id().0);
            tracing::debug!(%failure, "transaction {} has ended meanwhile", again.id());
        }
    }

    /// Aborts transactions that are already removed from the open ones. Returns how many
    /// were aborted: a commit under way may have come first.
    pub(crate) fn abort(&self, ended: Vec<OpenTransaction>) -> u64 {
        self.abort_all(ended, |one| self.notices.done(one.id().0))
    }

    /// Like [`abort`](Self::abort), and notes how they ended, for users who did not want it.
    pub(crate) fn abort_by_force(&self, ended: Vec<OpenTransaction>, how: How) -> u64 {
        let staged = ended.iter().filter_map(|one| {
            let count = one.transaction.count_staged()?;
            Some((one.id(), count))
        });
        let staged: BTreeMap<TransactionId, u64> = staged.collect();
        self.abort_all(ended, |one| {
            let lost = (how, staged.get(&one.id()).copied());
            self.notices.ended(one, lost, &self.connections);
        })
    }

    /// Aborts what is nested in the transaction, for a user who forces its end.
    pub(crate) fn abort_nested(&self, id: TransactionId, by: u32) {
        let nested = self.transactions.remove_nested(id);
        self.abort_by_force(nested, How::Aborted { by });
    }

    fn abort_all(&self, ended: Vec<OpenTransaction>, note: impl Fn(&OpenTransaction)) -> u64 {
        let mut count = 0;
        // First end everything that other transactions may wait for.
        for one in &ended {
            if self.store.abort(&one.transaction) {
                count += 1;
                note(one);
            }
        }
        // Only a decision ends these.
        let is_in_doubt = |one: &OpenTransaction| one.transaction.coordinator().is_some();
        let (in_doubt, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(is_in_doubt);
        for one in &in_doubt {
            let _ = self.transactions.add(one);
        }
        for one in &ended {
            lending::end(self, one);
            lending::nested_has_ended(self, one);
            self.transactions.wake_waiters(one);
            self.merges.outer_has_ended(&one.transaction);
        }
        for one in &ended {
            self.clear_away(one);
        }
        if !ended.is_empty() {
            self.latch.set();
        }
        count
    }
}
