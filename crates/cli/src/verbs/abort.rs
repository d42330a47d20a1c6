use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Drop a transaction's changes
///
/// Those of the transactions nested in it go as well. Without TX: the transaction
/// that this runs in, or the only one you have open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir abort
  atomdir abort 12
  atomdir abort --all")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// Abort every open transaction that you may abort
    #[arg(long, conflicts_with = "transaction")]
    all: bool,
}

#[derive(Serialize)]
struct Aborted {
    aborted: u64,
}

impl Show for Aborted {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "aborted {}", counted(self.aborted, "transaction"))
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let aborted = if arguments.all {
        context.connect_to_running()?.connection.abort_all()?
    } else {
        let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
        if arguments.transaction.is_none() && context.current(&connected).is_none() {
            refuse_if_in_use(&mut connected, transaction)?;
        }
        connected.connection.abort(transaction)?;
        1
    };
    context.output.confirm(&Aborted { aborted })?;
    Ok(SUCCESS)
}

/// A command that is still running must not lose its view because someone forgot to
/// name another transaction.
fn refuse_if_in_use(connected: &mut Connected, transaction: TransactionId) -> Result<(), Error> {
    match connected.connection.status(transaction)?.holders.first() {
        Some(&process) => Err(Error::InUse {
            transaction,
            process,
        }),
        None => Ok(()),
    }
}
