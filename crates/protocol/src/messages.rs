use crate::{
    Begun, Committed, EndedTransaction, Failure, JointRequest, Others, Progress, ServiceStatus,
    StopReport, Surroundings, TransactionStatus, ViewChoice, WhileOpen,
};
use atomdir_types::path::is_at_or_below;
use atomdir_types::{
    ChangeLine, CheckReport, CommitFilter, CommitSummary, Conflict, Conflicts, Durability,
    FileRead, HistoryStatus, Isolation, LockMode, LockScope, MergeStep, Outcome, Partner, Sequence,
    Side, SnapshotObject, Terms, TransactionId, Undo,
};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    Begin(BeginRequest),
    /// Returns the view of an open transaction.
    Attach {
        transaction: TransactionId,
        /// While the connection is open, and until `Detach`, others cannot commit the
        /// transaction without `force`, and it is not aborted for want of holders.
        hold: bool,
    },
    /// Gives back this connection's hold.
    Detach {
        transaction: TransactionId,
    },
    /// The command in a native view has ended, and nobody else may enter the view from now on.
    /// Fails with `InUse` while others hold the transaction, or another one is nested in it. After
    /// each `Reply::Left` the client may try again.
    CloseView {
        transaction: TransactionId,
        /// First make the others leave.
        force: bool,
    },
    /// The programs in a transaction's native view have ended, and the view becomes exact. Closes
    /// the view as `CloseView` does.
    TakeOver {
        transaction: TransactionId,
        /// Send the exact view's root with the answer. Opening it takes time.
        opened: bool,
    },
    /// Lets a transaction outlive its holders, and gives up this connection's hold.
    Keep {
        transaction: TransactionId,
    },
    Commit(CommitRequest),
    /// Notes the reads of files by the transaction's program. The transaction must have been begun
    /// with `declares_reads`.
    DeclareReads {
        transaction: TransactionId,
        files: Vec<FileRead>,
    },
    /// Names the present state, so that `RollBack` can restore it.
    SetSavepoint {
        transaction: TransactionId,
        name: Vec<u8>,
    },
    /// Restores the state at a savepoint.
    RollBack {
        transaction: TransactionId,
        savepoint: Vec<u8>,
    },
    Abort {
        transaction: TransactionId,
        /// When nobody else is in it any more.
        wait: bool,
    },
    /// Aborts all transactions that the peer may abort.
    AbortAll,
    Status {
        transaction: TransactionId,
    },
    /// Lists the changes that a commit would land.
    Changes {
        transaction: TransactionId,
    },
    /// Returns `path` as this side has it; with a file's contents if they have at most
    /// `contents_length_max` bytes.
    SnapshotObject {
        transaction: TransactionId,
        side: Side,
        path: Vec<u8>,
        contents_length_max: u64,
    },
    /// Locks paths for a transaction: all or none.
    Lock(LockRequest),
    /// Releases the locks on these paths, or all locks.
    Unlock {
        transaction: TransactionId,
        paths: Option<Vec<Vec<u8>>>,
    },
    /// Aborts the transaction after this time, unless it ends before.
    AbortAfter {
        transaction: TransactionId,
        age_ms: u64,
    },
    /// Lists the open transactions that the peer may see.
    List,
    /// Lists transactions that have ended otherwise than their users wanted: the peer's own, or
    /// all for the store's owner and root.
    ListEnded {
        /// Only those that were not yet reported to the peer. From then on, the connection also gets
        /// a `Reply::Ended` unasked, at any time, when a transaction that it holds ends by force.
        news: bool,
    },
    /// Lists commits, oldest first.
    Log(LogRequest),
    Show {
        sequence: Sequence,
    },
    /// Says something of a commit, or of one to come.
    Annotate(Annotate),
    /// Makes lazy commits durable.
    Sync,
    /// Mounts the guard over the store's own path, unless it is mounted.
    MountGuard {
        /// What a call through it changes is flushed before the call returns.
        syncs: bool,
    },
    UnmountGuard,
    /// Makes everything in the view of a transaction durable that survives its service.
    Flush {
        transaction: TransactionId,
    },
    Checkpoint,
    Check,
    /// Forgets the history of commits that are older than this, or older than the store's settings
    /// say. 0: all.
    Prune {
        older_than_ms: Option<u64>,
    },
    ServiceStatus,
    /// Asks for what the service's process may not do.
    Surroundings,
    /// Returns a mount of the file system in which the transaction's view is, for a client in
    /// another mount namespace. Only a service of root's can make one.
    LendMount {
        transaction: TransactionId,
    },
    /// Makes the service end after this time without a transaction or a connection;
    /// `None`: it stays until it is stopped.
    SetIdleTime {
        idle_ms: Option<u64>,
    },
    /// The answer comes when everything is cleaned up, just before the process ends.
    Stop {
        open: WhileOpen,
    },
    /// The first request over the inner socket. After it the connection may act on
    /// this transaction and on those within it, and on no others.
    Enter {
        transaction: TransactionId,
        /// The secret from [`Within`](crate::Within).
        secret: Vec<u8>,
    },
    /// Makes the view read-only, so that a commit lands exactly what `Changes` lists.
    /// `Keep` makes it writable again.
    Freeze {
        transaction: TransactionId,
        others: Others,
    },
    /// Does the same as `Keep`, but only when this connection closes, if the transaction is
    /// still open then.
    KeepOnClose {
        transaction: TransactionId,
    },
    /// Drops the changes at and below these paths, and the changes that need them. Lists the
    /// dropped changes.
    AbortPart {
        transaction: TransactionId,
        paths: Vec<Vec<u8>>,
    },
    /// Lists what keeps the transaction from being committed now. The order numbers the
    /// conflicts from 1, for [`Portion::Sides`]. Drops all savepoints.
    ListConflicts {
        transaction: TransactionId,
        /// If false, returns the list that was made last.
        again: bool,
    },
    /// Gives the transaction a snapshot of the newest commit, under its own changes.
    Refresh(RefreshRequest),
    /// Returns the steps to carry out for the commit that `Reply::Merge` has announced, and the
    /// root of the nested transaction's view.
    MergeSteps {
        transaction: TransactionId,
    },
    /// The steps were carried out; or the first could not be, and why.
    Merged {
        transaction: TransactionId,
        refused: Option<String>,
    },
    /// Transactions of several stores are committed together.
    Joint(JointRequest),
}

