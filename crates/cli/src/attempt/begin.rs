//! Begins the transaction of a command, nested in the current one.

use super::note_wait;
use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir::client::{BeginOptions, Transaction};

/// In a serializable transaction only one at a time can be nested. Then this waits as long as
/// somebody else works in the nested one.
pub fn begin(
    context: &Context,
    connected: &mut Connected,
    options: &BeginOptions,
) -> Result<Transaction, Error> {
    let wait = match options.outer {
        Some(outer) => !context.is_below(connected, outer)?,
        None => false,
    };
    let options = BeginOptions {
        wait,
        ..options.clone()
    };
    let connection = &mut connected.connection;
    let begun = connection.begin_reporting(&options, &mut |progress| {
        note_wait(context, &progress);
    });
    Ok(begun?)
}
