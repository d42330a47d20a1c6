use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text, quoted};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Name the present state of a transaction, to go back to with `rollback`
///
/// An older savepoint of that name is forgotten. Savepoints end with the
/// transaction, and when a commit is tried.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir savepoint before-upgrade")]
pub struct Arguments {
    /// What the savepoint is called
    #[arg(value_name = "NAME")]
    name: OsString,
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
}

#[derive(Serialize)]
struct Set<'a> {
    transaction: u64,
    savepoint: Text<'a>,
}

impl Show for Set<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let (transaction, name) = (self.transaction, quoted(self.savepoint.0));
        writeln!(painter, "savepoint {name} set in transaction {transaction}")
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let name = arguments.name.as_bytes();
    connected.connection.set_savepoint(transaction, name)?;
    context.output.confirm(&Set {
        transaction: transaction.0,
        savepoint: Text(name),
    })?;
    Ok(SUCCESS)
}
