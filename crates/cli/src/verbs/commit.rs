use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::{self, Finished, OthersArguments, Outcome};
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::{Committed, Others, TransactionId};
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Make a transaction's changes take effect
///
/// If someone else has changed the same things since it began, it is a
/// conflict: nothing is committed, and the transaction stays open. So it does
/// while others are in it, unless an option says otherwise. A nested
/// transaction becomes part of the outer one. Without TX: the transaction that this
/// runs in, or the only one you have open.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir commit
  atomdir commit 12
  atomdir commit --wait 12")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    #[command(flatten)]
    others: OthersArguments,
}

struct Done {
    transaction: TransactionId,
    committed: Committed,
}

impl Show for Done {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let changes = self.committed.changes;
        match self.committed.sequence {
            Some(sequence) => {
                writeln!(painter, "commit {sequence}: {}", counted(changes, "change"))
            }
            None if changes > 0 => writeln!(painter, "committed to the outer transaction"),
            None => writeln!(painter, "nothing had changed"),
        }
    }
}

impl Serialize for Done {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Finished {
            transaction: Some(self.transaction),
            result: Ok(Outcome::Committed(self.committed.clone())),
            exit_code: SUCCESS,
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
    let others = arguments.others.others();
    if others == Others::Wait && context.is_inside(&mut connected, transaction)? {
        return Err(Error::usage(format!(
            "transaction {transaction} is the one that this runs in: to wait for its end from \
             within would never end"
        )));
    }
    let committed = attempt::commit(context, &mut connected.connection, transaction, others)?;
    context.output.confirm(&Done {
        transaction,
        committed,
    })?;
    Ok(SUCCESS)
}
