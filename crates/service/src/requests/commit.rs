//! The request to commit, and the failures that its client gets.

use crate::clients::connection::Connection;
use crate::clients::replies::{Unanswered, conflict_length, send_changes, send_one, send_parts};
use crate::clients::socket::Stream;
use crate::requests::annotate;
use crate::requests::conflicts;
use crate::requests::joint;
use crate::requests::parts;
use crate::requests::sharing;
use crate::requests::undo;
use crate::rights::convert;
use crate::rights::discretion;
use crate::rights::permissions::{Peer, no_such_transaction};
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::leases::{self, Arrived, Attempt};
use crate::transactions::refusals;
use crate::transactions::survival;
use crate::views::merges::{self, NotMerged};
use atomdir_engine as engine;
use atomdir_engine::{ChangedBy, CommitError, Conflict, ConflictKind, Isolation, StoreError};
use atomdir_protocol::{
    Answer, CommitRequest, Committed, Failure, FailureKind, Portion, Progress, Reply, TransactionId,
};
use rustix::io::Errno;

/// Commits, and sends the changes that the portion lists.
pub(crate) fn commit(
    service: &Service,
    connection: &Connection,
    asked: &CommitRequest,
) -> Result<Answer, Unanswered> {
    let CommitRequest {
        transaction: id,
        others,
        portion,
    } = asked;
    let (id, others) = (*id, *others);
    let (one, committed) = sharing::when_free(service, connection, id, others, || {
        let one = match portion {
            Portion::Part { label, .. } => {
                annotate::refuse_long(label.as_deref())?;
                sharing::claim_part(service, connection, id, others)?
            }
            _ => sharing::claim(service, connection, id, others)?,
        };
        let committed = match portion {
            Portion::All => commit_all(service, connection, &one)?,
            Portion::Part { paths, label } => {
                let label = label.as_deref();
                let part = engine::Portion::Part { paths, label };
                let committed = commit_portion(service, connection, &one, part)?;
                let owner = one.transaction.owner();
                service.views.forget(owner, id, &committed.outdated);
                committed
            }
            Portion::Sides(sides) => {
                let sides = conflicts::in_list(&one, sides);
                let portion = engine::Portion::Sides(&sides);
                let committed = commit_portion(service, connection, &one, portion)?;
                service.forget(&one);
                committed
            }
        };
        Ok((one, committed))
    })?;
    service.maintenance.wake();
    let answer = answer(service, connection, &one, &committed);
    let listed = committed.landed.into_iter().chain(committed.dropped);
    send_changes(&connection.stream, listed)?;
    Ok(answer)
}

fn commit_all(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
) -> Result<engine::Committed, Unanswered> {
    let id = one.id();
    let outer = one
        .outer()
        .and_then(|outer| service.transactions.get(outer));
    if let Some(outer) = outer.filter(|outer| outer.transaction.is_lower()) {
        let merged = merges::merge(service, connection, one, &outer);
        return merged.or_else(|error| {
            Err(match error {
                NotMerged::PerhapsIncomplete => incomplete_failure(id).into(),
                NotMerged::Refused(error) => failure(service, connection, one, error)?.into(),
                NotMerged::Unanswered(unanswered) => unanswered,
            })
        });
    }
    let committed = commit_portion(service, connection, one, engine::Portion::All)?;
    if let Some(outer) = one.outer() {
        let owner = one.transaction.owner();
        service.views.forget(owner, outer, &committed.outdated);
    }
    service.forget(one);
    Ok(committed)
}

pub(super) fn answer(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    committed: &engine::Committed,
) -> Answer {
    let stalled = committed.stalled.as_ref();
    let (store, transaction) = (&service.store, &one.transaction);
    let is_commit = committed.sequence.is_some();
    Answer::Committed(Committed {
        sequence: committed.sequence,
        changes: committed.changes,
        confirm_ms: transaction.confirm_ms().filter(|_| is_commit),
        forgets_early: store
            .forgets_early(transaction.began())
            .filter(|_| is_commit),
        stalled: stalled.map(|stalled| discretion::stalled(stalled, &connection.peer)),
    })
}

/// Reports progress to the client. If it does not read, we find out when we send the answer. Others wait
/// for this request, so it must not wait for the client.
pub(crate) fn steps_to(stream: &Stream) -> impl FnMut(engine::Progress) {
    move |engine::Progress { done, total }| {
        if stream.has_room() {
            let _ = send_one(stream, &Reply::Progress(Progress::Steps { done, total }));
        }
    }
}

