use super::{ExitCode, SUCCESS};
use crate::attempt::BeginArguments;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text};
use atomdir::client::{Connection, Transaction};
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Begin a transaction and print its id, and its view's path on the second line
///
/// The view is a directory that shows the store as of now plus the
/// transaction's own changes. It stays until `commit` or `abort`. Inside a
/// transaction it is nested: it shows and changes the state of the outer one.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir begin | { read transaction; read -r view; cp new.html \"$view\"/
                    atomdir commit \"$transaction\"; }")]
pub struct Arguments {
    #[command(flatten)]
    begin: BeginArguments,
}

#[derive(Serialize)]
struct Begun<'a> {
    transaction: u64,
    view: Text<'a>,
}

impl Show for Begun<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "{}", self.transaction)?;
        painter.name_line(self.view.0)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let current = context.current(&connected);
    let options = arguments.begin.options(OsString::new(), false, current);
    let connection = &mut connected.connection;
    let transaction = connection.begin(&options)?;
    if let Some(age) = arguments.begin.max_age {
        connection.abort_after(transaction.id, age)?;
    }
    hand_over(context, connection, &transaction)
}

/// Keeps the transaction open, and prints its id and where its view is.
pub(super) fn hand_over(
    context: &Context,
    connection: &mut Connection,
    transaction: &Transaction,
) -> Result<ExitCode, Error> {
    // A caller that gets the path will trust that it is a view.
    connection.enterable_root(transaction)?;
    // Only now, so that no transaction stays open if we are killed before we
    // have its id.
    connection.keep(transaction.id)?;
    connection.detach(transaction.id)?;
    let printed = context.output.print(&Begun {
        transaction: transaction.id.0,
        view: Text(transaction.view_path.as_os_str().as_bytes()),
    });
    if printed.is_err() {
        connection.abort(transaction.id)?;
    }
    printed?;
    Ok(SUCCESS)
}
