//! The errors of stores and transactions, one type for each operation.

use super::history::UndoError;
use super::merging::{NotMerged, not_merged_message};
use super::session::Session;
use crate::accounts::describe_user;
use crate::hosting::{HeldHow, Holder};
use crate::settings::SettingsError;
use crate::{ConnectError, FindError};
use atomdir_disk::{Errno, io_reason};
use atomdir_types::{ChangedBy, ConflictKind, conflicts_message};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no store, or it is not trusted.
    #[error(transparent)]
    Find(#[from] FindError),
    /// Another process has the store open.
    #[error("{} has the store '{store}' open{how}", describe_holder(holder))]
    Held {
        /// The store's root.
        store: PathBuf,
        /// `None` if the process cannot be found, for example in another process namespace.
        holder: Option<Holder>,
        /// When it gives the store up.
        how: HeldHow,
    },
    /// Only the owner of a store can open it in a process, and no service runs for it.
    #[error("the store '{store}' belongs to {}; only they can open it in a process of their own", describe_user(*owner))]
    NotOwner {
        /// The store's root.
        store: PathBuf,
        /// The numeric id of the owner.
        owner: u32,
    },
    /// Others than the owner can write in the control directory.
    #[error("'{control}' can be written by others than its owner, so it cannot be trusted")]
    WritableByOthers {
        /// The control directory.
        control: PathBuf,
    },
    /// The store's service cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The store is damaged, or cannot be recovered now.
    #[error("cannot open the store '{store}': {error}")]
    Store {
        /// The store's root.
        store: PathBuf,
        /// The fault.
        error: StoreError,
    },
    /// A system call failed.
    #[error("cannot open the store '{store}': {operation}: {}", io_reason(cause))]
    Io {
        /// The store's root.
        store: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// How it failed.
        cause: io::Error,
    },
}

/// Why a store takes no transactions or changes at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// After a flush or the application of a commit has failed, nothing can be changed until
    /// the store is opened anew, which recovers it.
    #[error("{0}")]
    Poisoned(String),
    /// An obstacle keeps an earlier commit from the base. It is durable, or it was lazy and is set
    /// aside: its transaction is open again, and the store tries to commit it again.
    #[error("{0}")]
    Stalled(String),
    /// The store's directory was removed.
    #[error("the store's directory was removed, so nothing can be committed to it")]
    Removed,
    /// The file system is mounted read-only.
    #[error("the file system has the store mounted read-only")]
    ReadOnly,
    /// The process was forked after it had opened the store. Only the process that opened a
    /// store can use it.
    #[error(
        "the store was opened by process {opener}, of which this process is a fork; open it here again"
    )]
    Forked {
        /// The process that opened it.
        opener: u32,
    },
    /// The store cannot be closed: clones of it or transactions are left.
    #[error("the store is still in use in this process")]
    InUse,
    /// The service cannot be reached any more. It aborts the open transactions.
    #[error("{0}")]
    Lost(String),
    /// The store was closed.
    #[error("the store was closed")]
    Closed,
    /// The store was handed over to another process, and cannot be opened again now.
    #[error("the store was handed over to others and cannot be opened again: {0}")]
    NotReopened(String),
    /// Only a service keeps transactions open when programs end, and remembers how they ended; this
    /// program has the store open in its own process.
    #[error(
        "only a store's service keeps transactions open and remembers how they ended: open the store \
         by its service"
    )]
    NeedsService,
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// Why a transaction could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BeginError {
    /// The transaction in which it would be nested, or whose fork it would be, has ended.
    #[error("the first transaction has ended")]
    Ended,
    /// The service has begun it, and this process cannot open its view.
    #[error("the transaction's view cannot be opened: {}", io_reason(.0))]
    View(io::Error),
    /// The store takes no transactions now.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a savepoint could not be set or restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SavepointError {
    /// There is none of that name.
    #[error("the transaction has no savepoint of that name")]
    NoSuchSavepoint,
    /// Files are open in the transaction, and would show what no longer is.
    #[error("{count} files are open in the transaction; close them first")]
    FilesOpen {
        /// How many.
        count: usize,
    },
    /// The transaction has ended.
    #[error("the transaction has ended")]
    Ended,
    /// The present state cannot be kept.
    #[error("cannot keep the present state: {}", io_reason(.0))]
    Io(io::Error),
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why locks were not granted. The transaction stays open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Others held locks for too long or wait for this transaction in turn, or what was to be
    /// locked has changed since the transaction began.
    #[error("{reason}")]
    Conflict {
        /// Which of these it is.
        reason: String,
        /// The things that are locked or have changed, and by whom.
        conflicts: Vec<Conflict>,
    },
    /// There is nothing at a path, or it may not be locked.
    #[error("cannot lock '{}': {}", path.display(), io_reason(cause))]
    Path {
        /// The path as it was given.
        path: PathBuf,
        /// How it failed.
        cause: io::Error,
    },
    /// The transaction has ended.
    #[error("the transaction has ended")]
    Ended,
    /// The store refused it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an operation on a file or directory failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Another open transaction has written the same part, and this one has asked for early
    /// conflicts. It can only be aborted.
    #[error("cannot {operation} '{}': {}", path.display(), conflicts_message(conflicts))]
    Conflict {
        /// The operation that failed.
        operation: &'static str,
        /// The path as it was given.
        path: PathBuf,
        /// All conflicts that the transaction has met so far.
        conflicts: Vec<Conflict>,
    },
    /// The path leaves the store, by `..`, by a symbolic link, or because it is absolute.
    #[error("cannot {operation} '{}': the path leaves the store", path.display())]
    Outside {
        /// The operation that failed.
        operation: &'static str,
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file system or the view refused it.
    #[error("cannot {operation} '{}': {}", path.display(), io_reason(cause))]
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The path as it was given.
        path: PathBuf,
        /// How it failed.
        cause: io::Error,
    },
}

