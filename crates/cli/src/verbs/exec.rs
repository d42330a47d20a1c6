use super::ExitCode;
use crate::arguments::transaction_id;
use crate::attempt::{self, EnterArguments, run_command};
use crate::completion::{commands, transactions};
use crate::context::Context;
use crate::error::Error;
use atomdir::TransactionId;
use clap::{Args, ValueHint};
use std::ffi::OsString;

/// Run a command in the view of an open transaction
///
/// Several commands may run in one transaction, also at once. It stays open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir exec -- make install
  atomdir exec 12 -- make install")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    #[command(flatten)]
    enter: EnterArguments,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments, add = commands("command"))]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let (transaction, view) = attempt::attach(&mut connected, transaction)?;
    let command = &arguments.command;
    let ran = run_command(
        context,
        &connected,
        (&transaction, view),
        arguments.enter.way(None),
        command,
        &[],
        None,
    )?;
    ran.end_writing(context)?;
    ran.warn_of_refused(context);
    attempt::leave(&mut connected.connection, transaction.id);
    Ok(ran.ended.exit_code())
}
