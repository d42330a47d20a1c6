use super::ExitCode;
use super::begin::hand_over;
use crate::arguments::transaction_id;
use crate::completion::transactions;
use crate::context::Context;
use crate::error::Error;
use atomdir::TransactionId;
use atomdir::client::{BeginOptions, ViewChoice};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Begin a second transaction from the present state of an open one
///
/// Prints its id, and its view's path on the second line. The view shows what the first one shows
/// now. From then on the two are independent: each is committed or aborted by itself, and where both
/// have changed the same in different ways, the first to commit wins.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir fork 17 | { read transaction; read -r view; ./other-way \"$view\"/
                      atomdir commit \"$transaction\" && atomdir abort 17; }")]
pub struct Arguments {
    /// The transaction; by default the one that this runs in, or the only one you have open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// What the log calls the new transaction
    #[arg(short, long)]
    message: Option<OsString>,
    /// Abort the new one after T (30s, 10m, 2h) if it is still open
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    max_age: Option<Duration>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, of) = context.connect_to(arguments.transaction)?;
    let connection = &mut connected.connection;
    let fork = connection.begin(&BeginOptions {
        fork_of: Some(of),
        label: arguments.message.clone().unwrap_or_default().into_vec(),
        view: ViewChoice::Exact,
        opened: true,
        ..BeginOptions::default()
    })?;
    if let Some(age) = arguments.max_age {
        connection.abort_after(fork.id, age)?;
    }
    hand_over(context, connection, &fork)
}
