//! The library's types in the engine's terms, and back.

use crate::api::session::Done;
use crate::api::{
    BeginError, CommitError, Conflict, Metadata, SavepointError, StoreError, UndoError,
};
use crate::api::{kind, system_time};
use atomdir_engine as engine;
use atomdir_protocol::{
    Change, ChangeLine, ChangedBy, CommitAuthor, CommitSummary, Conflicts, Durability, Isolation,
    Sequence, Timestamp, TransactionId,
};

pub(super) fn isolation(isolation: Isolation) -> engine::Isolation {
    match isolation {
        Isolation::Snapshot => engine::Isolation::Snapshot,
        Isolation::Serializable => engine::Isolation::Serializable,
    }
}

pub(super) fn durability(durability: Durability) -> engine::Durability {
    match durability {
        Durability::Durable => engine::Durability::Durable,
        Durability::Lazy => engine::Durability::Lazy,
    }
}

pub(super) fn conflicts(conflicts: Conflicts) -> engine::Conflicts {
    match conflicts {
        Conflicts::AtCommit => engine::Conflicts::AtCommit,
        Conflicts::Early => engine::Conflicts::Early,
    }
}

pub(super) fn conflict(conflict: engine::Conflict) -> Conflict {
    let by = match conflict.by {
        engine::ChangedBy::Commit { sequence, author } => ChangedBy::Commit {
            sequence: Sequence(sequence.0),
            author: author.map(|author| CommitAuthor {
                transaction: TransactionId(author.transaction.0),
                label: author.label,
            }),
        },
        engine::ChangedBy::Open { transaction, label } => ChangedBy::Open {
            transaction: TransactionId(transaction.0),
            label,
        },
        engine::ChangedBy::Outside => ChangedBy::Outside,
        engine::ChangedBy::Outer { transaction } => ChangedBy::Outer {
            transaction: TransactionId(transaction.0),
        },
    };
    Conflict::new(conflict.path, conflict.what.to_string(), by)
}

pub(super) fn store_error(error: engine::StoreError) -> StoreError {
    match error {
        engine::StoreError::Poisoned { .. } => StoreError::Poisoned(error.to_string()),
        engine::StoreError::Stalled(_) => StoreError::Stalled(error.to_string()),
        engine::StoreError::Removed => StoreError::Removed,
        engine::StoreError::ReadOnly => StoreError::ReadOnly,
        error => StoreError::Other(error.to_string()),
    }
}

pub(super) fn begin_error(error: engine::BeginError) -> BeginError {
    match error {
        engine::BeginError::Ended => BeginError::Ended,
        engine::BeginError::Store(error) => BeginError::Store(store_error(error)),
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
            conflicts: conflicts.into_iter().map(conflict).collect(),
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

pub(super) fn refresh_error(error: engine::RefreshError) -> CommitError {
    match error {
        engine::RefreshError::Commit(error) => commit_error(error),
        error => CommitError::Refused(error.to_string()),
    }
}

pub(super) fn done(committed: engine::Committed) -> Done {
    Done {
        sequence: committed.sequence.map(|sequence| Sequence(sequence.0)),
        changes: committed.changes,
        stalled: committed.stalled.map(|stalled| stalled.to_string()),
    }
}

pub(super) fn undo_error(error: engine::UndoError) -> UndoError {
    match error {
        engine::UndoError::Conflict(conflicts) => UndoError::Conflict {
            conflicts: conflicts.into_iter().map(conflict).collect(),
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

pub(super) fn summary(commit: engine::CommitSummary) -> CommitSummary {
    CommitSummary {
        sequence: Sequence(commit.sequence.0),
        transaction: TransactionId(commit.transaction.0),
        time: Timestamp {
            seconds: commit.time.seconds,
            nanoseconds: commit.time.nanoseconds,
        },
        user: commit.user,
        label: commit.label,
        changes: commit.lines.len() as u64,
    }
}

pub(super) fn metadata(attributes: engine::NodeAttributes) -> Metadata {
    Metadata {
        kind: kind(attributes.kind),
        mode: attributes.mode,
        length: attributes.length,
        links: attributes.links,
        user: attributes.owner.user,
        group: attributes.owner.group,
        inode: attributes.inode,
        device_number: attributes.device_number,
        blocks: attributes.blocks,
        accessed: system_time(attributes.accessed),
        modified: system_time(attributes.modified),
        changed: system_time(attributes.changed),
    }
}

pub(super) fn change_line(line: engine::SummaryLine) -> ChangeLine {
    let change = match line.change {
        engine::Change::Added => Change::Added,
        engine::Change::Modified => Change::Modified,
        engine::Change::Deleted => Change::Deleted,
        engine::Change::Renamed => Change::Renamed,
        engine::Change::TypeChanged => Change::TypeChanged,
    };
    ChangeLine {
        change,
        path: line.path,
        from: line.from,
    }
}
