use crate::{
    Begun, ChangeLine, CheckReport, CommitSummary, Committed, Conflict, Conflicts, Durability,
    Failure, Isolation, LockMode, LockScope, Progress, Sequence, ServiceStatus, SnapshotObject,
    StopReport, TransactionId, TransactionStatus, ViewChoice,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    Begin(BeginRequest),
    /// The view of a transaction that is already open.
    Attach {
        transaction: TransactionId,
        /// As long as the connection is open, or until `Detach`, it is not
        /// committed without a word, nor aborted for want of holders.
        hold: bool,
    },
    /// Gives back the hold of this connection.
    Detach {
        transaction: TransactionId,
    },
    /// The programs in a transaction's native view have ended: from now on
    /// its view is exact.
    TakeOver {
        transaction: TransactionId,
    },
    /// Lets a transaction outlive its holders, of whom this connection is none
    /// any more.
    Keep {
        transaction: TransactionId,
    },
    Commit {
        transaction: TransactionId,
        /// Also while others hold it, whose views end, and while others are
        /// nested in it, which are aborted.
        force: bool,
    },
    /// Names the present state, to go back to.
    SetSavepoint {
        transaction: TransactionId,
        name: Vec<u8>,
    },
    /// Undoes what was changed since.
    RollBack {
        transaction: TransactionId,
        savepoint: Vec<u8>,
    },
    Abort {
        transaction: TransactionId,
    },
    /// Every transaction the peer may abort.
    AbortAll,
    Status {
        transaction: TransactionId,
    },
    /// What commit would land.
    Changes {
        transaction: TransactionId,
    },
    /// What `path` was in the snapshot, with a file's contents if there are
    /// at most `contents_length_max` bytes of them.
    SnapshotObject {
        transaction: TransactionId,
        path: Vec<u8>,
        contents_length_max: u64,
    },
    /// Locks paths of a transaction, all or none.
    Lock(LockRequest),
    /// Ends locks on these paths, or all of them.
    Unlock {
        transaction: TransactionId,
        paths: Option<Vec<Vec<u8>>>,
    },
    /// Has the transaction aborted after so long, unless it has ended before.
    AbortAfter {
        transaction: TransactionId,
        age_ms: u64,
    },
    /// The open transactions the peer may see.
    List,
    /// Commits, newest first, from just before `before`.
    Log {
        before: Option<Sequence>,
        limit: u64,
    },
    Show {
        sequence: Sequence,
    },
    /// Makes lazy commits durable.
    Sync,
    Checkpoint,
    Check,
    ServiceStatus,
    /// From now on the service ends after so long without a transaction or a
    /// connection; `None`: it stays until it is stopped.
    SetIdleTime {
        idle_ms: Option<u64>,
    },
    /// Answered when everything is cleaned up, just before the process ends.
    Stop,
    /// The first request over the inner socket: the connection may act on this
    /// transaction and on what is nested in it, and on nothing else.
    Enter {
        transaction: TransactionId,
        /// From [`Within`](crate::Within).
        secret: Vec<u8>,
    },
    /// Makes the view read-only, so that a commit lands exactly what `Changes`
    /// answers from now on. `Keep` makes it writable again.
    Freeze {
        transaction: TransactionId,
        /// As for `Commit`.
        force: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BeginRequest {
    pub isolation: Isolation,
    pub durability: Durability,
    pub conflicts: Conflicts,
    /// The first of several tries, of which this is one: only its owner's, begun
    /// on the same connection.
    pub first_try: Option<TransactionId>,
    /// At most [`LABEL_LENGTH_MAX`](crate::LABEL_LENGTH_MAX) bytes.
    pub label: Vec<u8>,
    pub detached: bool,
    /// Nested in this transaction, whose isolation and durability it shares.
    pub outer: Option<TransactionId>,
    pub view: ViewChoice,
    /// The view's root shall come with the answer: opening it is most of what
    /// a begin takes.
    pub opened: bool,
    /// Only this connection may enter, change or commit it, until it gives the
    /// transaction up with `Keep`. Its programs get no way to the service.
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    pub transaction: TransactionId,
    pub mode: LockMode,
    pub scope: LockScope,
    /// Relative to the store's root, as the transaction's view has them.
    pub paths: Vec<Vec<u8>>,
    /// How long to wait for those who hold other locks; `None`: as long as it
    /// takes.
    pub wait_ms: Option<u64>,
    /// The locks on these paths end so long after they were granted; `None`: with the
    /// transaction.
    pub max_age_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    // More follows these. Long lists come in several parts.
    Progress(Progress),
    Changes(Vec<ChangeLine>),
    Conflicts(Vec<Conflict>),
    Contents(Vec<u8>),
    Problems(Vec<String>),
    Transactions(Vec<TransactionStatus>),
    Commits(Vec<CommitSummary>),
    // These are the last.
    Done(Answer),
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// All there is to say was in the parts before, or nothing.
    Nothing,
    Begun(Begun),
    Committed(Committed),
    /// How many transactions were aborted.
    Aborted(u64),
    /// How many locks were ended.
    Unlocked(u64),
    Transaction(TransactionStatus),
    /// `None`: the path named nothing.
    SnapshotObject(Option<SnapshotObject>),
    Commit(CommitSummary),
    Checked(CheckReport),
    Service(Box<ServiceStatus>),
    Stopped(StopReport),
}

/// The one frame a service that is being started writes to its starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    Ready,
    Failed(Failure),
}
