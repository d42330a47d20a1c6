//! The engine's errors and reports in the library's terms.

use super::session::Engine;
use crate::api::{
    BeginError, CommitError, Conflict, Metadata, SavepointError, StoreError, UndoError,
};
use crate::hosting::with_remedy;
use atomdir_engine as engine;
use atomdir_protocol::Committed;

pub(super) fn store_error(error: engine::StoreError) -> StoreError {
    match error {
        engine::StoreError::Poisoned { .. } => StoreError::Poisoned(with_remedy(&error)),
        engine::StoreError::Stalled(_) => StoreError::Stalled(error.to_string()),
        engine::StoreError::Removed => StoreError::Removed,
        engine::StoreError::ReadOnly => StoreError::ReadOnly,
        error => StoreError::Other(with_remedy(&error)),
    }
}

pub(super) fn begin_error(error: engine::BeginError) -> BeginError {
    match error {
        engine::BeginError::Ended => BeginError::Ended,
        engine::BeginError::Store(error) => BeginError::Store(store_error(error)),
        error => BeginError::Store(StoreError::Other(error.to_string())),
    }
}

/// The options of a transaction that is nested in this one, or a fork of it.
pub(super) fn options_of_another(of: &Engine) -> engine::BeginOptions {
    engine::BeginOptions {
        owner: of.owner(),
        isolation: of.isolation(),
        durability: of.durability(),
        conflicts: of.conflicts(),
        first_try: None,
        label: Vec::new(),
    }
}

pub(super) fn fork_error(error: engine::ForkError) -> BeginError {
    match error {
        engine::ForkError::Ended => BeginError::Ended,
        engine::ForkError::Store(error) => BeginError::Store(store_error(error)),
        error => BeginError::Store(StoreError::Other(error.to_string())),
    }
}

pub(super) fn savepoint_error(error: engine::SavepointError) -> SavepointError {
    match error {
        engine::SavepointError::Ended => SavepointError::Ended,
        engine::SavepointError::NoSuchSavepoint => SavepointError::NoSuchSavepoint,
        engine::SavepointError::Staging(errno) => SavepointError::Io(errno.into()),
        error => SavepointError::Store(StoreError::Other(error.to_string())),
    }
}

pub(super) fn commit_error(error: engine::CommitError) -> CommitError {
    match error {
        engine::CommitError::Conflict(conflicts) => CommitError::Conflict {
            conflicts: Conflict::all(conflicts),
        },
        engine::CommitError::Ended => CommitError::Ended,
        engine::CommitError::Nested { .. } => CommitError::InUse(error.to_string()),
        engine::CommitError::NoSpace { .. } => CommitError::NoSpace(error.to_string()),
        engine::CommitError::Leased { .. } => CommitError::Leased(error.to_string()),
        engine::CommitError::Io { .. } => CommitError::Io(error.to_string()),
        engine::CommitError::Logged(error) => CommitError::Logged(store_error(error)),
        engine::CommitError::Store(error) => CommitError::Store(store_error(error)),
        error => CommitError::Refused(error.to_string()),
    }
}

pub(super) fn drop_error(error: engine::DropError) -> CommitError {
    match error {
        engine::DropError::Ended => CommitError::Ended,
        engine::DropError::Nested { .. } => CommitError::InUse(error.to_string()),
        engine::DropError::Staging(_) => CommitError::Io(error.to_string()),
        error => CommitError::Refused(error.to_string()),
    }
}

pub(super) fn refresh_error(error: engine::RefreshError) -> CommitError {
    match error {
        engine::RefreshError::Commit(error) => commit_error(error),
        error => CommitError::Refused(error.to_string()),
    }
}

pub(super) fn committed(committed: engine::Committed) -> Committed {
    Committed {
        confirm_ms: None,
        forgets_early: None,
        sequence: committed.sequence,
        changes: committed.changes,
        stalled: committed.stalled.map(|stalled| stalled.to_string()),
    }
}

pub(super) fn undo_error(error: engine::UndoError) -> UndoError {
    match error {
        engine::UndoError::Conflict(conflicts) => UndoError::Conflict {
            conflicts: Conflict::all(conflicts),
        },
        engine::UndoError::NotKept(_)
        | engine::UndoError::NotYet(_)
        | engine::UndoError::Absent { .. }
        | engine::UndoError::Untouched { .. } => UndoError::NotKept(error.to_string()),
        engine::UndoError::Begin(error) => UndoError::Begin(begin_error(error)),
        engine::UndoError::Store(error) => UndoError::Begin(store_error(error).into()),
        error => UndoError::Refused(error.to_string()),
    }
}

pub(super) fn confirm_error(error: engine::ConfirmError) -> UndoError {
    match error {
        engine::ConfirmError::NoSuchCommit(_) | engine::ConfirmError::NotWaiting(_) => {
            UndoError::NotKept(error.to_string())
        }
        engine::ConfirmError::Store(error) => UndoError::Begin(store_error(error).into()),
        error => UndoError::Refused(error.to_string()),
    }
}

pub(super) fn annotate_error(error: engine::AnnotateError) -> UndoError {
    match error {
        engine::AnnotateError::NoSuchCommit(_) | engine::AnnotateError::NotKept(_) => {
            UndoError::NotKept(error.to_string())
        }
        engine::AnnotateError::Store(error) => UndoError::Begin(store_error(error).into()),
        error => UndoError::Refused(error.to_string()),
    }
}

pub(super) fn metadata(attributes: engine::NodeAttributes) -> Metadata {
    Metadata {
        kind: attributes.kind,
        mode: attributes.mode,
        len: attributes.length,
        links: attributes.links,
        user: attributes.owner.user,
        group: attributes.owner.group,
        inode: attributes.inode,
        device_number: attributes.device_number,
        blocks: attributes.blocks,
        accessed: attributes.accessed.into(),
        modified: attributes.modified.into(),
        changed: attributes.changed.into(),
    }
}
