//! Transactions that take back what earlier commits changed.

use crate::commit::send_conflicts;
use crate::connection::Connection;
use crate::convert;
use crate::permissions::Peer;
use crate::replies::Unanswered;
use crate::service::Service;
use crate::transactions::Transaction;
use atomdir::hosting::history_limits;
use atomdir_disk::reason;
use atomdir_engine::{BeginOptions, HistoryLimits, Sequence, UndoError};
use atomdir_protocol::{Answer, BeginRequest, Failure, FailureKind, Undo, ViewChoice};
use std::sync::Arc;
use std::time::Duration;

/// Refuses what cannot be, before anything is begun. Only the store's owner and root may
/// undo: a commit may be anyone's, and undoing it changes files with the service's rights.
pub(crate) fn check(begin: &BeginRequest, peer: &Peer) -> Result<(), Failure> {
    if begin.undo.is_none() {
        return Ok(());
    }
    peer.require_administer("undo commits")?;
    let refused = |message: &str| Err(Failure::new(FailureKind::BadRequest, message));
    if begin.outer.is_some() {
        return refused("commits cannot be undone within another transaction");
    }
    if begin.view != ViewChoice::Exact {
        return refused("a transaction that undoes commits has an exact view");
    }
    Ok(())
}

pub(crate) fn begin(
    service: &Service,
    connection: &Connection,
    undo: &Undo,
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let commits: Vec<Sequence> = undo.commits.iter().map(|one| Sequence(one.0)).collect();
    let error = match service.store.undo(&commits, &undo.paths, options) {
        Ok(transaction) => return Ok(transaction),
        Err(error) => error,
    };
    let message = error.to_string();
    let failure = match error {
        UndoError::Conflict(conflicts) => {
            let count = conflicts.len();
            send_conflicts(connection, conflicts)?;
            conflict_failure(count)
        }
        UndoError::NotKept(_) => Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir log` lists the commits, `atomdir config` how much is kept"),
        UndoError::Untouched { .. } => Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir show COMMIT` lists what a commit changed"),
        UndoError::Begin(error) => convert::begin_failure(&error, &connection.peer),
        UndoError::Store(error) => convert::store_failure(&error, &connection.peer),
        _ => Failure::new(FailureKind::Io, message),
    };
    Err(failure.into())
}

/// Forgets what is kept of commits older than this, or than the store's settings say.
pub(crate) fn prune(
    service: &Service,
    peer: &Peer,
    older_than_ms: Option<u64>,
) -> Result<Answer, Failure> {
    peer.require_administer("forget commits")?;
    let configured = history_limits(&service.access.control).map_err(|errno| {
        let why = reason(errno);
        let message = format!("cannot find out the store's file system: {why}");
        Failure::new(FailureKind::Io, message)
    })?;
    let none = HistoryLimits {
        age_seconds_max: 0,
        bytes_max: 0,
        free_bytes_min: 0,
    };
    let age = older_than_ms.map(Duration::from_millis);
    let limits = match (configured, age) {
        (None, _) | (_, Some(Duration::ZERO)) => none,
        (Some(limits), None) => limits,
        (Some(limits), Some(age)) => HistoryLimits {
            age_seconds_max: limits.age_seconds_max.min(age.as_secs()),
            ..limits
        },
    };
    let pruned = service.store.prune(&limits);
    let kept = pruned.map_err(|error| convert::store_failure(&error, peer))?;
    Ok(Answer::History(configured.map(|_| convert::history(kept))))
}

fn conflict_failure(count: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "nothing is undone: what it would take back was changed again later, in {count} {places}"
    );
    Failure::new(FailureKind::Conflict, message).with_hint(
        "undo the later commits as well, as in `atomdir undo FIRST..LAST`, or only some paths: \
         `atomdir undo COMMIT -- PATH`",
    )
}
