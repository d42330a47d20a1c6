//! Converts the engine's types to the protocol's.

use crate::discretion;
use crate::permissions::Peer;
use atomdir_engine as engine;
use atomdir_format::notice::{self, EndedNotice};
use atomdir_format::record;
use atomdir_protocol::{
    Change, ChangeLine, ChangedBy, CommitAuthor, CommitSummary, Conflict, ConflictPart, Conflicts,
    Durability, EndedHow, EndedTransaction, Failure, FailureKind, HistoryStatus, Isolation, Kind,
    MergeStep, RecoveryReport, Sequence, Side, Timestamp, TransactionId,
};

pub(crate) fn history(status: engine::HistoryStatus) -> HistoryStatus {
    HistoryStatus {
        commits: status.commits,
        bytes: status.bytes,
        oldest: status
            .oldest
            .map(|(sequence, made)| (Sequence(sequence.0), timestamp(made))),
    }
}

pub(crate) fn timestamp(time: atomdir_disk::Timestamp) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

pub(crate) fn kind(kind: atomdir_disk::Kind) -> Kind {
    match kind {
        atomdir_disk::Kind::File => Kind::File,
        atomdir_disk::Kind::Directory => Kind::Directory,
        atomdir_disk::Kind::Symlink => Kind::Symlink,
        atomdir_disk::Kind::Fifo => Kind::Fifo,
        atomdir_disk::Kind::Socket => Kind::Socket,
        atomdir_disk::Kind::CharacterDevice => Kind::CharacterDevice,
        atomdir_disk::Kind::BlockDevice => Kind::BlockDevice,
    }
}

pub(crate) fn side_to_engine(side: Side) -> engine::Side {
    match side {
        Side::Snapshot => engine::Side::Snapshot,
        Side::Newest => engine::Side::Newest,
    }
}

pub(crate) fn isolation_to_engine(isolation: Isolation) -> engine::Isolation {
    match isolation {
        Isolation::Snapshot => engine::Isolation::Snapshot,
        Isolation::Serializable => engine::Isolation::Serializable,
    }
}

pub(crate) fn isolation(isolation: engine::Isolation) -> Isolation {
    match isolation {
        engine::Isolation::Snapshot => Isolation::Snapshot,
        engine::Isolation::Serializable => Isolation::Serializable,
    }
}

pub(crate) fn durability_to_engine(durability: Durability) -> engine::Durability {
    match durability {
        Durability::Durable => engine::Durability::Durable,
        Durability::Lazy => engine::Durability::Lazy,
    }
}

pub(crate) fn durability(durability: engine::Durability) -> Durability {
    match durability {
        engine::Durability::Durable => Durability::Durable,
        engine::Durability::Lazy => Durability::Lazy,
    }
}

pub(crate) fn conflicts_to_engine(conflicts: Conflicts) -> engine::Conflicts {
    match conflicts {
        Conflicts::AtCommit => engine::Conflicts::AtCommit,
        Conflicts::Early => engine::Conflicts::Early,
    }
}

pub(crate) fn conflicts(conflicts: engine::Conflicts) -> Conflicts {
    match conflicts {
        engine::Conflicts::AtCommit => Conflicts::AtCommit,
        engine::Conflicts::Early => Conflicts::Early,
    }
}

pub(crate) fn change_line(line: record::SummaryLine) -> ChangeLine {
    let change = match line.change {
        record::Change::Added => Change::Added,
        record::Change::Modified => Change::Modified,
        record::Change::Deleted => Change::Deleted,
        record::Change::Renamed => Change::Renamed,
        record::Change::TypeChanged => Change::TypeChanged,
    };
    ChangeLine {
        change,
        path: line.path,
        from: line.from,
    }
}

