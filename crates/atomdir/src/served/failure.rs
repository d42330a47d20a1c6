//! Converts failures of the service and of the connection to the library's errors.

use crate::api::{
    BeginError, CommitError, Conflict, LockError, SavepointError, StoreError, UndoError,
};
use crate::error::RequestError;
use crate::{ConnectError, client};
use atomdir_disk::Errno;
use atomdir_protocol::{Failure, FailureKind};

pub(super) fn store(error: RequestError) -> StoreError {
    match error {
        RequestError::Failed(failure) => match failure.kind {
            FailureKind::Poisoned => StoreError::Poisoned(failure.message),
            FailureKind::Stalled => StoreError::Stalled(failure.message),
            _ => StoreError::Other(failure.message),
        },
        error => StoreError::Lost(error.to_string()),
    }
}

pub(super) fn connect(error: ConnectError) -> StoreError {
    StoreError::Lost(error.to_string())
}

pub(super) fn begin_connect(error: ConnectError) -> BeginError {
    BeginError::Store(connect(error))
}

pub(super) fn begin(error: RequestError) -> BeginError {
    match error.kind() {
        Some(FailureKind::NoSuchTransaction) => BeginError::Ended,
        _ => BeginError::Store(store(error)),
    }
}

/// The view of a transaction that has just begun cannot be opened.
pub(super) fn view(errno: Errno) -> BeginError {
    BeginError::View(errno.into())
}

pub(super) fn savepoint(error: RequestError) -> SavepointError {
    match error.kind() {
        Some(FailureKind::NoSuchSavepoint) => SavepointError::NoSuchSavepoint,
        Some(FailureKind::NoSuchTransaction) => SavepointError::Ended,
        _ => SavepointError::Store(store(error)),
    }
}

pub(super) fn lock(error: client::CommitError) -> LockError {
    match error {
        client::CommitError::Conflict {
            conflicts: found,
            failure,
        } => LockError::Conflict {
            reason: failure.message,
            conflicts: Conflict::all(found),
        },
        client::CommitError::Request(error) => match error.kind() {
            Some(FailureKind::NoSuchTransaction) => LockError::Ended,
            _ => LockError::Store(store(error)),
        },
    }
}

pub(super) fn undo(error: client::CommitError) -> UndoError {
    match error {
        client::CommitError::Conflict {
            conflicts: found, ..
        } => UndoError::Conflict {
            conflicts: Conflict::all(found),
        },
        client::CommitError::Request(RequestError::Failed(failure)) => match failure.kind {
            FailureKind::NoSuchCommit => UndoError::NotKept(failure.message),
            FailureKind::Poisoned | FailureKind::Stalled => {
                UndoError::Begin(store(RequestError::Failed(failure)).into())
            }
            _ => UndoError::Refused(failure.message),
        },
        client::CommitError::Request(error) => UndoError::Begin(store(error).into()),
    }
}

pub(super) fn commit(error: client::CommitError) -> CommitError {
    match error {
        client::CommitError::Conflict {
            conflicts: found, ..
        } => CommitError::Conflict {
            conflicts: Conflict::all(found),
        },
        client::CommitError::Request(RequestError::Failed(failure)) => commit_failure(failure),
        client::CommitError::Request(error) => CommitError::Store(store(error)),
    }
}

fn commit_failure(failure: Failure) -> CommitError {
    match failure.kind {
        FailureKind::NoSuchTransaction => CommitError::Ended,
        FailureKind::Logged => CommitError::Logged(StoreError::Other(failure.message)),
        FailureKind::NoSpace => CommitError::NoSpace(failure.message),
        FailureKind::Leased => CommitError::Leased(failure.message),
        FailureKind::Io => CommitError::Io(failure.message),
        FailureKind::InUse | FailureKind::Nested => CommitError::InUse(failure.message),
        FailureKind::Poisoned | FailureKind::Stalled => {
            CommitError::Store(store(RequestError::Failed(failure)))
        }
        _ => CommitError::Refused(failure.message),
    }
}
