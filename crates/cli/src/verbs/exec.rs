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
/// Several commands may run in one transaction, also at once. It stays open. The views of
/// transactions that are linked with it are at the paths of their stores.
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
    let (mut connected, transaction, mut others) =
        attempt::enter_linked(context, arguments.transaction)?;
    let (transaction, view) = attempt::attach(&mut connected, transaction)?;
    let mut way = arguments.enter.way(None);
    way.also = others.enter_others()?;
    let command = &arguments.command;
    let ran = run_command(
        context,
        &connected,
        (&transaction, view),
        way,
        command,
        &[],
        None,
    )?;
    ran.end_writing(context)?;
    ran.warn_of_refused(context);
    attempt::leave(&mut connected.connection, transaction.id);
    others.leave();
    Ok(ran.ended.exit_code())
}
