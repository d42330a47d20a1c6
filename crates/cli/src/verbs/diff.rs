use super::{ExitCode, SUCCESS};
use crate::arguments::transaction_id;
use crate::changes::{self, Affected, ChangeList, Difference, Filter, Listing, Stat, name_of};
use crate::completion::transactions;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::client::Transaction;
use atomdir::{ChangeLine, TransactionId};
use clap::{Args, ValueHint};
use std::io::{self, Write};
use std::path::PathBuf;

/// Show what a transaction has changed
///
/// By default as a patch in git's format, from the transaction's snapshot to its view:
/// `git apply` makes the same changes to a copy of the files. Lines that start with `#`
/// say what git's format cannot, such as owners and empty directories; `git apply`
/// skips them.
///
/// The short forms have a line for each change. Letters are A added, M modified,
/// D deleted, R renamed and T changed to another type.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir diff 12 --stat
  atomdir diff 12 --binary | git apply -
  atomdir diff 12 --name-status -z -- docs src")]
pub struct Arguments {
    /// By default the current one, or the only one open
    #[arg(value_name = "TX", value_parser = transaction_id, add = transactions())]
    transaction: Option<TransactionId>,
    /// Show a patch (the default)
    #[arg(short, long, group = "form")]
    patch: bool,
    /// In the patch, also show contents that are not text, for `git apply`
    #[arg(long, conflicts_with_all = ["stat", "name_only", "name_status"])]
    binary: bool,
    /// Count the lines added and removed
    #[arg(long, group = "form")]
    stat: bool,
    /// Show only the paths
    #[arg(long, group = "form")]
    name_only: bool,
    /// Show only the letters and the paths
    #[arg(long, group = "form")]
    name_status: bool,
    /// With --name-only or --name-status: end names with a NUL byte, unquoted
    #[arg(short = 'z', conflicts_with = "stat")]
    null: bool,
    /// Only what is at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, id) = context.connect_to(arguments.transaction)?;
    let paths = arguments.paths.iter();
    let paths: Vec<PathBuf> = paths
        .map(|path| connected.out_of_view(path).into_owned())
        .collect();
    let filter = Filter::new(&connected.root, &connected.start, &paths)?;
    let lines = connected.connection.changes(id)?;
    let wanted: Vec<ChangeLine> = lines
        .iter()
        .filter(|line| filter.wants(line))
        .cloned()
        .collect();
    if arguments.name_only || arguments.name_status {
        context
            .output
            .page(|| show_names(arguments, context, id, &wanted))?;
        return Ok(SUCCESS);
    }
    let transaction = connected.connection.open_view(id)?;
    let mut differences = Differences {
        connected: &mut connected,
        transaction: &transaction,
        lines: &lines,
        wanted: &wanted,
    };
    if arguments.stat {
        context.output.print_paged(&differences.stat()?)?;
    } else if context.output.is_json() {
        differences.print_json(context)?;
    } else {
        let print = || differences.print_patch(context, &filter, arguments.binary);
        context.output.page(print)?;
    }
    Ok(SUCCESS)
}

fn show_names(
    arguments: &Arguments,
    context: &Context,
    transaction: TransactionId,
    lines: &[ChangeLine],
) -> Result<(), Error> {
    if context.output.is_json() {
        return context
            .output
            .print(&Listing::new(transaction, ChangeList::new(lines)));
    }
    let letters = arguments.name_status;
    context
        .output
        .write(|painter| match (arguments.null, letters) {
            (true, _) => lines
                .iter()
                .try_for_each(|line| show_raw(painter, line, letters)),
            (false, true) => ChangeList::new(lines).show(painter),
            (false, false) => lines
                .iter()
                .try_for_each(|line| writeln!(painter, "{}", name_of(line))),
        })
}

/// As `git diff -z` has it: a rename's letter is followed by both names.
fn show_raw(painter: &mut Painter<'_>, line: &ChangeLine, letters: bool) -> io::Result<()> {
    if letters {
        painter.exact(format!("{}\0", line.change.letter()).as_bytes())?;
        if let Some(from) = &line.from {
            painter.exact(from)?;
            painter.exact(b"\0")?;
        }
    }
    painter.exact(&line.path)?;
    painter.exact(b"\0")
}

/// The changes, looked up one at a time: their contents need not fit in memory
/// together.
struct Differences<'a> {
    connected: &'a mut Connected,
    transaction: &'a Transaction,
    lines: &'a [ChangeLine],
    wanted: &'a [ChangeLine],
}

impl<'a> Differences<'a> {
    fn each(
        &mut self,
        mut use_it: impl FnMut(&Difference<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for line in self.wanted {
            use_it(&changes::difference(
                self.connected,
                self.transaction,
                self.lines,
                line,
            )?)?;
        }
        Ok(())
    }

    fn print_patch(
        &mut self,
        context: &Context,
        filter: &Filter,
        binary: bool,
    ) -> Result<(), Error> {
        let affected = Affected::find(self.connected, self.transaction, self.lines)?;
        affected.each(self.connected, self.transaction, filter, |file| {
            context.output.write(|painter| file.show(painter, binary))
        })
    }

    fn print_json(&mut self, context: &Context) -> Result<(), Error> {
        let print = |text: String| {
            context
                .output
                .write(|painter| painter.exact(text.as_bytes()))
        };
        print(format!(
            r#"{{"transaction":{},"changes":["#,
            self.transaction.id
        ))?;
        let mut separator = "";
        self.each(|difference| {
            let json = difference.json().map_err(Error::Output)?;
            print(format!("{separator}{json}"))?;
            separator = ",";
            Ok(())
        })?;
        print("]}\n".into())
    }

    fn stat(&mut self) -> Result<Stat<'a>, Error> {
        let mut stat = Stat::new(self.transaction.id);
        self.each(|difference| {
            stat.push(difference);
            Ok(())
        })?;
        Ok(stat)
    }
}
