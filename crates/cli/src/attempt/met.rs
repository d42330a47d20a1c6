//! Early conflicts that made the command's writes fail.

use crate::context::Connected;
use crate::enter::Ended;
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{CommitError, Failure, FailureKind};

/// If the command's writes conflicted with another transaction's, the failure
/// of the command counts as a conflict, whatever the command made of it.
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
