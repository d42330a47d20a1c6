//! One error per operation; messages say what happened and what to do.

use std::fmt;
use std::sync::Arc;

use atomdir_disk::{Errno, reason};
use atomdir_types::path::AnyPath;
pub use atomdir_types::{ChangedBy, CommitAuthor, Conflict, ConflictKind};
use atomdir_types::{LostLog, Partner, conflicts_message};

use crate::ids::{Sequence, TransactionId};

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("another process has the store open")]
    Locked,
    #[error("cannot {step} in the control directory: {errno}", errno = reason(errno))]
    Control { step: &'static str, errno: Errno },
    #[error("the store's header is damaged ({reason})")]
    Header { reason: String },
    /// The header names another place.
    #[error("this is a copy of a store: its control directory was made elsewhere")]
    Copied {
        /// The control directory itself was not copied: its root was.
        shares_control: bool,
    },
    #[error("the store was copied or restored while commits were still to be recovered")]
    CopiedTail,
    /// The control directory hands something down to the objects in it that cannot be taken from it.
    #[error(
        "the control directory hands down {what} to new objects, which would keep it, and that cannot be taken from it"
    )]
    Inherited { what: &'static str },
    /// There is no header, and something that no interrupted creation leaves.
    #[error("the control directory has no header, but holds '{name}', which came from elsewhere")]
    Foreign { name: String },
    /// A directory in the control directory is missing.
    #[error("the directory '.atomdir/{name}' is missing")]
    Lost { name: &'static str },
    #[error(
        "'.atomdir/{file}' is damaged at byte {offset}: {reason}; nothing was changed: restore the store from a backup"
    )]
    Damaged {
        file: &'static str,
        offset: u64,
        reason: String,
    },
    /// The log is outside the control directory, and not as the store has left it.
    #[error("the store's log '{path}' cannot be used: {reason}; nothing was changed: {lost}")]
    Log {
        path: String,
        reason: String,
        lost: LostLog,
    },
    #[error("no log can be made at '{path}': {reason}")]
    NewLog { path: String, reason: String },
    #[error(
        "commit {sequence} cannot be applied to the base: {path}: {reason}; it stays in the log"
    )]
    Apply {
        sequence: Sequence,
        path: String,
        reason: String,
    },
    #[error("no transaction can begin or commit now: {0}")]
    Stalled(Stalled),
    #[error("the file system cannot hold a store: {reason}")]
    Unsuitable { reason: String },
    #[error("the store's directory was removed, so nothing can be committed to it")]
    Removed,
    #[error("the file system has the store mounted read-only")]
    ReadOnly,
    #[error("the store refuses changes until it is recovered, because {reason}")]
    Poisoned { reason: Poison },
}

/// Why a store refuses changes until it is recovered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Poison {
    /// A flush failed. The data may be lost, and the next flush would not report it.
    NotFlushed { what: &'static str, errno: Errno },
    /// A commit is in the log, and an unknown part of it is in the base.
    NotApplied {
        sequence: Sequence,
        /// Unknown after a panic.
        obstacle: Option<Obstacle>,
    },
}

/// The obstacle that kept a commit from the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Relative to the store's root.
    pub path: String,
    pub reason: String,
}

impl fmt::Display for Poison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Poison::NotFlushed { what, errno } => {
                write!(formatter, "flushing {what} failed: {}", reason(errno))
            }
            Poison::NotApplied {
                sequence,
                obstacle: Some(Obstacle { path, reason }),
            } => write!(
                formatter,
                "commit {sequence} could not be applied to '{path}': {reason}"
            ),
            Poison::NotApplied {
                sequence,
                obstacle: None,
            } => write!(formatter, "commit {sequence} was not applied to its end"),
        }
    }
}

