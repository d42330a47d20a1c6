//! Transactions that begin with something of the past: undo, and views of it.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::commit::send_conflicts;
use crate::rights::convert;
use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::transactions::Transaction;
use atomdir::hosting::prune_limits;
use atomdir_disk::{LinuxDisk, reason};
use atomdir_engine::{BeginOptions, ChangedBy, CommitError, Conflict, UndoError};
use atomdir_protocol::{
    Answer, Failure, FailureKind, Past, PastView, TransactionId, Undo, ViewChoice,
};
use std::sync::Arc;
use std::time::Duration;

type Shown = atomdir_engine::Past<LinuxDisk>;

/// Refuses impossible or forbidden requests before a transaction is begun. Only the store's owner
/// and root may undo: a commit may be anyone's, and undoing it changes files with the service's
/// rights. Others may not look at the past either: they might not have been allowed to read it
/// then.
pub(crate) fn check(
    begin: &atomdir_protocol::BeginOptions,
    past: Option<&Past>,
    peer: &Peer,
) -> Result<(), Failure> {
    let what = match past {
        None => return Ok(()),
        Some(Past::Undo(_)) => "undo commits",
        Some(Past::View(_)) => "look at the past",
        Some(Past::Restore(_)) => "restore files from the past",
    };
    peer.require_administer(what)?;
    let refused = |message: String| Err(Failure::new(FailureKind::BadRequest, message));
    if begin.outer.is_some() {
        return refused(format!("a transaction within another one cannot {what}"));
    }
    if begin.view != ViewChoice::Exact {
        return refused(format!("to {what} takes an exact view"));
    }
    Ok(())
}

pub(crate) fn begin(
    service: &Service,
    connection: &Connection,
    past: &Past,
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let reported = past.reported();
    let mut as_now = Vec::new();
    let begun = match past {
        Past::Undo(undo) => {
            service
                .store
                .undo_with(&undo.commits, (&undo.paths, &undo.equal), options.clone())
        }
        Past::Restore(restore) => {
            let (commit, paths) = (restore.commit, &restore.paths);
            service.store.restore(commit, paths, options.clone())
        }
        Past::View(view) => match look(service, connection, view, options.clone())? {
            Ok(shown) if shown.not_as_then.is_empty() || view.outside_as_now => {
                as_now = shown.not_as_then;
                Ok(shown.transaction)
            }
            Ok(shown) => {
                service.store.abort(&shown.transaction);
                Err(UndoError::Conflict(shown.not_as_then))
            }
            Err(error) => Err(error),
        },
    };
    let begun = begun.and_then(|transaction| {
        let changed = match reported {
            Some(commits) => service
                .store
                .changed_outside(&transaction, commits, options),
            None => Ok(Vec::new()),
        };
        match changed {
            Ok(changed) => as_now.extend(changed),
            Err(error) => {
                service.store.abort(&transaction);
                return Err(error);
            }
        }
        Ok(transaction)
    });
    let error = match begun {
        Ok(transaction) => return report(service, connection, transaction, (past, as_now)),
        Err(error) => error,
    };
    let message = error.to_string();
    let failure = match error {
        UndoError::Conflict(conflicts) => {
            let count = conflicts.len();
            let is_outside = |one: &Conflict| matches!(one.by, ChangedBy::Outside);
            let outside = conflicts.iter().filter(|one| is_outside(one)).count();
            send_conflicts(service, connection, conflicts)?;
            match past {
                Past::Undo(undo) => conflict_failure(undo, count, outside),
                Past::View(_) => outside_failure(count),
                Past::Restore(_) => unknown_failure(count),
            }
        }
        UndoError::NotKept(_) | UndoError::NotYet(_) => {
            Failure::new(FailureKind::NoSuchCommit, message)
                .with_hint("`atomdir log` lists the commits, `atomdir config` how much is kept")
        }
        UndoError::AlreadyUndone { by, .. } => Failure::new(FailureKind::BadRequest, message)
            .with_hint(format!(
                "leave it out, or bring back what it changed by `atomdir undo {by}`"
            )),
        UndoError::Absent { .. } => Failure::new(FailureKind::NoSuchCommit, message)
            .with_hint("`atomdir at COMMIT -- ls` lists what was there"),
        UndoError::Untouched { .. } => Failure::new(FailureKind::NoSuchCommit, message).with_hint(
            "`atomdir show COMMIT` lists what a commit changed; a part of a directory that a \
                 commit made or removed whole comes and goes with `atomdir restore`",
        ),
        UndoError::Begin(error) => convert::begin_failure(&error, &connection.peer),
        UndoError::Store(error) => convert::store_failure(&error, &connection.peer),
        _ => Failure::new(FailureKind::Io, message),
    };
    Err(failure.into())
}

