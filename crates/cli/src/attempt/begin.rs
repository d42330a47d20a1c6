//! Begins the transaction of a command, nested in the current one.

use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir::{BeginOptions, FailureKind, Transaction, TransactionId};
use std::time::Duration;

const WAIT_INTERVAL: Duration = Duration::from_millis(20);

/// Only one transaction at a time can be nested in another. So this waits as
/// long as somebody works in the nested one.
pub fn begin(
    context: &Context,
    connected: &mut Connected,
    options: &BeginOptions,
) -> Result<Transaction, Error> {
    let mut has_noted = false;
    loop {
        let busy = match connected.connection.begin(options) {
            Err(error) if error.kind() == Some(FailureKind::Busy) => error,
            other => return Ok(other?),
        };
        let Some(outer) = options.outer else {
            return Err(busy.into());
        };
        if !is_at_work(context, connected, outer)? {
            return Err(busy.into());
        }
        if !has_noted {
            context.output.note(format_args!("{busy}: waiting"));
            has_noted = true;
        }
        std::thread::sleep(WAIT_INTERVAL);
    }
}

/// Whether somebody else holds the nested transaction, or it has ended.
fn is_at_work(
    context: &Context,
    connected: &mut Connected,
    outer: TransactionId,
) -> Result<bool, Error> {
    let Some(nested) = connected.connection.status(outer)?.nested else {
        return Ok(true);
    };
    if context.is_inside(connected, nested)? {
        return Ok(false);
    }
    match connected.connection.status(nested) {
        Ok(status) => Ok(!status.holders.is_empty()),
        Err(error) if error.kind() == Some(FailureKind::NoSuchTransaction) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