/// A durable commit that cannot be applied to the base until an obstacle there is
/// removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "commit {sequence} is durable but cannot be applied yet: '{path}' is in its way ({reason}); remove the obstacle, and the store continues by itself"
)]
pub struct Stalled {
    pub sequence: Sequence,
    /// Relative to the store's root.
    pub path: String,
    pub reason: String,
}

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    #[error("the outer transaction has ended; begin a transaction that is not nested")]
    Ended,
    #[error(
        "transaction {nested} is already nested in the outer transaction, which can have only one at a time, as it is serializable or has a native view; commit or abort it first"
    )]
    Nested { nested: TransactionId },
    #[error("cannot read what was changed in the outer transaction's native view: {}", reason(.0))]
    Upper(Errno),
    #[error(
        "the outer transaction's view is read-only, because its changes were listed for the commit; commit or abort it first"
    )]
    Frozen,
    #[error(
        "cannot prepare the outer transaction's staged files for a nested one: {}; nothing was changed",
        reason(.0)
    )]
    Staging(Errno),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction has not been forked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    #[error("the transaction has ended")]
    Ended,
    #[error(
        "a transaction with early conflicts cannot be forked: each would be in the other's way"
    )]
    Early,
    #[error(
        "the transaction's view is read-only, because its changes were listed for the commit; commit or abort it"
    )]
    Frozen,
    #[error("cannot read what was changed in the transaction's native view: {}", reason(.0))]
    Upper(Errno),
    #[error("cannot copy the transaction's staged files: {}; nothing was changed", reason(.0))]
    Copies(Errno),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SavepointError {
    #[error("the transaction has ended")]
    Ended,
    #[error(
        "transaction {nested} is nested in the transaction and still open; commit or abort it first"
    )]
    Nested { nested: TransactionId },
    #[error("the transaction has no savepoint of that name")]
    NoSuchSavepoint,
    #[error("the transaction has a native view, which has no savepoints")]
    Native,
    #[error(
        "the transaction's view is read-only, because its changes were listed for the commit; commit or abort it"
    )]
    Frozen,
    #[error("cannot keep the present state of the transaction: {}; nothing was changed", reason(.0))]
    Staging(Errno),
}

/// Why a part of a transaction's changes could not be dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DropError {
    #[error("the transaction has ended")]
    Ended,
    #[error("transaction {nested} is nested in it and still open")]
    Nested { nested: TransactionId },
    #[error("a nested transaction can only be aborted as a whole")]
    InOuter,
    #[error("it has a native view, and its command still runs")]
    Native,
    #[error("its view is read-only because its changes were listed for review")]
    Frozen,
    #[error("the transaction has changed nothing at '{path}'")]
    Unchanged { path: String },
    #[error("cannot look at '{path}': {errno}; nothing was dropped", errno = reason(*errno))]
    Io { path: String, errno: Errno },
    #[error("cannot go back to the state before: {}", reason(.0))]
    Staging(Errno),
}

/// Why a transaction did not get a newer snapshot. Nothing has changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RefreshError {
    #[error("the transaction is nested in another one, whose snapshot it has")]
    InOuter,
    #[error("the transaction has a native view, and its command still runs")]
    Native,
    #[error("its view is read-only because its changes were listed for review")]
    Frozen,
    /// As a commit would fail; conflicts are among these.
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl From<StoreError> for RefreshError {
    fn from(error: StoreError) -> RefreshError {
        RefreshError::Commit(error.into())
    }
}

/// Why a view could not be made read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreezeError {
    #[error("the transaction has ended")]
    Ended,
    #[error(
        "transaction {nested} is nested in the transaction and still open; commit or abort it first"
    )]
    Nested { nested: TransactionId },
    #[error("the transaction has a native view, and its command still runs")]
    Native,
}

/// Why a transaction cannot survive its service.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SurvivalError {
    #[error("the transaction has ended")]
    Ended,
    #[error("the transaction is nested in another one")]
    Nested,
    #[error("the transaction is serializable, and what it has read is kept in memory only")]
    Serializable,
    #[error("a part of its changes has been committed since its snapshot")]
    Landed,
    #[error("its view shows the past")]
    Past,
    #[error("the transaction has a native view, and its command still runs")]
    Native,
    #[error("the transaction is exclusive, and its lock on the store ends with the service")]
    Exclusive,
    #[error(
        "others have committed since its snapshot, commit {0}, and the history does not keep what they replaced"
    )]
    NotKept(Sequence),
    #[error("cannot write its view log: {errno}", errno = reason(*.0))]
    Staging(Errno),
    #[error(transparent)]
    Store(StoreError),
}