/// What a user says of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Annotate {
    /// On what terms the transaction is to be committed.
    Terms {
        transaction: TransactionId,
        terms: Terms,
    },
    /// A commit that waits to be confirmed is to stay.
    Confirm { sequence: Sequence },
    /// The history keeps what a commit replaced, whatever its limits are, or no longer.
    Pin { sequence: Sequence, pinned: bool },
    /// It gets another label in the log.
    Relabel { sequence: Sequence, label: Vec<u8> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRequest {
    pub transaction: TransactionId,
    pub others: Others,
    pub portion: Portion,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefreshRequest {
    pub transaction: TransactionId,
    /// Wait until others have left the transaction.
    pub wait: bool,
    /// Do nothing unless the transaction is detached and does not survive the service any more,
    /// because it has landed a part, and others have committed nothing since its snapshot.
    pub only_to_survive: bool,
}

/// The newest commits older than `before` that changed something at or below these paths, relative to
/// the store's root; without paths, all commits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRequest {
    pub before: Option<Sequence>,
    pub limit: u64,
    pub paths: Vec<Vec<u8>>,
    pub only: CommitFilter,
}

/// How much of a transaction's changes is to be committed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Portion {
    #[default]
    All,
    /// The changes at and below these paths, relative to the store's root, and the changes that these
    /// need. The transaction stays open with the rest. The changes that have landed are listed.
    Part {
        paths: Vec<Vec<u8>>,
        /// The label of this commit in the log, if it is not the transaction's.
        label: Option<Vec<u8>>,
    },
    /// All, and sides are taken in conflicts that were listed before. Any other conflict, and one that
    /// is not as it was listed, refuses the commit. The changes for which their side was taken are
    /// listed.
    Sides(Sides),
}

/// Whose side a commit takes in each conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sides {
    /// The transaction's changes replace what others have changed.
    pub mine: Numbers,
    /// The transaction's changes there are not committed.
    pub theirs: Numbers,
}

/// Some of a list, which is numbered from 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Numbers {
    These(Vec<u64>),
    /// All that are not named otherwise.
    Others,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BeginRequest {
    pub options: BeginOptions,
    /// The transaction begins with something of the past.
    pub past: Option<Past>,
}

/// How a transaction is to begin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BeginOptions {
    /// Which changes of others make the commit fail.
    pub isolation: Isolation,
    /// Whether the commit waits until it is durable.
    pub durability: Durability,
    /// When conflicts are found.
    pub conflicts: Conflicts,
    /// If this is a repeated try, the first try, begun on the same connection: with early conflicts
    /// the oldest transaction wins.
    pub first_try: Option<TransactionId>,
    /// The name in the log: at most [`LABEL_LENGTH_MAX`](crate::LABEL_LENGTH_MAX) bytes. The client
    /// cuts a longer one, and the service refuses it.
    pub label: Vec<u8>,
    /// The transaction lives until it is committed or aborted or the service ends. If false, it is
    /// aborted when its last holder's connection closes.
    pub detached: bool,
    /// The transaction in which this one is nested, and whose isolation and durability it shares.
    /// If that one is serializable or has a native view, only one at a time can be nested in it.
    pub outer: Option<TransactionId>,
    /// It begins with the snapshot and the present changes of this transaction, and its isolation and
    /// durability, but is independent of it. Then `outer` is `None`.
    pub fork_of: Option<TransactionId>,
    /// If only one at a time can be nested in `outer`, and others work in that one, the begin waits
    /// for its end. Otherwise, and when nobody works in it, the begin fails with
    /// [`FailureKind::InUse`](crate::FailureKind::InUse) or
    /// [`FailureKind::Nested`](crate::FailureKind::Nested).
    pub wait: bool,
    /// The kind of view.
    pub view: ViewChoice,
    /// The service opens the view's root and sends it with the answer. Needed by programs that do
    /// not see the service's mount of views, for example in a container. A begin takes several
    /// times as long with it.
    pub opened: bool,
    /// If it is serializable: what its programs read of files counts only once a request declares
    /// it.
    pub declares_reads: bool,
    /// While it is held, parts of its changes can be committed all the same, also by its own programs.
    pub commits_while_held: bool,
    /// Only this connection can enter, change or commit it, until it is kept. Its programs get no
    /// way to reach the service.
    pub sealed: bool,
}

