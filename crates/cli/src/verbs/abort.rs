use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::TransactionId;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Drop a transaction's changes
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir abort 12
  atomdir abort --all")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id, required_unless_present = "all")]
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
    let mut connected = context.connect_to_running()?;
    let aborted = match arguments.transaction {
        Some(transaction) => {
            connected.connection.abort(transaction)?;
            1
        }
        None => connected.connection.abort_all()?,
    };
    context.output.confirm(&Aborted { aborted })?;
    Ok(SUCCESS)
}