/// Sends what is shown, or stays, as it is now.
fn report(
    service: &Service,
    connection: &Connection,
    transaction: Arc<Transaction>,
    (past, mut as_now): (&Past, Vec<Conflict>),
) -> Result<Arc<Transaction>, Unanswered> {
    as_now.retain(|one| past.concerns(&one.path));
    as_now.dedup();
    if as_now.is_empty() {
        return Ok(transaction);
    }
    let sent = send_conflicts(service, connection, as_now);
    if let Err(error) = sent {
        service.store.abort(&transaction);
        return Err(error);
    }
    Ok(transaction)
}

fn look(
    service: &Service,
    connection: &Connection,
    view: &PastView,
    options: BeginOptions,
) -> Result<Result<Shown, UndoError>, Failure> {
    let commit = view.commit;
    let Some(beside) = view.beside else {
        return Ok(service.store.past(commit, options));
    };
    let other = service.transactions.find(beside, &connection.peer)?;
    if other.transaction.past().is_none() {
        let message = format!("transaction {beside} is no view of the past");
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    let store = &service.store;
    Ok(store.past_beside(&other.transaction, commit, options))
}

/// Forgets the history of commits older than this, or older than the store's settings say.
pub(crate) fn prune(
    service: &Service,
    peer: &Peer,
    older_than_ms: Option<u64>,
) -> Result<Answer, Failure> {
    peer.require_administer("forget commits")?;
    let age = older_than_ms.map(Duration::from_millis);
    let limits = prune_limits(&service.access.control, age).map_err(|errno| {
        let why = reason(errno);
        let message = format!("cannot find out the store's file system: {why}");
        Failure::new(FailureKind::Io, message)
    })?;
    let pruned = service.store.prune(&limits.now);
    let kept = pruned.map_err(|error| convert::store_failure(&error, peer))?;
    Ok(Answer::History(limits.configured.map(|_| kept)))
}

fn unknown_failure(count: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "nothing is restored: outside writers have changed what commits changed as well, so that \
         it is not known how it was, in {count} {places}"
    );
    Failure::new(FailureKind::Conflict, message)
        .with_hint("name other paths, below or beside these")
}

/// The failure of a commit of a view of the past.
pub(crate) fn read_only(id: TransactionId, error: &CommitError) -> Failure {
    Failure::new(FailureKind::Unsupported, error.to_string())
        .with_hint(format!("`atomdir abort {id}` ends it"))
}

fn outside_failure(count: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "the past cannot be shown: outside writers have changed what commits changed as well, in \
         {count} {places}"
    );
    Failure::new(FailureKind::Conflict, message).with_hint(
        "with --outside-as-now these are shown as they are now, unless outside writers have moved \
         files about",
    )
}

/// `outside`: how many of the conflicts are with outside writers.
fn conflict_failure(undo: &Undo, count: usize, outside: usize) -> Failure {
    let places = if count == 1 { "place" } else { "places" };
    let message = format!(
        "nothing is undone: what it would take back was changed again later, in {count} {places}"
    );
    let mut ways = Vec::new();
    if outside < count {
        ways.push("undo the later commits as well, as in `atomdir undo FIRST..LAST`".to_owned());
    }
    ways.push("undo only some paths: `atomdir undo COMMIT -- PATH`".to_owned());
    if outside > 0 {
        let first = undo.commits.iter().map(|commit| commit.0).min();
        let before = first.map_or(0, |first| first.saturating_sub(1));
        ways.push(format!(
            "replace what outside writers have changed: `atomdir restore {before} -- PATH`, if that \
             is still known"
        ));
    }
    Failure::new(FailureKind::Conflict, message).with_hint(ways.join(", or "))
}