/// Why a commit failed. After [`Logged`](CommitError::Logged) and
/// [`Ended`](CommitError::Ended) the transaction has ended; after every other error it is
/// open, and the base is untouched.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    #[error("{}", conflicts_message(.0))]
    Conflict(Vec<Conflict>),
    #[error("the transaction has ended")]
    Ended,
    #[error(
        "transaction {nested} is nested in the transaction and still open; commit or abort it first"
    )]
    Nested { nested: TransactionId },
    #[error("no space left or quota exceeded while trying to {step} '{path}'; nothing was changed")]
    NoSpace { step: &'static str, path: String },
    #[error(
        "cannot {step} '{path}': another program holds a lease on the file and was asked to give it back; nothing was changed"
    )]
    Leased { step: &'static str, path: String },
    #[error(
        "cannot {step} '{path}': it is immutable or append-only; nothing was changed: make it changeable with `chattr -i -a`, then commit again"
    )]
    Immutable { step: &'static str, path: String },
    #[error(
        "cannot {step} '{path}': a file system is mounted on it; nothing was changed: unmount it, then commit again"
    )]
    MountPoint { step: &'static str, path: String },
    #[error(
        "cannot create, remove or rename '{path}': its file system refuses to move it, because of a lower directory of an overlay, another project, or encryption; nothing was changed"
    )]
    Unmovable { path: String },
    #[error("cannot {step} '{path}': {errno}; nothing was changed", errno = reason(errno))]
    Io {
        step: &'static str,
        path: String,
        errno: Errno,
    },
    /// A part was to be committed, and the transaction has changed nothing there.
    #[error("the transaction has changed nothing at '{path}'")]
    Unchanged { path: String },
    /// A side was to be taken in a conflict that is not in the list.
    #[error("there is no conflict number {number} in the list of the transaction's conflicts")]
    NotListed { number: u64 },
    /// The transaction's side cannot be taken there, or both sides were.
    #[error("the transaction's side cannot be taken at '{path}': {reason}")]
    NotTaken { path: String, reason: &'static str },
    /// The caller asked for the transaction's side in a conflict about an object that the
    /// transaction has only read.
    #[error(
        "the serializable transaction has read '{path}', which others have changed since: \
         no side can be taken there"
    )]
    ReadSince { path: String },
    #[error(
        "the transaction is a view of the past, as after commit {at}: it has nothing to commit"
    )]
    Past { at: Sequence },
    #[error("the transaction can only be committed as a whole: {reason}")]
    OnlyWhole { reason: &'static str },
    /// It has voted for a commit that another store decides.
    #[error(
        "the transaction is in doubt: transaction {} in '{}' decides whether it commits",
        .0.transaction,
        String::from_utf8_lossy(&.0.root)
    )]
    InDoubt(Box<Partner>),
    /// Only a commit of several stores ends it.
    #[error("the transaction is one of several that are only committed together: {}", all(.0))]
    Linked(Arc<[Partner]>),
    /// It cannot be committed together with transactions of other stores.
    #[error("the transaction cannot be committed together with those of other stores: {0}")]
    NoVote(SurvivalError),
    /// The commit was to take itself back unless it is confirmed.
    #[error(
        "the store keeps no history, so the commit could not be taken back; nothing was changed"
    )]
    NoHistory,
    /// Something failed after the commit's record was appended to the log. Recovery will
    /// show whether the commit landed.
    #[error(transparent)]
    Logged(StoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CommitError {
    pub(crate) fn io(
        step: &'static str,
        path: &(impl AnyPath + ?Sized),
        errno: Errno,
    ) -> CommitError {
        let path = shown(path);
        match errno {
            Errno::NOSPC | Errno::DQUOT => CommitError::NoSpace { step, path },
            Errno::AGAIN => CommitError::Leased { step, path },
            _ => CommitError::Io { step, path, errno },
        }
    }

    /// Whether the commit was cancelled only because somebody began to use files that were to be
    /// replaced.
    pub(crate) fn is_used_since(&self) -> bool {
        let CommitError::Conflict(conflicts) = self else {
            return false;
        };
        let is_used_since = |conflict: &Conflict| conflict.what == ConflictKind::UsedSince;
        conflicts.iter().all(is_used_since)
    }
}

/// Why commits cannot be undone. Nothing has changed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    #[error(
        "what commit {0} replaced is not kept: it is older than the history, had to make room for others, or was made without one"
    )]
    NotKept(Sequence),
    #[error("there is no commit {0} yet")]
    NotYet(Sequence),
    #[error("commit {commit} has been undone already, by commit {by}")]
    AlreadyUndone { commit: Sequence, by: Sequence },
    #[error("'{path}' was not changed by these commits")]
    Untouched { path: String },
    #[error("there is nothing at '{path}', and there was nothing then")]
    Absent { path: String },
    /// Something that the commits changed was changed again later.
    #[error("{}", conflicts_message(.0))]
    Conflict(Vec<Conflict>),
    /// A later change was to be overwritten.
    #[error("the later change of '{path}' cannot be overwritten: {reason}")]
    NotTaken { path: String, reason: &'static str },
    /// A path was to be skipped, or a later change was to stay.
    #[error("'{path}' cannot be left out of the undo: {reason}")]
    NotLeftOut { path: String, reason: &'static str },
    /// The user on whose behalf it is may not bring everything back.
    #[error(
        "'{path}', or something in it, is not this user's own, so they cannot bring it back or \
             remove it by an undo"
    )]
    NotYours { path: String },
    #[error("cannot look at '{path}': {errno}", errno = reason(errno))]
    Io { path: String, errno: Errno },
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction cannot be committed on the terms that its user wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TermsError {
    #[error("a nested transaction cannot wait to be confirmed: it becomes part of the outer one")]
    Nested,
    #[error("the store keeps no history, so no commit can be taken back")]
    NoHistory,
}

