//! The failures of requests that have to wait until others have left a transaction.

use atomdir_protocol::{Failure, FailureKind, TransactionId};

pub(crate) fn held_failure<'a>(
    id: TransactionId,
    processes: impl IntoIterator<Item = &'a u32>,
) -> Failure {
    let others: Vec<String> = processes.into_iter().map(u32::to_string).collect();
    let message = format!(
        "transaction {id} is in use by {} {}",
        if others.len() == 1 {
            "process"
        } else {
            "processes"
        },
        others.join(", ")
    );
    Failure::new(FailureKind::InUse, message).with_hint(
        "it is still open: wait for the others with --wait, or end their views with --force",
    )
}

pub(crate) fn nested_failure(id: TransactionId, nested: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::InUse, nested_message(id, nested))
        .with_hint("wait for its end with --wait, or abort it with --force")
}

pub(crate) fn nested_message(id: TransactionId, nested: impl std::fmt::Display) -> String {
    format!("transaction {nested} is nested in transaction {id} and still open")
}

/// The command has ended, and the process that ran it decides now.
pub(crate) fn closed(id: TransactionId) -> Failure {
    let message = format!("the command of transaction {id} has ended, and its view is closed");
    Failure::new(FailureKind::InUse, message).with_hint(format!(
        "`atomdir status {id}` shows whether it is still open; then try again"
    ))
}
