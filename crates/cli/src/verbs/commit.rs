use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::{self, Finished, Outcome};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::{Committed, TransactionId};
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Make a transaction's changes take effect
///
/// If someone else has changed the same things since it began, it is a
/// conflict: nothing is committed, and the transaction stays open.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir commit 12")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id)]
    transaction: TransactionId,
}

struct Done {
    transaction: TransactionId,
    committed: Committed,
}

impl Show for Done {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        match self.committed.sequence {
            Some(sequence) => {
                let changes = counted(self.committed.changes, "change");
                writeln!(painter, "commit {sequence}: {changes}")
            }
            None => writeln!(painter, "nothing had changed"),
        }
    }
}

impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Finished {
            transaction: Some(self.transaction),
            result: Ok(Outcome::Committed(self.committed)),
            exit_code: SUCCESS,
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect_to_running()?;
    let transaction = arguments.transaction;
    let committed = attempt::commit(context, &mut connected.connection, transaction)?;
    context.output.confirm(&Done {
        transaction,
        committed,
    })?;
    Ok(SUCCESS)
}