/// What a transaction begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Past {
    /// It takes back what these commits changed. If that was changed again since, the begin fails
    /// with a conflict.
    /// The service sends the conflicts in which a side is taken before the answer.
    Undo(Undo),
    /// It shows the past, and can only be aborted.
    View(PastView),
    /// In it some paths are as they were just after a commit.
    Restore(Restore),
}

impl Past {
    /// The commits of which the service says what outside writers have changed of what they left.
    pub fn reported(&self) -> Option<RangeInclusive<Sequence>> {
        match self {
            Past::Undo(_) => None,
            Past::View(view) => Some(view.outside_since?.next()..=view.commit),
            Past::Restore(restore) => Some(Sequence(0).next()..=restore.commit),
        }
    }

    /// Whether it has to do with a path.
    pub fn concerns(&self, path: &[u8]) -> bool {
        let Past::Restore(restore) = self else {
            return true;
        };
        let mut paths = restore.paths.iter();
        path == b"."
            || paths.any(|asked| is_at_or_below(path, asked) || is_at_or_below(asked, path))
    }
}

/// What is brought back from the past.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// 0: before the first.
    pub commit: Sequence,
    /// Relative to the store's root; with everything below them.
    pub paths: Vec<Vec<u8>>,
}

/// The store as it was just after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastView {
    /// 0: before the first.
    pub commit: Sequence,
    /// If outside writers have changed an object since, its old state is gone. If true, the view
    /// shows its present state, and the service sends it as a conflict before the answer. If false,
    /// the begin fails with a conflict.
    pub outside_as_now: bool,
    /// The service also sends what commits after this one, up to `commit`, left and outside writers
    /// have changed since. The view shows that as it is now, too. `None`: nothing of it.
    pub outside_since: Option<Sequence>,
    /// It gets the snapshot of this transaction, so that the two can be compared.
    pub beside: Option<TransactionId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRequest {
    pub transaction: TransactionId,
    pub mode: LockMode,
    pub scope: LockScope,
    /// Relative to the store's root, in the transaction's view.
    pub paths: Vec<Vec<u8>>,
    /// How long to wait for others that hold conflicting locks; `None` means without limit.
    pub wait_ms: Option<u64>,
    /// The locks on these paths end this long after they were granted; `None`: with
    /// the transaction.
    pub max_age_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    // More replies follow each of these. Long lists come in several parts.
    Progress(Progress),
    Changes(Vec<ChangeLine>),
    Conflicts(Vec<Conflict>),
    Contents(Vec<u8>),
    Problems(Vec<String>),
    Transactions(Vec<TransactionStatus>),
    Commits(Vec<CommitSummary>),
    Ended(Vec<EndedTransaction>),
    MergeSteps(Vec<MergeStep>),
    /// Sent unasked to the connection that mounted a native view: a transaction nested in it
    /// commits, and waits for `Request::Merged`.
    Merge(TransactionId),
    /// Sent unasked to the connection that mounted a native view, with one end of a pair of
    /// sockets: another client waits at the other end for a mount of the view.
    Lend(TransactionId),
    /// Sent unasked to the connection that mounted a native view: another client has left the
    /// transaction, or one that was nested in it has ended.
    Left(TransactionId),
    /// Sent unasked to a connection that holds a transaction with a native view which another
    /// process has mounted: the view ends, and so must the programs in it.
    Leave(TransactionId),
    // Nothing follows these.
    Done(Answer),
    Failed(Failure),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// There is no answer, or the parts before were all of it.
    Nothing,
    Begun(Begun),
    Committed(Committed),
    /// The newest commits in the snapshot before and now.
    Refreshed {
        from: Sequence,
        to: Sequence,
    },
    /// How many transactions were aborted.
    Aborted(u64),
    /// How many locks were released.
    Unlocked(u64),
    Transaction(Box<TransactionStatus>),
    /// `None`: the path named nothing.
    SnapshotObject(Option<SnapshotObject>),
    Commit(CommitSummary),
    Checked(CheckReport),
    /// The history that is kept now; `None`: none.
    History(Option<HistoryStatus>),
    Service(Box<ServiceStatus>),
    Surroundings(Surroundings),
    Stopped(StopReport),
    Introduced(Partner),
    Voted(bool),
    Outcome(Outcome),
}

/// The single frame that a starting service writes to its starter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    Ready,
    Failed(Failure),
}