/// Commits so much of it.
fn commit_portion(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    portion: engine::Portion<'_>,
) -> Result<engine::Committed, Unanswered> {
    let (store, transaction) = (&service.store, &one.transaction);
    let is_part = matches!(portion, engine::Portion::Part { .. });
    let newest = || store.status().sequence.0;
    try_commit(service, connection, one, |report| {
        service.notices.before_commit(one.id().0, is_part, newest);
        store.commit_portion(transaction, portion, report)
    })
}

/// Carries out a commit, or the first half of one, once all that programs have written has arrived in the
/// view and no lease is in the way.
pub(super) fn try_commit<T>(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    mut commit: impl FnMut(&mut dyn FnMut(engine::Progress)) -> Result<T, CommitError>,
) -> Result<T, Unanswered> {
    let id = one.id();
    service
        .history
        .heed(&service.access.control, &service.store);
    let stream = &connection.stream;
    let mut report = steps_to(stream);
    let outlasted = leases::outlast(stream, || {
        match service.views.write_back(&one.transaction)? {
            Arrived::All => {}
            Arrived::PerhapsNotAll => return Err(incomplete_failure(id).into()),
            Arrived::NotAllYet => return Ok(Attempt::Leased(None)),
        }
        Ok(match commit(&mut report) {
            Err(CommitError::Leased { step, path }) => Attempt::Leased(Some((step, path))),
            committed => Attempt::Done(committed),
        })
    });
    let error = match outlasted? {
        Attempt::Leased(file) => return Err(leases::failure(id, file).into()),
        Attempt::Done(Ok(committed)) => return Ok(committed),
        Attempt::Done(Err(error)) => error,
    };
    // One that has ended already is forgotten by whoever ended it. It may be listed again by now,
    // because that was a lazy commit, which is set aside.
    match &error {
        CommitError::Logged(_) => service.forget(one),
        _ => survival::forget_aside(service, one),
    }
    Err(failure(service, connection, one, error)?.into())
}

/// What the engine has returned, or the failure of the request.
pub(super) fn or_failure<T>(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    done: Result<T, CommitError>,
) -> Result<T, Unanswered> {
    match done {
        Ok(done) => Ok(done),
        Err(error) => Err(failure(service, connection, one, error)?.into()),
    }
}

/// The failure of a commit; its conflicts are sent before it.
pub(crate) fn failure(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    error: CommitError,
) -> Result<Failure, Unanswered> {
    let id = one.id();
    Ok(match error {
        CommitError::Conflict(conflicts) => {
            let failure = conflict_failure(one, &conflicts);
            send_conflicts(service, connection, conflicts)?;
            failure
        }
        CommitError::Ended => no_such_transaction(id),
        CommitError::Logged(error) => logged_failure(id, &error, &connection.peer),
        CommitError::Nested { nested } => refusals::nested_failure(id, nested),
        CommitError::Io {
            errno: Errno::ACCESS,
            ..
        } => Failure::new(FailureKind::NotPermitted, error.to_string())
            .with_hint("its permissions were taken away from you since the transaction began"),
        CommitError::Io {
            errno: Errno::PERM, ..
        } => Failure::new(FailureKind::NotPermitted, error.to_string()),
        CommitError::Unchanged { .. } => parts::unchanged(id, error.to_string()),
        CommitError::NotListed { .. } => Failure::new(FailureKind::BadRequest, error.to_string())
            .with_hint(format!("`atomdir conflicts {id}` lists and numbers them")),
        CommitError::NotTaken { .. } => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint(format!(
                "take their side there, as `atomdir commit {id} --take-theirs all` does, or change \
                 the transaction first: `atomdir shell {id}`"
            )),
        CommitError::ReadSince { .. } => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint(format!(
                "`atomdir abort {id}` drops its changes; then run its programs again"
            )),
        CommitError::OnlyWhole { .. } => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint(format!("`atomdir commit {id}` commits all of it")),
        CommitError::InDoubt(_) => joint::in_doubt(id, error.to_string()),
        CommitError::Linked(_) => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint(format!("`atomdir commit {id}` commits all of them")),
        CommitError::NoVote(_) => Failure::new(FailureKind::Unsupported, error.to_string()),
        CommitError::Past { .. } => undo::read_only(id, &error),
        CommitError::NoHistory => annotate::no_history(&error),
        CommitError::NoSpace { .. } => Failure::new(FailureKind::NoSpace, error.to_string()),
        CommitError::Store(error) => convert::store_failure(&error, &connection.peer),
        error => Failure::new(FailureKind::Io, error.to_string()),
    })
}