impl FileError {
    /// The error for a failure that the transaction's own file system has reported.
    pub(super) fn of(
        session: &dyn Session,
        operation: &'static str,
        path: &Path,
        errno: Errno,
    ) -> FileError {
        let path = path.to_owned();
        let conflicts = match errno {
            Errno::BUSY => session.met(),
            _ => Vec::new(),
        };
        match errno {
            Errno::XDEV => FileError::Outside { operation, path },
            _ if !conflicts.is_empty() => FileError::Conflict {
                operation,
                path,
                conflicts,
            },
            errno => FileError::Io {
                operation,
                path,
                cause: errno.into(),
            },
        }
    }

    /// The error of an operation that uses open files.
    pub(super) fn of_file(operation: &'static str, path: &Path, cause: io::Error) -> FileError {
        cause.downcast().unwrap_or_else(|cause| FileError::Io {
            operation,
            path: path.to_owned(),
            cause,
        })
    }

    /// The kind of error, as `std::fs` would report it.
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            FileError::Conflict { .. } => io::ErrorKind::ResourceBusy,
            FileError::Outside { .. } => io::ErrorKind::CrossesDevices,
            FileError::Io { cause, .. } => cause.kind(),
        }
    }

    /// Whether there is nothing at the path.
    pub fn is_not_found(&self) -> bool {
        self.kind() == io::ErrorKind::NotFound
    }

    /// Whether another transaction is in the way, so that a new transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, FileError::Conflict { .. })
    }

    /// The number of the error that the system call would have returned.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            FileError::Conflict { .. } => Some(Errno::BUSY.raw_os_error()),
            FileError::Outside { .. } => Some(Errno::XDEV.raw_os_error()),
            FileError::Io { cause, .. } => cause.raw_os_error(),
        }
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// A part of the store that the transaction has written, or that a serializable one has read,
/// and that somebody else has changed since the transaction began. A
/// [`client::Conflict`](crate::client::Conflict) is the same, with the path as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The path, relative to the store's root.
    pub path: PathBuf,
    /// What has happened there.
    pub what: ConflictKind,
    /// The author of the change.
    pub by: ChangedBy,
}

impl Conflict {
    /// Conflicts as the engine and the service list them.
    pub(crate) fn all(found: Vec<atomdir_types::Conflict>) -> Vec<Conflict> {
        let found = found.into_iter().map(|conflict| Conflict {
            path: OsString::from_vec(conflict.path).into(),
            what: conflict.what,
            by: conflict.by,
        });
        found.collect()
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { path, what, by } = self;
        write!(formatter, "'{}': {what} {by}", path.display())
    }
}

/// Why a commit failed. Unless it is [`Logged`](CommitError::Logged), the base is untouched, and
/// [`Transaction::try_commit`](crate::Transaction::try_commit) gives the transaction back, still
/// open unless it had [`Ended`](CommitError::Ended). [`Transaction::commit`](crate::Transaction::commit)
/// aborts it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// Others have changed what the transaction has written or, if it is serializable, read.
    #[error("{}", conflicts_message(conflicts))]
    Conflict {
        /// Each part that is in conflict.
        conflicts: Vec<Conflict>,
    },
    /// Texts that were to be merged line by line could not be, and stay in conflict.
    #[error("{}", not_merged_message(not_merged))]
    NotMerged {
        /// Each conflict that was to be merged and was not.
        not_merged: Vec<NotMerged>,
    },
    /// There was not enough space, or a quota is used up.
    #[error("{0}")]
    NoSpace(String),
    /// Another program holds a lease on a file and has not given it back.
    #[error("{0}")]
    Leased(String),
    /// The base or the staging directory refused something.
    #[error("{0}")]
    Io(String),
    /// Others use the transaction, or another one is nested in it and still open.
    #[error("{0}")]
    InUse(String),
    /// The store refused it, for a reason that it gives in words. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The transaction has ended.
    #[error("the transaction has ended")]
    Ended,
    /// Something failed after the commit was appended to the log. When the store is opened the
    /// next time, recovery decides whether the commit has happened.
    #[error(transparent)]
    Logged(StoreError),
    /// The store takes no commits now.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CommitError {
    /// Whether others are in the way, so that a new transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self,
            CommitError::Conflict { .. } | CommitError::NotMerged { .. }
        )
    }
}

/// Any error of this library, for functions that do several things and for
/// [`Store::run`](crate::Store::run).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A transaction could not begin.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// An operation in a transaction failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A commit failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A savepoint could not be set or restored.
    #[error(transparent)]
    Savepoint(#[from] SavepointError),
    /// Locks were not granted.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Commits could not be undone.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The settings could not be read or changed.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The store refused something else.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Reading or writing an open file failed, and no conflict was the reason.
    #[error("{}", io_reason(.0))]
    Io(io::Error),
    /// An error of the program's own, for which the transaction is to be aborted.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

/// An error of an open file may contain a [`FileError`].
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<FileError>() {
            Ok(error) => Error::File(error),
            Err(error) => Error::Io(error),
        }
    }
}

impl Error {
    /// An error of the program's own, for which the transaction is to be aborted.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::Other(error.into())
    }

    /// Whether others are in the way, so that a new transaction may succeed.
    pub fn is_conflict(&self) -> bool {
        match self {
            Error::File(error) => error.is_conflict(),
            Error::Commit(error) => error.is_conflict(),
            Error::Lock(error) => matches!(error, LockError::Conflict { .. }),
            _ => false,
        }
    }
}

fn describe_holder(holder: &Option<Holder>) -> String {
    match holder {
        Some(holder) => holder.to_string(),
        None => "another process".to_owned(),
    }
}
