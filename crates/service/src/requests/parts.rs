//! The request that drops a part of a transaction's changes.

use crate::clients::connection::Connection;
use crate::clients::replies::{Unanswered, send_changes};
use crate::requests::sealing;
use crate::rights::permissions::no_such_transaction;
use crate::service::Service;
use crate::transactions::leases;
use crate::transactions::refusals;
use crate::views::native;
use atomdir_engine::DropError;
use atomdir_protocol::{Answer, Failure, FailureKind, TransactionId};

/// Drops a part of the changes, and sends the dropped changes.
pub(crate) fn abort(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    paths: &[Vec<u8>],
) -> Result<Answer, Unanswered> {
    let (transactions, peer) = (&service.transactions, &connection.peer);
    let one = transactions.control(id, peer, connection.id)?;
    native::require_exact(&one)?;
    // No write from before may arrive afterwards.
    leases::gather(service, &connection.stream, &one.transaction)?;
    let dropped = one.transaction.drop_part(paths);
    let dropped = dropped.map_err(|error| failure(id, error))?;
    let owner = one.transaction.owner();
    service.views.forget(owner, id, &dropped.outdated);
    send_changes(&connection.stream, dropped.changes)?;
    Ok(Answer::Nothing)
}

fn failure(id: TransactionId, error: DropError) -> Failure {
    match error {
        DropError::Ended => no_such_transaction(id),
        DropError::Nested { nested } => {
            Failure::new(FailureKind::Nested, refusals::nested_message(id, nested))
                .with_hint(format!("commit or abort transaction {nested} first"))
        }
        DropError::Frozen => sealing::frozen(id),
        DropError::Native => native::in_use(id, ""),
        DropError::InOuter => Failure::new(FailureKind::Unsupported, error.to_string())
            .with_hint(format!("`atomdir abort {id}` drops all of them")),
        DropError::Unchanged { .. } => unchanged(id, error.to_string()),
        error => Failure::new(FailureKind::Io, error.to_string()),
    }
}

pub(crate) fn unchanged(id: TransactionId, message: String) -> Failure {
    Failure::new(FailureKind::BadRequest, message).with_hint(format!(
        "`atomdir diff {id} --name-status` lists its changes"
    ))
}
