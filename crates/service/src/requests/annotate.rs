//! What users say of commits: on what terms a transaction is committed; and later, that a commit is
//! to stay, to be kept, or to have another label.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::rights::convert;
use crate::rights::permissions::Peer;
use crate::service::Service;
use atomdir_engine::{AnnotateError, ConfirmError, TermsError};
use atomdir_protocol::{
    Annotate, Answer, Failure, FailureKind, LABEL_LENGTH_MAX, Sequence, Terms, TransactionId,
};

pub(crate) fn handle(
    service: &Service,
    connection: &Connection,
    said: Annotate,
) -> Result<Answer, Unanswered> {
    let peer = &connection.peer;
    match said {
        Annotate::Terms { transaction, terms } => {
            set_terms(service, connection, transaction, terms)?;
        }
        Annotate::Confirm { sequence } => confirm(service, peer, sequence)?,
        Annotate::Pin { sequence, pinned } => {
            peer.require_administer("pin commits")?;
            let done = service.store.pin(sequence, pinned);
            done.map_err(|error| refused(error, peer))?;
        }
        Annotate::Relabel { sequence, label } => relabel(service, peer, sequence, label)?,
    }
    Ok(Answer::Nothing)
}

fn set_terms(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    terms: Terms,
) -> Result<(), Failure> {
    let peer = &connection.peer;
    refuse_long(terms.label.as_deref())?;
    let one = service.transactions.control(id, peer, connection.id)?;
    if terms.confirm_ms.is_some_and(|wait_ms| wait_ms > 0) {
        peer.require_administer("make commits that take themselves back")?;
        // The history may have been turned on or off since the last commit.
        let control = &service.access.control;
        service.history.heed(control, &service.store);
    }
    let checked = service.store.check_terms(&one.transaction, &terms);
    checked.map_err(|error| match error {
        TermsError::Nested => Failure::new(FailureKind::BadRequest, error.to_string())
            .with_hint("commit the outer one with --confirm"),
        error => no_history(&error),
    })?;
    one.transaction.set_terms(terms);
    Ok(())
}

/// A commit that is to take itself back cannot be made without a history.
pub(crate) fn no_history(error: &impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Misconfigured, error.to_string())
        .with_hint("`atomdir config history-age 7d` keeps what commits replace for a week")
}

pub(crate) fn refuse_long(label: Option<&[u8]>) -> Result<(), Failure> {
    if label.is_some_and(|label| label.len() > LABEL_LENGTH_MAX) {
        let message = format!("a label holds at most {LABEL_LENGTH_MAX} bytes");
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    Ok(())
}

fn confirm(service: &Service, peer: &Peer, commit: Sequence) -> Result<(), Failure> {
    peer.require_administer("confirm commits")?;
    let error = match service.store.confirm_commit(commit) {
        Ok(()) => {
            service.latch.set();
            return Ok(());
        }
        Err(error) => error,
    };
    let message = error.to_string();
    Err(match error {
        ConfirmError::Store(error) => convert::store_failure(&error, peer),
        ConfirmError::TooLate(_) => Failure::new(FailureKind::Conflict, message),
        ConfirmError::TakenBack { by, .. } => Failure::new(FailureKind::Conflict, message)
            .with_hint(format!("`atomdir undo {by}` brings its changes back")),
        ConfirmError::NotWaiting(_) => Failure::new(FailureKind::NoSuchCommit, message).with_hint(
            "`atomdir log` marks those that wait; if it was confirmed before, all is well",
        ),
        _ => Failure::new(FailureKind::NoSuchCommit, message),
    })
}

fn relabel(
    service: &Service,
    peer: &Peer,
    commit: Sequence,
    label: Vec<u8>,
) -> Result<(), Failure> {
    refuse_long(Some(&label))?;
    let mut user = None;
    let listed = service.store.for_each_commit(|one| {
        if one.summary.sequence == commit {
            user = Some(one.summary.user);
        }
    });
    listed.map_err(|error| convert::store_failure(&error, peer))?;
    if !user.is_some_and(|user| peer.may_use(user)) {
        peer.require_administer("relabel other users' commits")?;
    }
    let done = service.store.relabel(commit, label);
    done.map_err(|error| refused(error, peer))
}

fn refused(error: AnnotateError, peer: &Peer) -> Failure {
    let message = error.to_string();
    let kind = match error {
        AnnotateError::Store(error) => return convert::store_failure(&error, peer),
        AnnotateError::NoSuchCommit(_) | AnnotateError::NotKept(_) => FailureKind::NoSuchCommit,
        _ => FailureKind::Unsupported,
    };
    Failure::new(kind, message)
        .with_hint("`atomdir log` lists the commits, and marks forgotten ones")
}
