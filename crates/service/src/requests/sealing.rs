//! A commit after a review contains exactly the changes that were reviewed.
//!
//! A client that shows a transaction's changes before their commit first freezes
//! the view. The order matters. First the service gathers writes through memory
//! mappings, while the view is still writable. From the freeze on every write
//! fails, including those that the kernel sends late. Then the client reads the
//! changes. The commit lands these changes, even if programs still have files of
//! the view open.

use crate::clients::connection::Connection;
use crate::clients::replies::Unanswered;
use crate::requests::commit;
use crate::requests::sharing;
use crate::rights::permissions::no_such_transaction;
use crate::service::Service;
use crate::transactions::leases::{self, Arrived};
use crate::transactions::refusals;
use atomdir_engine::FreezeError;
use atomdir_protocol::{Answer, Failure, FailureKind, Others, TransactionId};

pub(crate) fn freeze(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<Answer, Unanswered> {
    sharing::when_free(service, connection, id, others, || {
        try_freeze(service, connection, id, others)
    })
}

fn try_freeze(
    service: &Service,
    connection: &Connection,
    id: TransactionId,
    others: Others,
) -> Result<Answer, Unanswered> {
    let one = sharing::claim(service, connection, id, others)?;
    if leases::gather(service, &connection.stream, &one.transaction)? != Arrived::All {
        return Err(commit::incomplete_failure(id).into());
    }
    one.transaction.freeze().map_err(|error| match error {
        FreezeError::Ended => no_such_transaction(id),
        FreezeError::Nested { nested } => refusals::nested_failure(id, nested),
        error => Failure::new(FailureKind::Internal, error.to_string()),
    })?;
    Ok(Answer::Nothing)
}

pub(crate) fn frozen(id: TransactionId) -> Failure {
    let message = format!(
        "transaction {id} is read-only: its changes were listed for the commit, or it shows the past"
    );
    Failure::new(FailureKind::Frozen, message).with_hint(format!(
        "`atomdir commit {id}` or `atomdir abort {id}` ends it"
    ))
}

/// A sealed transaction ends with its controlling connection, so it cannot be
/// detached.
pub(crate) fn refuse_detached(detached: bool, sealed: bool) -> Result<(), Failure> {
    if detached && sealed {
        let message = "a sealed transaction cannot be detached";
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    Ok(())
}
