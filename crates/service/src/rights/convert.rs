//! Converts the engine's reports into the form that a peer may see.

use crate::rights::discretion;
use crate::rights::permissions::Peer;
use atomdir_engine as engine;
use atomdir_format::notice::EndedNotice;
use atomdir_protocol::{
    CommitSummary, Conflict, EndedTransaction, Failure, FailureKind, TransactionId,
};
use rustix::io::Errno;

/// Labels hold command lines, so only their owner and root may see them.
pub(crate) fn conflict(mut conflict: Conflict, labels_visible: bool) -> Conflict {
    if !labels_visible {
        conflict.by.hide_label();
    }
    conflict
}

pub(crate) fn commit_summary(mut summary: CommitSummary, peer: &Peer) -> CommitSummary {
    if visible_label(&summary, peer).is_empty() {
        summary.label.clear();
    }
    summary
}

/// The label of a commit, as far as the peer may see it.
pub(crate) fn visible_label<'a>(summary: &'a CommitSummary, peer: &Peer) -> &'a [u8] {
    match peer.may_use(summary.user) || peer.may_administer() {
        true => &summary.label,
        false => &[],
    }
}

pub(crate) fn ended(ended: EndedNotice) -> EndedTransaction {
    EndedTransaction {
        transaction: TransactionId(ended.open.transaction),
        owner: ended.open.user,
        label: ended.open.label,
        began: ended.open.began,
        ended: ended.ended,
        how: ended.how,
        changes: ended.changes,
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
        engine::BeginError::Upper(_) => unreadable(error),
        _ => Failure::new(FailureKind::Internal, error.to_string()),
    }
}

pub(crate) fn fork_failure(error: &engine::ForkError, peer: &Peer) -> Failure {
    match error {
        engine::ForkError::Store(error) => store_failure(error, peer),
        engine::ForkError::Upper(Errno::NOSPC | Errno::DQUOT)
        | engine::ForkError::Copies(Errno::NOSPC | Errno::DQUOT) => {
            Failure::new(FailureKind::NoSpace, error.to_string())
        }
        engine::ForkError::Upper(_) => unreadable(error),
        engine::ForkError::Copies(_) => Failure::new(FailureKind::Io, error.to_string()),
        _ => Failure::new(FailureKind::Internal, error.to_string()),
    }
}

/// The failure to read what was changed in a native view.
fn unreadable(error: &impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Io, error.to_string()).with_hint(
        "a file or directory that its owner cannot read is in the way; run the outermost command \
         with `--view exact`",
    )
}

/// The failure for an operation that a native view does not support.
pub(crate) fn native_failure(error: &impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::NoViews, error.to_string()).with_hint(
        "run the outermost command with `--view exact`, or with ATOMDIR_VIEW=exact in the \
         environment; `atomdir config view exact` makes that the store's default",
    )
}

/// A path relative to the store's root, for a message.
pub(crate) fn quoted(path: &[u8]) -> String {
    match path {
        b"" => "the store's root".to_owned(),
        path => format!("'{}'", String::from_utf8_lossy(path).escape_debug()),
    }
}
