use super::commit::Done;
use super::{ExitCode, SUCCESS};
use crate::attempt;
use crate::changes::{ChangeList, Listing, paths_in_store};
use crate::completion::commits;
use crate::context::{Connected, Context};
use crate::error::Error;
use atomdir::Sequence;
use atomdir::client::{
    BeginOptions, CommitError, Connection, Others, Transaction, Undo, ViewChoice,
};
use clap::{Args, ValueHint};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// More commits than the history of a store holds in practice.
const COMMITS_MAX: u64 = 1_000_000;

/// Take back what commits changed
///
/// The undo is a transaction of its own, and a commit like any other: it can be undone as
/// well. It takes back what these commits changed, and nothing else. If any of that was
/// changed again later, by another commit or from outside, nothing is undone. Only the
/// store's owner and root can undo commits. `atomdir config history-age` shows for how long
/// that is possible.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir undo 41
  atomdir undo --dry-run 38..41
  atomdir undo 41 -- etc/site.conf")]
pub struct Arguments {
    /// The commits, as `atomdir log` lists them; FIRST..LAST means all of these
    #[arg(value_name = "COMMIT", required = true, value_parser = range, add = commits())]
    commits: Vec<RangeInclusive<u64>>,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "keep")]
    dry_run: bool,
    /// Do not commit yet: print the transaction's id and its view's path, as `begin` does
    #[arg(long)]
    keep: bool,
    /// What the log says of it; by default this command line
    #[arg(short, long, value_name = "TEXT")]
    message: Option<OsString>,
    /// Only what the commits changed at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let parse = |text: &str| {
        let wrong = || "it is neither a commit's number nor a range such as 10..12".to_owned();
        text.parse().map_err(|_| wrong())
    };
    let (first, last) = (parse(first)?, parse(last)?);
    if first > last {
        return Err("the first commit of a range comes before the last".to_owned());
    }
    if last - first >= COMMITS_MAX {
        return Err(format!("a range holds at most {COMMITS_MAX} commits"));
    }
    Ok(first..=last)
}

impl Arguments {
    fn undo(&self, connected: &Connected) -> Result<Undo, Error> {
        let mut commits: Vec<u64> = self.commits.iter().cloned().flatten().collect();
        commits.sort_unstable();
        commits.dedup();
        Ok(Undo {
            commits: commits.into_iter().map(Sequence).collect(),
            paths: paths_in_store(connected, &self.paths)?,
            equal: Vec::new(),
        })
    }

    fn label(&self) -> Vec<u8> {
        if let Some(message) = &self.message {
            return message.as_bytes().to_vec();
        }
        let mut label = b"undo".to_vec();
        for range in &self.commits {
            let (first, last) = (range.start(), range.end());
            let word = match first == last {
                true => format!(" {first}"),
                false => format!(" {first}..{last}"),
            };
            label.extend(word.into_bytes());
        }
        add_paths(&mut label, &self.paths);
        label
    }
}

pub(super) fn add_paths(label: &mut Vec<u8>, paths: &[PathBuf]) {
    for (at, path) in paths.iter().enumerate() {
        label.extend(if at == 0 { &b" -- "[..] } else { b" " });
        label.extend(path.as_os_str().as_bytes());
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let connected = context.connect()?;
    let undo = arguments.undo(&connected)?;
    let wish = Wish {
        label: arguments.label(),
        keep: arguments.keep,
        dry_run: arguments.dry_run,
    };
    bring_back(context, connected, wish, |connection, options| {
        connection.undo(undo, options)
    })
}

/// A transaction that brings something back, and what is to become of it.
pub(super) struct Wish {
    pub label: Vec<u8>,
    pub keep: bool,
    pub dry_run: bool,
}

/// Begins the transaction, and commits it unless it is only to be shown or kept.
pub(super) fn bring_back(
    context: &Context,
    mut connected: Connected,
    wish: Wish,
    begin: impl FnOnce(&mut Connection, &BeginOptions) -> Result<Transaction, CommitError>,
) -> Result<ExitCode, Error> {
    let options = BeginOptions {
        label: wish.label,
        view: ViewChoice::Exact,
        opened: true,
        ..BeginOptions::default()
    };
    let connection = &mut connected.connection;
    let transaction = begin(connection, &options).map_err(Error::Undo)?;
    if wish.keep {
        return super::begin::hand_over(context, connection, &transaction);
    }
    if wish.dry_run {
        let lines = connection.changes(transaction.id)?;
        let listing = Listing::new(transaction.id, ChangeList::new(&lines));
        context.output.print(&listing)?;
        connection.abort(transaction.id)?;
        return Ok(SUCCESS);
    }
    let transaction = transaction.id;
    let committed = attempt::commit(context, connection, transaction, Others::Refuse);
    let committed = committed.map_err(|error| given_up(connection, error))?;
    context.output.confirm(&Done {
        transaction,
        committed,
    })?;
    Ok(SUCCESS)
}

/// The transaction ends with this command, so it is aborted before the failure is reported.
fn given_up(connection: &mut Connection, error: Error) -> Error {
    match error {
        Error::Commit {
            transaction,
            source,
            open: true,
        } if connection.abort(transaction).is_ok() => Error::NotBroughtBack {
            transaction,
            source,
        },
        error => error,
    }
}
