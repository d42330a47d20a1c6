use super::{ExitCode, SUCCESS};
use crate::attempt::{BeginArguments, Partners};
use crate::context::Context;
use crate::enter::AlsoBound;
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
///
/// With several -C it begins a transaction in each store, and prints three more lines for each
/// further one: the store, the id and the view's path. They are linked: `commit`, `abort`, `exec`,
/// `shell`, `diff`, `status` and `conflicts` act on all of them, whichever is named, and all of
/// them commit or none.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir begin | { read transaction; read -r view; cp new.html \"$view\"/
                    atomdir commit \"$transaction\"; }
  atomdir -C /srv/site -C /srv/db begin")]
pub struct Arguments {
    #[command(flatten)]
    begin: BeginArguments,
}

#[derive(Serialize)]
struct Begun<'a> {
    transaction: u64,
    view: Text<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    linked: Vec<BegunElsewhere<'a>>,
}

/// In a further store.
#[derive(Serialize)]
struct BegunElsewhere<'a> {
    store: Text<'a>,
    transaction: u64,
    view: Text<'a>,
}

impl Show for Begun<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "{}", self.transaction)?;
        painter.name_line(self.view.0)?;
        for one in &self.linked {
            painter.name_line(one.store.0)?;
            writeln!(painter, "{}", one.transaction)?;
            painter.name_line(one.view.0)?;
        }
        Ok(())
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let begin = &arguments.begin;
    if !context.others().is_empty() {
        Partners::refuse_alone(begin)?;
    }
    let mut connected = context.connect()?;
    let mut partners = Partners::connect(context, &connected)?;
    let current = context.current(&connected);
    let options = begin.options(OsString::new(), false, current);
    partners.begin(&options)?;
    let connection = &mut connected.connection;
    let transaction = connection.begin(&options)?;
    let views = partners.enter(context)?;
    partners.link(connection, transaction.id)?;
    if let Some(age) = begin.max_age {
        connection.abort_after(transaction.id, age)?;
        partners.abort_after(age)?;
    }
    hand_over_all(context, (connection, &transaction), (&mut partners, &views))
}

/// Keeps the transaction open, and prints its id and where its view is.
pub(super) fn hand_over(
    context: &Context,
    connection: &mut Connection,
    transaction: &Transaction,
) -> Result<ExitCode, Error> {
    let alone = (&mut Partners::default(), &[][..]);
    hand_over_all(context, (connection, transaction), alone)
}

fn hand_over_all(
    context: &Context,
    (connection, transaction): (&mut Connection, &Transaction),
    (partners, views): (&mut Partners, &[AlsoBound]),
) -> Result<ExitCode, Error> {
    // A caller that gets the path will trust that it is a view.
    connection.enterable_root(transaction)?;
    // Only now, so that no transaction stays open if we are killed before we
    // have its id.
    partners.keep()?;
    connection.keep(transaction.id)?;
    connection.detach(transaction.id)?;
    let linked = partners.transactions().zip(views);
    let linked = linked.map(|((_, id), view)| BegunElsewhere {
        store: Text(view.base.as_os_str().as_bytes()),
        transaction: id.0,
        view: Text(view.path.as_os_str().as_bytes()),
    });
    let printed = context.output.print(&Begun {
        transaction: transaction.id.0,
        view: Text(transaction.view_path.as_os_str().as_bytes()),
        linked: linked.collect(),
    });
    if printed.is_err() {
        partners.abort();
        connection.abort(transaction.id)?;
    }
    printed?;
    Ok(SUCCESS)
}
