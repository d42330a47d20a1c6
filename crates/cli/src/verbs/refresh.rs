use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Bring a transaction's snapshot up to date
///
/// Afterwards its view shows what others have committed meanwhile, under its own changes, and it
/// can only conflict with later commits. If others have changed the same as the transaction,
/// nothing is refreshed, and the conflicts are listed. The view keeps its path. Programs that are
/// in it or have files of it open get errors, so it is refused while a command runs in it. All
/// savepoints are dropped.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir refresh 12 && atomdir exec 12 -- make test")]
pub struct Arguments {
    /// The transaction; by default the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// Wait until no command runs in it
    #[arg(short, long)]
    wait: bool,
}

#[derive(Serialize)]
struct Refreshed {
    transaction: u64,
    /// The newest commits in the snapshot before and now; 0: none.
    from: u64,
    to: u64,
}

impl Show for Refreshed {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let Refreshed {
            transaction,
            from,
            to,
        } = self;
        match to - from {
            0 => writeln!(
                painter,
                "nothing was committed since; transaction {transaction} still shows commit {to}"
            ),
            1 => writeln!(painter, "transaction {transaction} now shows commit {to}"),
            count => writeln!(
                painter,
                "transaction {transaction} now shows {count} more commits, up to {to}"
            ),
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let refreshed = connected.connection.refresh(transaction, arguments.wait);
    let (from, to) = refreshed.map_err(|source| Error::Commit {
        transaction,
        source,
        open: true,
    })?;
    context.output.confirm(&Refreshed {
        transaction: transaction.0,
        from: from.0,
        to: to.0,
    })?;
    Ok(SUCCESS)
}
