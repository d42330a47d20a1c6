//! The values that requests and replies contain.

use crate::Failure;
use atomdir_types::{
    Conflict, Conflicts, Deviation, Durability, EarlyReason, EndedHow, HistoryStatus, Isolation,
    LockStatus, Partner, RecoveryReport, Sequence, Timestamp, TransactionId, Unconfirmed,
};
use serde::{Deserialize, Serialize};

/// How a transaction's programs see the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum View {
    /// In a FUSE file system of the service.
    #[default]
    Exact,
    /// In an overlay that the client mounts over the snapshot.
    Native,
    /// In an overlay over the base itself, since nobody else can commit meanwhile.
    Exclusive,
}

/// Which kind of view a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ViewChoice {
    #[default]
    Exact,
    Native,
    /// A native view if one is possible and no option needs an exact one.
    Auto,
    /// The kind in the store's settings.
    Configured,
    /// A native view over the base itself. The transaction holds a lock on the whole store from its
    /// begin, which waits for it.
    Exclusive,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub transaction: TransactionId,
    /// The absolute path of the view's root; for a native view, of the snapshot below it.
    pub view_path: Vec<u8>,
    /// Only a native view has layers.
    pub layers: Option<Layers>,
    /// Why the view is exact although the client would have taken a native one.
    pub exact_because: Option<String>,
    /// After a `TakeOver`: what overlayfs has done otherwise than a plain directory would.
    pub deviations: Vec<Deviation>,
    /// The view is native, and another process has mounted it.
    pub lent: bool,
    /// For programs in the view, which do not see the control directory. `None`: they
    /// cannot reach the service.
    pub within: Option<Within>,
}

impl Begun {
    /// Whether its overlay lies over the base itself.
    pub fn is_over_base(&self) -> bool {
        self.layers.as_ref().is_some_and(|layers| layers.over_base)
    }
}

/// How a program in a view reaches the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Within {
    /// The absolute path of the socket on which the service listens.
    pub socket: Vec<u8>,
    /// For [`Request::Enter`](crate::Request::Enter). Any program of the transaction's
    /// owner or of root that knows it may act on the transaction as its programs may.
    pub secret: Vec<u8>,
}

/// The layers of an overlay above the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// The directory of `upper` and `work`, relative to the control directory.
    pub path: Vec<u8>,
    /// overlayfs must keep its attributes where ordinary users may write them (`userxattr`).
    pub user_xattrs: bool,
    /// If the overlay cannot be mounted, the transaction must fail instead of taking an
    /// exact view.
    pub is_required: bool,
    /// The lower layer is the base itself, and not the snapshot.
    pub over_base: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// `None`: the transaction had changed nothing, or its changes now belong to its
    /// outer transaction.
    pub sequence: Option<Sequence>,
    pub changes: u64,
    /// Why the base does not show the commit yet, although it is durable.
    pub stalled: Option<String>,
    /// It takes itself back after this time unless somebody confirms it.
    pub confirm_ms: Option<u64>,
    /// Why the history forgets commits early because of this one, if it does.
    pub forgets_early: Option<EarlyReason>,
}

/// Chooses between failing and waiting when others hold the transaction that is to be
/// committed, or when others are nested in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Others {
    /// The request fails with [`FailureKind::InUse`](crate::FailureKind::InUse).
    #[default]
    Refuse,
    /// The request waits until they have ended.
    Wait,
    /// The others' views end, and the nested transactions are aborted.
    End,
}

