//! Explains how a transaction ended, when a request names one that is no longer open.

use super::How;
use crate::rights::permissions::{Peer, Reach};
use crate::service::Service;
use crate::transactions::survival;
use atomdir::client::describe_end;
use atomdir_protocol::{Failure, FailureKind, Request, TransactionId};

/// Adds to the failure of a request why there is no such transaction, if the peer may know.
pub(crate) fn explain(
    service: &Service,
    peer: &Peer,
    named: Option<TransactionId>,
    failure: Failure,
) -> Failure {
    match named {
        Some(id) if failure.kind == FailureKind::NoSuchTransaction => {
            explanation(service, peer, id).unwrap_or(failure)
        }
        _ => failure,
    }
}

fn explanation(service: &Service, peer: &Peer, id: TransactionId) -> Option<Failure> {
    if peer.reach == Reach::Nothing {
        return None;
    }
    let failure = |message| Failure::new(FailureKind::NoSuchTransaction, message);
    if let Some(reason) = survival::why_stranded(service, peer, id) {
        let message = format!(
            "transaction {id} has survived its service but cannot be opened again: {reason}"
        );
        return Some(failure(message).with_hint(format!(
            "its changes are kept in the control directory: `atomdir list` shows it, `atomdir \
             abort {id}` drops them"
        )));
    }
    let is_ending = service.transactions.get(id).is_none();
    if let Some(ended) = service.notices.find(id.0, peer, is_ending) {
        service
            .notices
            .note_reported(std::slice::from_ref(&ended), peer);
        let why = describe_end(ended.how);
        let message = format!("transaction {id} is no longer open: {why}");
        return Some(failure(message).with_hint(hint(ended.how)));
    }
    let commit = committed(service, peer, id)?;
    let message = format!("transaction {id} is no longer open: it was committed as {commit}");
    Some(failure(message).with_hint(format!("`atomdir show {commit}` shows what it changed")))
}

fn hint(how: How) -> &'static str {
    match how {
        How::Age { .. } => "begin another one; a longer `--max-age` gives it more time",
        How::Died => {
            "begin another one; what `atomdir begin` begins survives the service and the machine, \
             unless it is serializable"
        }
        _ => "begin another one; `atomdir list --ended` shows all that ended like this",
    }
}

/// The newest commit of the transaction. Any user may ask for any id, so the history is not read.
fn committed(service: &Service, peer: &Peer, id: TransactionId) -> Option<u64> {
    let commit = service.store.recent_commit(id)?;
    peer.may_use(commit.user).then_some(commit.sequence.0)
}

/// The transaction that a request is about.
pub(crate) fn named(request: &Request) -> Option<TransactionId> {
    match request {
        Request::Attach { transaction, .. }
        | Request::Detach { transaction }
        | Request::CloseView { transaction, .. }
        | Request::TakeOver { transaction, .. }
        | Request::MergeSteps { transaction }
        | Request::Merged { transaction, .. }
        | Request::Keep { transaction }
        | Request::KeepOnClose { transaction }
        | Request::ListConflicts { transaction, .. }
        | Request::SetSavepoint { transaction, .. }
        | Request::RollBack { transaction, .. }
        | Request::Abort { transaction, .. }
        | Request::AbortPart { transaction, .. }
        | Request::AbortAfter { transaction, .. }
        | Request::Status { transaction }
        | Request::Changes { transaction }
        | Request::SnapshotObject { transaction, .. }
        | Request::Unlock { transaction, .. }
        | Request::Flush { transaction }
        | Request::Freeze { transaction, .. }
        | Request::Enter { transaction, .. } => Some(*transaction),
        Request::Commit(commit) => Some(commit.transaction),
        Request::Refresh(refresh) => Some(refresh.transaction),
        Request::Lock(lock) => Some(lock.transaction),
        Request::Begin(begin) => begin.options.outer.or(begin.options.fork_of),
        _ => None,
    }
}
