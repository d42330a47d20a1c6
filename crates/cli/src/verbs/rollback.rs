use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::completion::{savepoints, transactions};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text, quoted};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Make everything in a transaction as it was at a savepoint
///
/// The savepoint stays; later ones go. The transaction stays open.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir savepoint start; ./risky || atomdir rollback start")]
pub struct Arguments {
    /// What the savepoint is called
    #[arg(value_name = "NAME", add = savepoints())]
    name: OsString,
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
}

#[derive(Serialize)]
struct RolledBack<'a> {
    transaction: u64,
    savepoint: Text<'a>,
}

impl Show for RolledBack<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let (transaction, name) = (self.transaction, quoted(self.savepoint.0));
        writeln!(painter, "transaction {transaction} is as it was at {name}")
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let name = arguments.name.as_bytes();
    connected.connection.roll_back(transaction, name)?;
    context.output.confirm(&RolledBack {
        transaction: transaction.0,
        savepoint: Text(name),
    })?;
    Ok(SUCCESS)
}
