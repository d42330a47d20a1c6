use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::io;

/// Make all lazy commits durable, or an open transaction's changes
///
/// Fails if one of your lazy commits is set aside, and says why.
///
/// An open transaction that survives its service (`list` says which) also survives a power cut,
/// as far as it was flushed: by this, or by fsync(2) on any file in its view.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir run --durability lazy -- ./step-1 &&
  atomdir run --durability lazy -- ./step-2 && atomdir sync")]
pub struct Arguments {
    /// Flush this open transaction instead
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
}

#[derive(Serialize)]
struct Synced {
    synced: bool,
}

impl Show for Synced {
    fn show(&self, _: &mut Painter<'_>) -> io::Result<()> {
        Ok(())
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connection = context.connect()?.connection;
    match arguments.transaction {
        Some(transaction) => connection.flush(transaction)?,
        None => connection.sync()?,
    }
    context.output.confirm(&Synced { synced: true })?;
    Ok(SUCCESS)
}
