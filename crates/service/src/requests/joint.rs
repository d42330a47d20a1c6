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
    Answer, Failure, FailureKind, Isolation, JointRequest, Others, Partner, TransactionId,
};
use std::os::unix::ffi::OsStrExt;

/// A longer path cannot be opened.
const ROOT_LENGTH_MAX: usize = 4096;
const LINKED_MAX: usize = 64;

pub(crate) fn handle(
    service: &Service,
    connection: &Connection,
    asked: JointRequest,
) -> Result<Answer, Unanswered> {
    match asked {
        JointRequest::Introduce { transaction } => {
            let one = service.transactions.find(transaction, &connection.peer)?;
            Ok(Answer::Introduced(introduction(service, &one)))
        }
        JointRequest::Link { transaction, all } => link(service, connection, transaction, all),
        JointRequest::Coordinate {
            transaction,
            others,
        } => sharing::when_free(service, connection, transaction, others, || {
            coordinate(service, connection, transaction, others)
        }),
        JointRequest::Vote {
            transaction,
            coordinator,
            others,
        } => sharing::when_free(service, connection, transaction, others, || {
            vote(service, connection, (transaction, &coordinator), others)
        }),
        JointRequest::Commit { transaction } => {
            commit_coordinator(service, connection, transaction)
        }
        JointRequest::GiveUp { transaction } => give_up(service, connection, transaction),
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

/// What the transaction is to those of other stores.
fn introduction(service: &Service, one: &OpenTransaction) -> Partner {
    Partner {
        store: service.store.id().0,
        root: service.path.as_os_str().as_bytes().to_vec(),
        transaction: one.id(),
    }
}

/// Only before the transaction survives: whatever a crash leaves of it then has its links, too.
fn link(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    all: Vec<Partner>,
) -> Result<Answer, Unanswered> {
    let one = (service.transactions).control(id, &connection.peer, connection.id)?;
    let transaction = &one.transaction;
    if *transaction.linked() == *all {
        return Ok(Answer::Nothing);
    }
    let are_named = all.len() <= LINKED_MAX && all.iter().all(|one| is_root(&one.root));
    let why_not = if !are_named || !all.contains(&introduction(service, &one)) {
        "all transactions must be named, each with the whole path of its store"
    } else if one.detached || transaction.survives() || !transaction.linked().is_empty() {
        "it is linked already, or stays open by itself"
    } else if one.outer().is_some() || transaction.past().is_some() {
        "it is nested, or shows the past"
    } else if transaction.isolation() == Isolation::Serializable {
        "it is serializable"
    } else {
        let is_first = all.first() == Some(&introduction(service, &one));
        transaction.link_with(all);
        if !is_first {
            prepare_to_vote(service);
        }
        return Ok(Answer::Nothing);
    };
    let message =
        format!("transaction {id} cannot be linked with those of other stores: {why_not}");
    Err(Failure::new(FailureKind::BadRequest, message).into())
}

/// A vote needs a checkpoint, which takes three flushes. Mostly the program that works in the transaction
/// takes longer than these.
fn prepare_to_vote(service: &Service) {
    let store = service.store.clone();
    let thread = std::thread::Builder::new().name("before a vote".to_owned());
    let begun = thread.spawn(move || {
        if let Err(error) = store.checkpoint() {
            tracing::debug!(%error, "the vote makes the checkpoint, or says why it cannot");
        }
    });
    if let Err(error) = begun {
        tracing::debug!(%error, "the vote makes the checkpoint");
    }
}

fn is_root(root: &[u8]) -> bool {
    root.len() <= ROOT_LENGTH_MAX && root.starts_with(b"/")
}

fn coordinate(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<Answer, Unanswered> {
    let one = sharing::claim(service, connection, id, others)?;
    taken(service, connection, id, || {
        if leases::gather(service, &connection.stream, &one.transaction)? != Arrived::All {
            return Err(commit::incomplete_failure(id).into());
        }
        let coordinates = service.store.coordinate(&one.transaction);
        let coordinates = commit::or_failure(service, connection, &one, coordinates)?;
        Ok(Answer::Voted(coordinates))
    })
}

/// Takes the transaction for the connection, which keeps it if the step succeeds.
fn taken(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    step: impl FnOnce() -> Result<Answer, Unanswered>,
) -> Result<Answer, Unanswered> {
    service.committers.take(id, connection.id)?;
    let done = step();
    if done.is_err() {
        service.let_go(id);
    }
    done
}

/// The transaction gets the newest snapshot first: of what others commit after that, the next service
/// need know nothing.
fn vote(
    service: &Service,
    connection: &Connection,
    (id, coordinator): (TransactionId, &Partner),
    others: Others,
) -> Result<Answer, Unanswered> {
    if !is_root(&coordinator.root) {
        let message = "the coordinator's store must be named by its whole path";
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    let one = sharing::claim(service, connection, id, others)?;
    taken(service, connection, id, || {
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
            if service.transactions.set_detached(id, true) == Some(false) {
                service.committers.note_held(id);
            }
            service.maintenance.wake();
        }
        Ok(Answer::Voted(has_voted))
    })
}

fn commit_coordinator(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    let one = (service.transactions).control(id, &connection.peer, connection.id)?;
    service.committers.require(id, connection.id)?;
    let newest = || service.store.status().sequence.0;
    let committed = commit::try_commit(service, connection, &one, |report| {
        service.notices.before_commit(id.0, false, newest);
        service.store.commit_coordinated(&one.transaction, report)
    })?;
    Ok(has_committed(service, connection, &one, &committed))
}

/// Ends a transaction that has committed together with others, and answers.
fn has_committed(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    committed: &engine::Committed,
) -> Answer {
    service.committers.forget(one.id());
    service.forget(one);
    commit::answer(service, connection, one, committed)
}

fn give_up(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
) -> Result<Answer, Unanswered> {
    service.committers.require(id, connection.id)?;
    let one = service.transactions.find(id, &connection.peer)?;
    let withdrawn = service.store.withdraw_vote(&one.transaction);
    commit::or_failure(service, connection, &one, withdrawn)?;
    service.let_go(id);
    Ok(Answer::Nothing)
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
    Ok(has_committed(service, connection, &one, &committed))
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
    // Before the store is asked: the commit of whoever takes it after this counts only later votes.
    let is_taken = service.committers.is_taken(id);
    let outcome = service.store.outcome(id);
    let outcome = outcome.map_err(|error| convert::store_failure(&error, peer))?;
    Ok(Answer::Outcome(match outcome {
        engine::Outcome::Open if !is_taken => engine::Outcome::Idle,
        outcome => outcome,
    }))
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