/// The progress of a request that takes time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// It waits for others, for this reason. It waits from now on, so whatever they do
    /// from now on can end the wait.
    Waiting(String),
    /// So many of its steps are done. The number of all grows while it finds more to do.
    Steps { done: u64, total: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionStatus {
    pub transaction: TransactionId,
    /// The numeric user id.
    pub owner: u32,
    pub label: Vec<u8>,
    pub began: Timestamp,
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    pub locks: Vec<LockStatus>,
    /// Early conflicts at its writes. With any, it can only be aborted.
    pub met: Vec<Conflict>,
    /// It lives until it is committed or aborted, not only as long as a connection holds it.
    pub detached: bool,
    pub view: View,
    pub view_path: Vec<u8>,
    /// The transaction in which it is nested.
    pub outer: Option<TransactionId>,
    /// The open transactions that are nested in it, in the order of their begins.
    pub nested: Vec<TransactionId>,
    /// The ids of the processes that hold it.
    pub holders: Vec<u32>,
    /// The names of its savepoints, oldest first.
    pub savepoints: Vec<Vec<u8>>,
    /// Only the process that began it may commit it.
    pub sealed: bool,
    /// It shows the store as it was just after this commit.
    pub past: Option<Sequence>,
    /// The space of forgotten commits that stays taken until it and other open transactions
    /// have ended.
    pub held_bytes: u64,
    /// How many commits the history keeps for it, whatever its limits are, so that it can be opened
    /// again after its service has died.
    pub kept_commits: u64,
    /// The space of those of them that are beyond the history's limits, as of the last checkpoint.
    pub kept_bytes: u64,
    pub survival: Survival,
    /// If its lazy commit was set aside: why, and what happens next.
    pub set_aside: Option<String>,
    /// If it has voted for a commit that a transaction of another store decides.
    pub in_doubt: Option<InDoubt>,
    /// The transactions that are only committed together, this one among them; empty: it is committed by
    /// itself.
    pub linked: Vec<Partner>,
}

/// A transaction that has voted, and waits to learn what has become of its coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InDoubt {
    pub coordinator: Partner,
    /// Why it still waits, as far as the service knows.
    pub reason: Option<String>,
}

/// Whether a transaction outlives its service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Survival {
    /// It ends with its service. If it is detached, the reason says why it does not survive.
    Ends {
        reason: Option<String>,
    },
    Survives,
    /// It has survived, but cannot be opened; only `Abort` is possible.
    Stranded {
        reason: String,
    },
}

/// A transaction that has ended otherwise than its user wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedTransaction {
    pub transaction: TransactionId,
    /// The numeric user id.
    pub owner: u32,
    /// Perhaps cut.
    pub label: Vec<u8>,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub how: EndedHow,
    /// About how many objects it had changed, if that is known.
    pub changes: Option<u64>,
}

/// What a request to stop the service does while transactions are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhileOpen {
    /// It fails.
    Refuse,
    /// It aborts them.
    Abort,
    /// It leaves them to the next service. It fails if one of them does not survive.
    Keep,
    /// It fails, as it does while another client is connected, or if a supervisor runs the service.
    RefuseIfUsed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceStatus {
    pub process: u32,
    /// The numeric id of the user as whom it runs.
    pub user: u32,
    /// The program's version.
    pub version: String,
    pub started: Timestamp,
    pub age_seconds: u64,
    pub store: Vec<u8>,
    /// Where views are mounted, or why there are none.
    pub views: Result<Vec<u8>, Failure>,
    /// Whether the kernel's requests for views come over io_uring.
    pub views_over_io_uring: bool,
    /// How many requests the views' file systems have got since they were mounted.
    pub view_requests: u64,
    /// The guard, if one is mounted.
    pub guard: Option<GuardStatus>,
    pub connections: u64,
    pub open_transactions: u64,
    /// It ends after this time without a transaction or a connection; `None`: it stays.
    pub idle_ms: Option<u64>,
    /// It runs in the foreground, for a supervisor that starts it again.
    pub supervised: bool,
    pub limits: Limits,
    /// The sequence of the newest commit.
    pub sequence: Sequence,
    pub log_bytes: u64,
    /// The history that is kept; `None`: none.
    pub history: Option<HistoryStatus>,
    /// The commits that wait to be confirmed, or could not be taken back.
    pub unconfirmed: Vec<(Sequence, Unconfirmed)>,
    /// Why the store accepts no more commits until it is recovered.
    pub poisoned: Option<String>,
    /// Which commit waits to be applied to the base, and why.
    pub stalled: Option<String>,
    /// The report of the recovery when the service opened the store.
    pub recovery: RecoveryReport,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStatus {
    /// What a call changes is flushed before the call returns.
    pub syncs: bool,
    /// How often something was flushed for that.
    pub flushes: u64,
    /// How many calls wait for locks of transactions.
    pub waiting: u64,
}

/// The service's limits. Those with `user_` in their names do not apply to root and the
/// store's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub connections_max: u64,
    pub transactions_max: u64,
    pub user_connections_max: u64,
    pub user_transactions_max: u64,
    /// The limit for all open transactions of a user together.
    pub user_changed_objects_max: u64,
    /// A user's connection is closed after this time without a request, unless it holds
    /// a transaction.
    pub connection_idle_seconds: u64,
    /// How many descriptors the process may have open.
    pub descriptors_max: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReport {
    pub transactions_aborted: u64,
    /// How many the next service opens again.
    pub transactions_kept: u64,
}