/// Why a commit cannot be confirmed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    #[error("no commit {0} in the log")]
    NoSuchCommit(Sequence),
    #[error("commit {commit} has been taken back, by commit {by}")]
    TakenBack { commit: Sequence, by: Sequence },
    #[error("commit {0} does not wait to be confirmed")]
    NotWaiting(Sequence),
    #[error("commit {0} was not confirmed in time, and is just being taken back")]
    TooLate(Sequence),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a commit cannot be pinned, or get another label.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotateError {
    #[error("there is no commit {0} in the log")]
    NoSuchCommit(Sequence),
    #[error("what commit {0} replaced is not kept any more")]
    NotKept(Sequence),
    #[error("the labels that were given to commits later take too much space")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn all(linked: &[Partner]) -> String {
    let named = linked.iter().map(|one| {
        let root = String::from_utf8_lossy(&one.root);
        format!("transaction {} of '{root}'", one.transaction)
    });
    named.collect::<Vec<_>>().join(" and ")
}

/// The longest path that a message shows in full: no call takes a longer one.
const PATH_SHOWN_MAX: usize = 4096;

/// A path of the store, for messages, which are kept, sent and logged. The root's own path is empty.
/// The middle of a long one is left out.
pub(crate) fn shown(path: &(impl AnyPath + ?Sized)) -> String {
    let path = path.bytes();
    if path.is_empty() {
        return ".".to_owned();
    }
    if path.len() <= PATH_SHOWN_MAX {
        return String::from_utf8_lossy(&path).into_owned();
    }
    let half = PATH_SHOWN_MAX / 2;
    let [first, last] = [&path[..half], &path[path.len() - half..]].map(String::from_utf8_lossy);
    format!("{first} [...] {last}")
}
