use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::{self, Finished, OthersArguments, Outcome};
use crate::changes::{ChangeList, Named, PartJson, show_others};
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::{ChangeLine, Committed, CommittedPart, Others, TransactionId};
use clap::{Args, ValueHint};
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::path::PathBuf;

/// Make a transaction's changes take effect
///
/// If someone else has changed the same things since it began, it is a
/// conflict: nothing is committed, and the transaction stays open. So it does
/// while others are in it, unless an option says otherwise. A nested
/// transaction becomes part of the outer one. Without TX: the transaction that this
/// runs in, or the only one you have open.
///
/// With paths, only the changes at and below them take effect, and the transaction stays
/// open with the rest. What belongs together goes together: both ends of a rename, all
/// names of a file, new directories above; the command says so.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir commit
  atomdir commit 12
  atomdir commit --wait 12
  atomdir commit 12 -- docs index.html")]
pub struct Arguments {
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    #[command(flatten)]
    others: OthersArguments,
    /// Only what is at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
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

/// A part that has landed.
struct PartDone {
    transaction: TransactionId,
    part: CommittedPart,
    others: Vec<ChangeLine>,
}

impl Show for PartDone {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let transaction = self.transaction;
        let changes = counted(self.part.committed.changes, "change");
        match self.part.committed.sequence {
            Some(sequence) => {
                writeln!(
                    painter,
                    "commit {sequence}: {changes}; transaction {transaction} stays open"
                )?;
            }
            None => writeln!(
                painter,
                "nothing had changed; transaction {transaction} stays open"
            )?,
        }
        show_others(&self.others, painter)
    }
}

impl Serialize for PartDone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PartDoneJson<'a> {
            #[serde(flatten)]
            finished: Finished<'a>,
            open: bool,
            #[serde(flatten)]
            part: PartJson<'a>,
        }
        PartDoneJson {
            finished: Finished {
                transaction: Some(self.transaction),
                result: Ok(Outcome::Committed(self.part.committed.clone())),
                exit_code: SUCCESS,
            },
            open: true,
            part: PartJson {
                changes: ChangeList::new(&self.part.landed),
                together: ChangeList::new(&self.others),
            },
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
    if !arguments.paths.is_empty() {
        let named = Named::new(&connected, &arguments.paths)?;
        let connection = &mut connected.connection;
        let part = attempt::commit_part(context, connection, transaction, &named.paths, others)?;
        let others = named.others(&part.landed);
        context.output.confirm(&PartDone {
            transaction,
            part,
            others,
        })?;
        return Ok(SUCCESS);
    }
    let committed = attempt::commit(context, &mut connected.connection, transaction, others)?;
    context.output.confirm(&Done {
        transaction,
        committed,
    })?;
    Ok(SUCCESS)
}
