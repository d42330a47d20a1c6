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

/// End a transaction that is in doubt, if the store that decides is lost
///
/// A transaction that `run -C A -C B` has changed is in doubt from its vote until A has decided. Mostly that
/// is a moment, and services learn the decision by themselves. Only if A is lost for good, or for too
/// long, decide here alone: then one store may have the commit and the other not. `atomdir list` says what
/// is known.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir -C /srv/db resolve 12 --abort")]
pub struct Arguments {
    /// The transaction
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: TransactionId,
    /// Its changes take effect
    #[arg(long, required_unless_present = "abort", conflicts_with = "abort")]
    commit: bool,
    /// Its changes are dropped
    #[arg(long)]
    abort: bool,
    /// Its changes replace what programs outside have changed in the same places since
    #[arg(long, requires = "commit")]
    take_mine: bool,
}

#[derive(Serialize)]
struct Resolved {
    transaction: u64,
    commit: Option<u64>,
}

impl Show for Resolved {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let id = self.transaction;
        match self.commit {
            Some(commit) => writeln!(painter, "transaction {id} is commit {commit}"),
            None => writeln!(painter, "transaction {id} is aborted"),
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let transaction = arguments.transaction;
    let mut connected = context.connect()?;
    let connection = &mut connected.connection;
    let commit = if arguments.commit {
        let committed = connection.commit_decided(transaction, arguments.take_mine, &mut |_| {});
        let committed = committed.map_err(|source| Error::Commit {
            transaction,
            open: !source.is_logged(),
            source,
        })?;
        committed.sequence.map(|sequence| sequence.0)
    } else {
        connection.withdraw_vote(transaction)?;
        connection.abort(transaction)?;
        None
    };
    context.output.confirm(&Resolved {
        transaction: transaction.0,
        commit,
    })?;
    Ok(SUCCESS)
}