pub(crate) fn send_conflicts(
    service: &Service,
    connection: &Connection,
    conflicts: Vec<Conflict>,
) -> Result<(), Unanswered> {
    let (access, peer) = (&service.access, &connection.peer);
    let conflicts = conflicts
        .into_iter()
        .map(|one| discretion::conflict(access, peer, one, &[]));
    let stream = &connection.stream;
    send_parts(stream, conflicts, conflict_length, Reply::Conflicts)
}

/// The commit is in the log; recovery will show whether it landed.
fn logged_failure(id: TransactionId, error: &StoreError, peer: &Peer) -> Failure {
    let message = discretion::store_error(error, peer);
    Failure::new(FailureKind::Logged, message).with_hint(format!(
        "transaction {id} is in the log: once the cause is removed, `atomdir service stop` and \
         `atomdir recover` finish it"
    ))
}

pub(crate) fn incomplete_failure(id: TransactionId) -> Failure {
    let message = format!(
        "the mount of the views was ended from outside after transaction {id} had begun; \
         some of what its programs wrote may be lost"
    );
    Failure::new(FailureKind::Io, message).with_hint(format!(
        "`atomdir diff {id}` shows what arrived, `atomdir abort {id}` drops it"
    ))
}

fn conflict_failure(one: &OpenTransaction, conflicts: &[Conflict]) -> Failure {
    let id = one.id();
    let count = conflicts.len();
    let message = format!(
        "transaction {id} conflicts with what others changed since it began, in {count} {}",
        if count == 1 { "place" } else { "places" }
    );
    let is_with_outer = |one: &Conflict| matches!(one.by, ChangedBy::Outer { .. });
    let is_merged = |one: &Conflict| one.what == ConflictKind::OtherPart;
    let hint = match conflicts.iter().find_map(held_by) {
        Some(holder) => in_the_way(id, holder),
        None if is_serializable(one) => no_side(id),
        None if !one.transaction.linked().is_empty() => format!(
            "it and those that are linked with it are still open: `atomdir conflicts {id}` lists the \
             conflicts, `atomdir abort {id} -- PATH...` drops changes, `atomdir abort {id}` all of them"
        ),
        None if conflicts.iter().any(is_with_outer) => format!(
            "it is still open, but a nested transaction can take no sides: `atomdir diff {id} \
             --binary` shows its changes and those around it, `atomdir abort {id}` drops its own; \
             then run its programs again, as `atomdir run --retry N` does by itself"
        ),
        None if conflicts.iter().all(is_merged) => {
            format!("`atomdir commit {id}` commits all of it, and merges both changes")
        }
        None => format!(
            "it is still open: {}`atomdir conflicts {id}` numbers the conflicts for `--take-mine` and `--take-theirs`, `atomdir commit {id} -- \
             PATH...` lands a part, `atomdir abort {id} -- PATH...` and then `atomdir refresh {id}` \
             show what others did there, `atomdir abort {id}` drops the changes",
            merge(id, conflicts)
        ),
    };
    Failure::new(FailureKind::Conflict, message).with_hint(hint)
}

fn merge(id: TransactionId, conflicts: &[Conflict]) -> String {
    match conflicts.iter().any(|one| one.what.may_have_texts()) {
        true => format!("`atomdir commit {id} --merge` merges texts, "),
        false => String::new(),
    }
}

/// The open transaction that has locked or written the part in conflict.
pub(crate) fn held_by(conflict: &Conflict) -> Option<TransactionId> {
    match conflict.by {
        ChangedBy::Open { transaction, .. } => Some(transaction),
        _ => None,
    }
}

pub(crate) fn is_serializable(one: &OpenTransaction) -> bool {
    one.transaction.isolation() == Isolation::Serializable
}

/// Advice for a conflict of a serializable transaction, which may depend on everything it has read.
pub(crate) fn no_side(id: TransactionId) -> String {
    format!(
        "it is still open, but no side can be taken, since it is serializable: `atomdir diff {id}` \
         shows its changes, `atomdir abort {id}` drops them; then run its programs again, as \
         `atomdir run --retry N` does by itself"
    )
}

/// Advice for a conflict with an open transaction: there is no side to take.
pub(crate) fn in_the_way(id: TransactionId, holder: TransactionId) -> String {
    format!(
        "it is still open: try again once transaction {holder} has ended. \
         If a write in transaction {id} has failed because of it (`atomdir status {id}` shows that as \
         a conflict), only `atomdir abort {id}` is left"
    )
}
