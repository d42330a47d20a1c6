use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::attempt::Linked;
use crate::changes::{ChangeList, Named, PartJson, show_others};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::TransactionId;
use atomdir::client::ChangeLine;
use clap::{Args, ValueHint};
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::path::PathBuf;

/// Drop a transaction's changes
///
/// The changes of transactions nested in it are dropped, too, and so are those of transactions of other
/// stores that are linked with it.
///
/// With paths, only the changes at and below them are dropped, and changes that depend on
/// them, such as files in a new directory that is dropped. The transaction stays open with
/// the rest.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir abort
  atomdir abort 12
  atomdir abort --all
  atomdir abort 12 -- build notes.orig")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// Abort every open transaction that you may abort
    #[arg(long, conflicts_with = "transaction")]
    all: bool,
    /// Abort when nobody else is in the transaction any more
    #[arg(long, conflicts_with_all = ["all", "paths"])]
    wait: bool,
    /// Only what is at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    #[arg(conflicts_with = "all")]
    paths: Vec<PathBuf>,
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

/// A part that was dropped.
struct PartAborted {
    transaction: TransactionId,
    dropped: Vec<ChangeLine>,
    others: Vec<ChangeLine>,
}

impl Show for PartAborted {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let (count, transaction) = (self.dropped.len() as u64, self.transaction);
        writeln!(
            painter,
            "dropped {}; transaction {transaction} stays open",
            counted(count, "change")
        )?;
        show_others(&self.others, painter)
    }
}

impl Serialize for PartAborted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PartAbortedJson<'a> {
            transaction: u64,
            open: bool,
            #[serde(flatten)]
            part: PartJson<'a>,
        }
        PartAbortedJson {
            transaction: self.transaction.0,
            open: true,
            part: PartJson {
                changes: ChangeList::new(&self.dropped),
                together: ChangeList::new(&self.others),
            },
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let aborted = if arguments.all {
        match context.connect_if_open()? {
            Some(connected) => abort_all(context, connected)?,
            // This reports that no service runs.
            None => context.connect_to_running()?.connection.abort_all()?,
        }
    } else {
        let (mut connected, transaction) = context.connect_to(arguments.transaction)?;
        if !arguments.paths.is_empty() {
            return abort_part(&arguments.paths, context, connected, transaction);
        }
        if arguments.wait {
            context.refuse_to_wait_inside(&mut connected, transaction)?;
        } else if arguments.transaction.is_none() && context.current(&connected).is_none() {
            refuse_if_in_use(&mut connected, transaction)?;
        }
        match Linked::find(context, connected, transaction) {
            Ok(mut linked) => linked.abort(context, arguments.wait)?,
            Err(mut connected) if arguments.wait => {
                connected.connection.abort_when_free(transaction)?;
                1
            }
            Err(mut connected) => {
                connected.connection.abort(transaction)?;
                1
            }
        }
    };
    context.output.confirm(&Aborted { aborted })?;
    Ok(SUCCESS)
}

/// Those that are linked with the user's own are aborted in the other stores as well.
fn abort_all(context: &Context, mut connected: Connected) -> Result<u64, Error> {
    let user = rustix::process::geteuid().as_raw();
    let mut linked = connected.connection.transactions()?;
    linked.retain(|one| one.owner == user && !one.linked.is_empty());
    let mut aborted = 0;
    for one in linked {
        if let Ok(mut linked) = Linked::find(context, context.connect()?, one.transaction) {
            aborted += linked.abort(context, false)?;
        }
    }
    Ok(aborted + connected.connection.abort_all()?)
}

fn abort_part(
    paths: &[PathBuf],
    context: &Context,
    mut connected: Connected,
    transaction: TransactionId,
) -> Result<ExitCode, Error> {
    let named = Named::new(&connected, paths)?;
    let dropped = connected.connection.abort_part(transaction, &named.paths)?;
    let others = named.others(&dropped);
    context.output.confirm(&PartAborted {
        transaction,
        dropped,
        others,
    })?;
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
