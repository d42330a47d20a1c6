use super::ExitCode;
use crate::arguments::transaction_id;
use crate::attempt::{self, EnterArguments, run_command};
use crate::context::Context;
use crate::enter::Tree;
use crate::error::Error;
use atomdir::TransactionId;
use clap::{Args, ValueHint};
use std::ffi::OsString;

/// Run a command in the view of an open transaction
///
/// Several commands may run in one transaction, also at once. It stays open.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir exec 12 -- make install")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id)]
    transaction: TransactionId,
    #[command(flatten)]
    enter: EnterArguments,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect_to_running()?;
    let transaction = connected.connection.attach(arguments.transaction)?;
    let command = &arguments.command;
    let view = Tree::Exact(connected.connection.enterable_root(&transaction)?);
    let ended = run_command(
        context,
        &connected,
        (&transaction, view),
        arguments.enter.way(None),
        command,
        &[],
        None,
    )?;
    attempt::leave(&mut connected.connection, transaction.id);
    Ok(ended.exit_code())
}
