//! Nested transactions, forks of transactions, and savepoints.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::sealing;
use crate::requests::sharing;
use crate::rights::convert;
use crate::rights::permissions;
use crate::service::Service;
use crate::transactions::leases;
use crate::transactions::refusals;
use crate::transactions::{OpenTransaction, Transaction};
use crate::views::merge_turns::BeginTurn;
use atomdir_engine::{BeginError, BeginOptions, ForkError, SavepointError};
use atomdir_protocol::{
    Answer, BeginOptions as BeginRequested, Failure, FailureKind, Others, Past,
    SAVEPOINT_LENGTH_MAX, TransactionId,
};
use std::sync::Arc;

/// Fails if a fork is asked to begin with something else, too.
pub(crate) fn check(begin: &BeginRequested, past: Option<&Past>) -> Result<(), Failure> {
    match begin.fork_of {
        Some(_) if begin.outer.is_some() || past.is_some() => {
            let message = "a fork begins with the state of one transaction, and is nested in none";
            Err(Failure::new(FailureKind::BadRequest, message))
        }
        _ => Ok(()),
    }
}

/// An open transaction whose present state another one begins with.
struct Origin<'a> {
    one: OpenTransaction,
    /// In a native view the other one would have a part of a commit that is being carried out.
    _turn: Option<BeginTurn<'a>>,
}

impl<'a> Origin<'a> {
    fn look_up(
        service: &'a Service,
        connection: &Connection,
        id: TransactionId,
    ) -> Result<Origin<'a>, Unanswered> {
        let one = (service.transactions).control(id, &connection.peer, connection.id)?;
        if one.transaction.is_over_base() && one.transaction.is_lower() {
            let message = format!(
                "transaction {id} is exclusive, so none can begin in it or as a fork of it while its \
                 command runs"
            );
            let failure = Failure::new(FailureKind::NoViews, message);
            return Err(failure
                .with_hint("run its command without `--exclusive`")
                .into());
        }
        // The other one must also see writes through memory mappings.
        leases::gather(service, &connection.stream, &one.transaction)?;
        let is_lower = one.transaction.is_lower();
        let _turn = is_lower.then(|| service.merges.begin_in(id));
        Ok(Origin { one, _turn })
    }

    fn transaction(&self) -> &Arc<Transaction> {
        &self.one.transaction
    }

    /// The other one belongs to the same user.
    fn owned(&self, options: BeginOptions) -> BeginOptions {
        BeginOptions {
            owner: self.one.transaction.owner(),
            ..options
        }
    }
}

pub(crate) fn fork(
    service: &Service,
    connection: &Connection,
    of: TransactionId,
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let origin = Origin::look_up(service, connection, of)?;
    if !origin.transaction().linked().is_empty() {
        let message = format!(
            "transaction {of} is linked with those of other stores, and a fork would commit without them"
        );
        return Err(Failure::new(FailureKind::Unsupported, message).into());
    }
    let forked = service
        .store
        .fork(origin.transaction(), origin.owned(options));
    forked.map_err(|error| {
        Unanswered::Failed(match error {
            ForkError::Ended => permissions::no_such_transaction(of),
            ForkError::Frozen => sealing::frozen(of),
            ForkError::Early => Failure::new(
                FailureKind::BadRequest,
                format!("transaction {of}: {error}"),
            ),
            error => convert::fork_failure(&error, &connection.peer),
        })
    })
}

pub(crate) fn begin(
    service: &Service,
    connection: &Connection,
    (outer, wait): (TransactionId, bool),
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let others = if wait { Others::Wait } else { Others::Refuse };
    sharing::when_free(service, connection, outer, others, || {
        try_begin(service, connection, outer, options.clone())
    })
}

fn try_begin(
    service: &Service,
    connection: &Connection,
    outer: TransactionId,
    options: BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let origin = Origin::look_up(service, connection, outer)?;
    let begun = (service.store).begin_nested(origin.transaction(), origin.owned(options));
    begun.map_err(|error| {
        Unanswered::Failed(match error {
            BeginError::Ended => permissions::no_such_transaction(outer),
            BeginError::Nested { nested } => nested_already(
                outer,
                nested,
                (service.transactions).is_worked_in(nested, connection.id),
            ),
            BeginError::Frozen => sealing::frozen(outer),
            error => convert::begin_failure(&error, &connection.peer),
        })
    })
}

fn nested_already(outer: TransactionId, nested: TransactionId, is_worked_in: bool) -> Failure {
    let message = format!(
        "transaction {nested} is already nested in transaction {outer}, which can have only one at a \
         time, as it is serializable"
    );
    let kind = match is_worked_in {
        true => FailureKind::InUse,
        false => FailureKind::Nested,
    };
    Failure::new(kind, message).with_hint(format!("commit or abort transaction {nested} first"))
}

pub(crate) fn set_savepoint(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    name: &[u8],
) -> Result<Answer, Unanswered> {
    if name.is_empty() || name.len() > SAVEPOINT_LENGTH_MAX {
        let message = format!("a savepoint's name has 1 to {SAVEPOINT_LENGTH_MAX} bytes");
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    leases::gather(service, &connection.stream, &one.transaction)?;
    let set = one.transaction.set_savepoint(name);
    set.map_err(|error| savepoint_failure(id, name, error))?;
    Ok(Answer::Nothing)
}

pub(crate) fn roll_back(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    name: &[u8],
) -> Result<Answer, Unanswered> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    // No write from before the rollback may arrive after it.
    leases::gather(service, &connection.stream, &one.transaction)?;
    let outdated = one.transaction.roll_back(name);
    let outdated = outdated.map_err(|error| savepoint_failure(id, name, error))?;
    service.views.forget(one.transaction.owner(), id, &outdated);
    Ok(Answer::Nothing)
}

fn savepoint_failure(id: TransactionId, name: &[u8], error: SavepointError) -> Failure {
    match error {
        SavepointError::Ended => permissions::no_such_transaction(id),
        SavepointError::Nested { nested } => {
            Failure::new(FailureKind::Nested, refusals::nested_message(id, nested))
                .with_hint(format!("commit or abort transaction {nested} first"))
        }
        SavepointError::NoSuchSavepoint => {
            let name = String::from_utf8_lossy(name);
            let message = format!("transaction {id} has no savepoint '{name}'");
            Failure::new(FailureKind::NoSuchSavepoint, message)
                .with_hint(format!("`atomdir status {id}` shows those there are"))
        }
        SavepointError::Frozen => sealing::frozen(id),
        SavepointError::Native => convert::native_failure(&error),
        error => Failure::new(FailureKind::Internal, error.to_string()),
    }
}