/// Labels hold command lines, so only their owner and root may see them.
pub(crate) fn conflict(conflict: engine::Conflict, labels_visible: bool) -> Conflict {
    let by = match conflict.by {
        engine::ChangedBy::Commit { sequence, author } => ChangedBy::Commit {
            sequence: Sequence(sequence.0),
            author: author.map(|author| CommitAuthor {
                transaction: TransactionId(author.transaction.0),
                label: if labels_visible {
                    author.label
                } else {
                    Vec::new()
                },
            }),
        },
        engine::ChangedBy::Open { transaction, label } => ChangedBy::Open {
            transaction: TransactionId(transaction.0),
            label: if labels_visible { label } else { Vec::new() },
        },
        engine::ChangedBy::Outside => ChangedBy::Outside,
        engine::ChangedBy::Outer { transaction } => ChangedBy::Outer {
            transaction: TransactionId(transaction.0),
        },
    };
    Conflict {
        path: conflict.path,
        what: conflict.what.to_string(),
        part: match conflict.what {
            engine::ConflictKind::Contents => ConflictPart::Contents,
            engine::ConflictKind::Attributes => ConflictPart::Attributes,
            engine::ConflictKind::Entry => ConflictPart::Entry,
            _ => ConflictPart::Other,
        },
        by,
    }
}

pub(crate) fn merge_step(step: engine::Step) -> MergeStep {
    match step {
        engine::Step::Remove { path, is_directory } => MergeStep::Remove { path, is_directory },
        engine::Step::Park { path, place } => MergeStep::Park { path, place },
        engine::Step::Place { path, place } => MergeStep::Place { path, place },
        engine::Step::Link { path, to } => MergeStep::Link { path, to },
        engine::Step::Create { path } => MergeStep::Create { path },
        engine::Step::Dress {
            path,
            contents,
            attributes,
        } => MergeStep::Dress {
            path,
            contents,
            attributes,
        },
    }
}

pub(crate) fn commit_summary(commit: &engine::CommitSummary, peer: &Peer) -> CommitSummary {
    let mut summary = whole_summary(commit);
    if !peer.may_use(commit.user) && !peer.may_administer() {
        summary.label.clear();
    }
    summary
}

pub(crate) fn whole_summary(commit: &engine::CommitSummary) -> CommitSummary {
    CommitSummary {
        sequence: Sequence(commit.sequence.0),
        transaction: TransactionId(commit.transaction.0),
        time: timestamp(commit.time),
        user: commit.user,
        label: commit.label.clone(),
        changes: commit.lines.len() as u64,
    }
}

pub(crate) fn recovery(report: &engine::RecoveryReport) -> RecoveryReport {
    RecoveryReport {
        commits_replayed: report.commits_replayed,
        bytes_replayed: report.bytes_replayed,
        transactions_discarded: report.discarded.len() as u64,
        torn_tail_bytes: report.torn_tail_bytes,
    }
}

pub(crate) fn ended(ended: EndedNotice) -> EndedTransaction {
    EndedTransaction {
        transaction: TransactionId(ended.open.transaction),
        owner: ended.open.user,
        label: ended.open.label,
        began: timestamp(ended.open.began),
        ended: timestamp(ended.ended),
        how: ended_how(ended.how),
        changes: ended.changes,
    }
}

pub(crate) fn ended_how(how: notice::EndedHow) -> EndedHow {
    match how {
        notice::EndedHow::Aborted { by } => EndedHow::Aborted { by },
        notice::EndedHow::Age { age_ms } => EndedHow::Age { age_ms },
        notice::EndedHow::Stopped { by } => EndedHow::Stopped { by },
        notice::EndedHow::Died => EndedHow::Died,
    }
}

pub(crate) fn store_failure(error: &engine::StoreError, peer: &Peer) -> Failure {
    let kind = match error {
        engine::StoreError::Poisoned { .. } => FailureKind::Poisoned,
        engine::StoreError::Stalled(_) => FailureKind::Stalled,
        _ => FailureKind::Io,
    };
    Failure::new(kind, discretion::store_error(error, peer))
}

pub(crate) fn begin_failure(error: &engine::BeginError, peer: &Peer) -> Failure {
    match error {
        engine::BeginError::Store(error) => store_failure(error, peer),
        engine::BeginError::Upper(_) => Failure::new(FailureKind::Io, error.to_string()).with_hint(
            "a file or directory that its owner cannot read is in the way; run the outermost command \
             with `--view exact`",
        ),
        _ => Failure::new(FailureKind::Internal, error.to_string()),
    }
}

/// The failure for what a native view cannot do.
pub(crate) fn native_failure(error: &impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::NoViews, error.to_string()).with_hint(
        "run the outermost command with `--view exact`, or with ATOMDIR_VIEW=exact in the \
         environment; `atomdir config view exact` makes that the store's default",
    )
}
