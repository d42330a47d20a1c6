//! Requests of clients that commit transactions of several stores together. What the steps mean is said at
//! `commit::in_doubt` of the engine. If the client has gone before it tells the decision, the service
//! asks the coordinator's store itself (`transactions::in_doubt`).

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::{commit, refresh, sharing};
use crate::rights::convert;
use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::transactions::leases::{self, Arrived};
use crate::transactions::{OpenTransaction, survival};
use atomdir_engine as engine;
use atomdir_protocol::{
    Answer, Coordinator, Failure, FailureKind, JointRequest, Others, TransactionId,
};

/// A longer path cannot be opened.
const ROOT_LENGTH_MAX: usize = 4096;

pub(crate) fn handle(
    service: &Service,
    connection: &Connection,
    asked: JointRequest,
) -> Result<Answer, Unanswered> {
    match asked {
        JointRequest::Coordinate {
            transaction,
            others,
        } => coordinate(service, connection, transaction, others),
        JointRequest::Cease { transaction } => {
            let one =
                (service.transactions).control(transaction, &connection.peer, connection.id)?;
            let ceased = service.store.cease_to_coordinate(&one.transaction);
            commit::or_failure(service, connection, &one, ceased)?;
            Ok(Answer::Nothing)
        }
        JointRequest::Vote {
            transaction,
            coordinator,
            others,
        } => sharing::when_free(service, connection, transaction, others, || {
            vote(service, connection, (transaction, &coordinator), others)
        }),
        JointRequest::Decide {
            transaction,
            committed,
            take_mine,
        } => decide(service, connection, transaction, (committed, take_mine)),
        JointRequest::Outcome { store, transaction } => {
            outcome(service, &connection.peer, store, transaction)
        }
    }
}

fn coordinate(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<Answer, Unanswered> {
    sharing::when_free(service, connection, id, others, || {
        let one = sharing::claim(service, connection, id, others)?;
        if leases::gather(service, &connection.stream, &one.transaction)? != Arrived::All {
            return Err(commit::incomplete_failure(id).into());
        }
        let coordinates = service.store.coordinate(&one.transaction);
        let coordinates = commit::or_failure(service, connection, &one, coordinates)?;
        let store = coordinates.then(|| service.store.id().0);
        Ok(Answer::Coordinates(store))
    })
}

/// The transaction gets the newest snapshot first: of what others commit after that, the next service
/// need know nothing.
fn vote(
    service: &Service,
    connection: &Connection,
    (id, coordinator): (TransactionId, &Coordinator),
    others: Others,
) -> Result<Answer, Unanswered> {
    if coordinator.root.len() > ROOT_LENGTH_MAX || !coordinator.root.starts_with(b"/") {
        let message = "the coordinator's store must be named by its whole path";
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    let one = sharing::claim(service, connection, id, others)?;
    let has_voted = one.transaction.coordinator().is_some();
    if !has_voted && !service.store.has_own_commits_only(&one.transaction) {
        let refreshed = refresh::try_refresh(service, connection, &one)?;
        service.views.renew(&one.transaction, &refreshed.known);
    }
    let note = survival::note_for(service, &one);
    let (store, transaction) = (&service.store, &one.transaction);
    let has_voted = commit::try_commit(service, connection, &one, |report| {
        store.vote(transaction, coordinator, note.clone(), report)
    })?;
    if has_voted {
        // It does not end with its holders any more.
        service.transactions.detach(id);
        service.maintenance.wake();
    }
    Ok(Answer::Voted(has_voted))
}

fn decide(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    (committed, take_mine): (bool, bool),
) -> Result<Answer, Unanswered> {
    let one = service.transactions.find_to_end(id, &connection.peer)?;
    if one.transaction.coordinator().is_none() {
        let message = format!("transaction {id} is not in doubt");
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    if !committed {
        let withdrawn = service.store.withdraw_vote(&one.transaction);
        commit::or_failure(service, connection, &one, withdrawn)?;
        return Ok(Answer::Nothing);
    }
    let sides = match take_mine {
        true => Some(all_mine(service, connection, &one)?),
        false => None,
    };
    let portion = match &sides {
        Some(sides) => engine::Portion::Sides(sides),
        None => engine::Portion::All,
    };
    let (store, transaction) = (&service.store, &one.transaction);
    let committed = commit::try_commit(service, connection, &one, |report| {
        store.commit_decided(transaction, portion, report)
    })?;
    service.forget(&one);
    service.maintenance.wake();
    Ok(commit::answer(service, connection, &one, &committed))
}

/// Its own side in each conflict that it has now.
fn all_mine(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
) -> Result<engine::Sides, Unanswered> {
    let conflicts = service.store.list_conflicts(&one.transaction);
    let conflicts = commit::or_failure(service, connection, one, conflicts)?;
    Ok(engine::Sides {
        mine: (1..=conflicts.len() as u64).collect(),
        theirs: Vec::new(),
    })
}

fn outcome(
    service: &Service,
    peer: &Peer,
    store: [u8; 16],
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    if service.store.id().0 != store {
        let root = service.path.display();
        let message = format!("'{root}' is another store now than the one that decides");
        return Err(Failure::new(FailureKind::NoStore, message).into());
    }
    let outcome = service.store.outcome(id);
    let outcome = outcome.map_err(|error| convert::store_failure(&error, peer))?;
    Ok(Answer::Outcome(outcome))
}

/// Refuses to end a transaction that only a decision ends.
pub(super) fn refuse_in_doubt(one: &OpenTransaction) -> Result<(), Failure> {
    match one.transaction.coordinator() {
        None => Ok(()),
        Some(coordinator) => {
            let error = engine::CommitError::InDoubt(Box::new(coordinator));
            Err(in_doubt(one.id(), error.to_string()))
        }
    }
}

/// Advice for a transaction that only a decision ends.
pub(crate) fn in_doubt(id: TransactionId, message: String) -> Failure {
    Failure::new(FailureKind::InDoubt, message).with_hint(format!(
        "it ends by itself when that one has ended; if that store is lost, `atomdir resolve {id} \
         --commit` or `--abort` decides here alone"
    ))
}
