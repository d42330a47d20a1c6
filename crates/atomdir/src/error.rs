//! The client's errors, one type for each operation.

mod connect;
mod find;
mod init;

pub use connect::ConnectError;
pub use find::FindError;
pub use init::InitError;

use crate::connection::Parts;
use crate::view_root::ViewRootError;
use atomdir_disk::reason;
use atomdir_protocol::frame::FrameError;
use atomdir_protocol::{Conflict, Failure, FailureKind};
use rustix::io::Errno;
use std::path::PathBuf;

/// Why the service did not fulfil a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The service refused the request.
    #[error("{0}")]
    Failed(Failure),
    /// The service has ended.
    #[error("the service of the store '{store}' has gone; its open transactions are aborted")]
    Disconnected {
        /// The store's root.
        store: PathBuf,
    },
    /// A system call failed.
    #[error("lost the service of the store '{store}': {errno}", errno = reason(errno))]
    Io {
        /// The store's root.
        store: PathBuf,
        /// The error of the system.
        errno: Errno,
    },
    /// The answer cannot be read.
    #[error("the service of the store '{store}' sent something unexpected: {source}")]
    Malformed {
        /// The store's root.
        store: PathBuf,
        /// The fault.
        source: FrameError,
    },
    /// The answer belongs to another question.
    #[error("the service of the store '{store}' answered another question than was asked")]
    Unexpected {
        /// The store's root.
        store: PathBuf,
    },
    /// The request is too long to be sent.
    #[error("the request cannot be sent: {0}")]
    TooLong(FrameError),
    /// The answer would take too much memory.
    #[error(
        "the service of the store '{store}' sent an answer that takes more than {memory_max} bytes \
         of memory"
    )]
    TooMuch {
        /// The store's root.
        store: PathBuf,
        /// The limit.
        memory_max: usize,
    },
    /// The view is not one that the caller can trust.
    #[error("the service of the store '{store}' gave a view that cannot be entered: {source}")]
    View {
        /// The store's root.
        store: PathBuf,
        /// The fault.
        source: ViewRootError,
    },
}

impl RequestError {
    /// The kind of failure that the service reported.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            RequestError::Failed(failure) => Some(failure.kind),
            _ => None,
        }
    }
}

/// Why a commit failed, or a request for a lock or an undo.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The transaction is still open.
    #[error("{failure}")]
    Conflict {
        /// What others have changed.
        conflicts: Vec<Conflict>,
        /// The service's message.
        failure: Failure,
    },
    /// The request failed otherwise.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl CommitError {
    /// `parts` came before the failure.
    pub(crate) fn new(error: RequestError, parts: Parts) -> CommitError {
        match error {
            RequestError::Failed(failure) if failure.kind == FailureKind::Conflict => {
                CommitError::Conflict {
                    conflicts: parts.conflicts,
                    failure,
                }
            }
            error => error.into(),
        }
    }

    /// Whether others work in the transaction, or one is nested in it.
    pub fn is_in_use(&self) -> bool {
        self.kind() == Some(FailureKind::InUse)
    }

    /// Whether a program holds a lease on one of the transaction's files.
    pub fn is_leased(&self) -> bool {
        self.kind() == Some(FailureKind::Leased)
    }

    /// Whether the commit is in the log, and the transaction has ended. Recovery will
    /// show whether the commit landed.
    pub fn is_logged(&self) -> bool {
        self.kind() == Some(FailureKind::Logged)
    }

    /// The kind of failure that the service reported.
    pub fn kind(&self) -> Option<FailureKind> {
        match self {
            CommitError::Conflict { failure, .. } => Some(failure.kind),
            CommitError::Request(error) => error.kind(),
        }
    }
}
