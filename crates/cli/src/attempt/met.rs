//! Early conflicts: what the command's writes failed on.

use crate::context::Connected;
use crate::enter::Ended;
use crate::error::Error;
use atomdir::{CommitError, Failure, FailureKind, TransactionId};

/// A command that failed because its writes met another transaction's has met a
/// conflict, whatever it made of it.
pub fn refuse_met(
    connected: &mut Connected,
    transaction: TransactionId,
    ended: Ended,
) -> Result<(), Error> {
    if matches!(ended, Ended::Exited(0) | Ended::TimedOut | Ended::HungUp) {
        return Ok(());
    }
    let conflicts = connected.connection.status(transaction)?.met;
    if conflicts.is_empty() {
        return Ok(());
    }
    let message =
        format!("transaction {transaction} has written what an older one had written or locked");
    let failure = Failure::new(FailureKind::Conflict, message);
    Err(Error::Commit {
        transaction,
        source: CommitError::Conflict { conflicts, failure },
        open: true,
    })
}
