mod system;

use super::commit::Done;
use super::{ExitCode, SUCCESS};
use crate::attempt;
use crate::changes::{ChangeList, Listing, paths_in_store};
use crate::completion::commits_and_words;
use crate::context::{Connected, Context};
use crate::error::{Error, conflict_line};
use crate::output::{Output, Painter, Show, escaped};
use crate::system::SystemArguments;
use crate::which::{self, Chosen, Which};
use atomdir::client::{
    BeginOptions, Conflict, Connection, Others, Progress, SidePaths, Transaction, Undo, ViewChoice,
};
use clap::{Args, ValueHint};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// So many commits and paths are named, and the rest counted.
const NAMED_MAX: usize = 20;

/// Take back what commits changed
///
/// The undo is a transaction of its own, and a commit like any other: it can be undone as
/// well. It takes back what these commits changed, and nothing else. Without COMMIT, that is the
/// newest commit, whatever it was.
///
/// If any of that was changed again later, nothing is undone, and a list says what is in the way and
/// whose change it is. Then take a side: --take-theirs leaves the later changes as they
/// are and takes back the rest. --take-mine overwrites them: what was there before the commits comes
/// back. It overwrites only what it finds when it begins; a change after that refuses the
/// undo. The undo can be undone, which brings the later changes back.
///
/// The store's owner and root can undo all commits, and other users their own. `atomdir config
/// history-age` shows for how long that is possible.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  atomdir undo
  atomdir undo 41
  atomdir undo --dry-run 38..
  atomdir undo 41 -- etc/site.conf
  atomdir undo yesterday --take-theirs
  atomdir undo 41 --take-mine=etc/site.conf --skip var
  atomdir undo --system")]
pub struct Arguments {
    /// The commits, as `atomdir log` lists them; FIRST..LAST means all of these, FIRST.. all from
    /// there on. `last` (or HEAD) is the newest, `last~1` the one before it. A time means all commits
    /// since then: 2h (ago), yesterday, a date and time. With --system: as `log --system` lists them
    #[arg(value_name = "COMMIT|TIME", value_parser = which::parse, add = commits_and_words())]
    commits: Vec<Which>,
    /// Where something was changed again later, at or below PATH or anywhere: overwrite that with
    /// what was there before the commits
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "", value_hint = ValueHint::AnyPath)]
    take_mine: Vec<OsString>,
    /// Where something was changed again later, at or below PATH or anywhere: leave that as it is,
    /// and take back the rest
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "", value_hint = ValueHint::AnyPath)]
    take_theirs: Vec<OsString>,
    /// Leave everything at or below this path as it is, changed again or not
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    skip: Vec<PathBuf>,
    /// If the undo is refused, list all paths that are in the way, not only the first
    #[arg(long)]
    all: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "keep")]
    dry_run: bool,
    /// Do not commit yet: print the transaction's id and its view's path, as `begin` does
    #[arg(long)]
    keep: bool,
    /// What the log says of it; by default which commits it takes back
    #[arg(short, long, value_name = "TEXT")]
    message: Option<OsString>,
    /// Only what the commits changed at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    system: SystemArguments,
}

impl Arguments {
    fn undo(&self, connected: &Connected, chosen: &Chosen) -> Result<Undo, Error> {
        let mine = side(connected, &self.take_mine)?;
        let theirs = side(connected, &self.take_theirs)?;
        if (&mine, &theirs) == (&SidePaths::Others, &SidePaths::Others) {
            return Err(Error::usage(
                "only one side can be taken everywhere: name paths for the other, as in \
                 --take-mine=PATH",
            ));
        }
        Ok(Undo {
            commits: chosen.commits.clone(),
            paths: paths_in_store(connected, &self.paths)?,
            equal: Vec::new(),
            skip: paths_in_store(connected, &self.skip)?,
            mine,
            theirs,
        })
    }

    fn label(&self, undo: &Undo) -> Vec<u8> {
        if let Some(message) = &self.message {
            return message.as_bytes().to_vec();
        }
        let mut label = b"undo".to_vec();
        let mut commits = undo.commits.iter().map(|commit| commit.0).peekable();
        while let Some(first) = commits.next() {
            let mut last = first;
            while let Some(next) = commits.next_if_eq(&(last + 1)) {
                last = next;
            }
            let word = match first == last {
                true => format!(" {first}"),
                false => format!(" {first}..{last}"),
            };
            label.extend(word.into_bytes());
        }
        for (option, values) in [
            ("--take-mine", &self.take_mine),
            ("--take-theirs", &self.take_theirs),
        ] {
            for value in values {
                label.extend(format!(" {option}").into_bytes());
                let path = [b"=", value.as_bytes()].concat();
                label.extend(
                    Some(path)
                        .filter(|path| path.len() > 1)
                        .into_iter()
                        .flatten(),
                );
            }
        }
        for path in &self.skip {
            label.extend([b" --skip ", path.as_os_str().as_bytes()].concat());
        }
        add_paths(&mut label, &self.paths);
        label
    }
}

fn side(connected: &Connected, values: &[OsString]) -> Result<SidePaths, Error> {
    if values.iter().any(|value| value.is_empty()) {
        if values.len() > 1 {
            return Err(Error::usage(
                "a side is taken everywhere or at some paths, not both",
            ));
        }
        return Ok(SidePaths::Others);
    }
    let paths: Vec<PathBuf> = values.iter().map(PathBuf::from).collect();
    Ok(SidePaths::These(paths_in_store(connected, &paths)?))
}

pub(super) fn add_paths(label: &mut Vec<u8>, paths: &[PathBuf]) {
    for (at, path) in paths.iter().enumerate() {
        label.extend(if at == 0 { &b" -- "[..] } else { b" " });
        label.extend(path.as_os_str().as_bytes());
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if let Some(of_system) = arguments.system.context(context)? {
        return system::run(arguments, context.directory(), &of_system);
    }
    let mut connected = context.connect()?;
    let chosen = which::choose(&mut connected.connection, &arguments.commits)?;
    name_commits(&context.output, &chosen);
    let undo = arguments.undo(&connected, &chosen)?;
    let wish = Wish {
        label: arguments.label(&undo),
        keep: arguments.keep,
        dry_run: arguments.dry_run,
    };
    let sides = (undo.mine.clone(), undo.theirs.clone());
    let undone = undo.commits.iter().map(|commit| commit.0).collect();
    bring_back(context, connected, wish, |connection, options| {
        let begun = showing_progress(context, |progress| connection.undo(undo, options, progress));
        let (transaction, sided) = begun.map_err(|source| Error::NotUndone {
            source,
            lists_all: arguments.all,
        })?;
        let mut report = name_sides(&context.output, &sided, &sides);
        report.undone = undone;
        Ok((transaction, report))
    })
}

/// Says which commits are meant by words, times and ranges without end.
fn name_commits(output: &Output, chosen: &Chosen) {
    for commit in chosen.found.iter().take(NAMED_MAX) {
        let (sequence, label) = (commit.sequence, escaped(&commit.label));
        let label = if label.is_empty() {
            String::new()
        } else {
            format!(": {label}")
        };
        output.note(format_args!("takes back commit {sequence}{label}"));
    }
    let more = chosen.found.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        let oldest = chosen.commits.first().map_or(0, |commit| commit.0);
        output.note(format_args!(
            "and {more} older ones, back to commit {oldest}"
        ));
    }
}

/// The result of an undo, for programs.
#[derive(Default, Serialize)]
pub(super) struct Report {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    undone: Vec<u64>,
    /// The paths at which it overwrites later changes, and those at which it leaves them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overwrites: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    leaves: Vec<String>,
}

/// Says at which paths a side was taken, and which.
fn name_sides(
    output: &Output,
    sided: &[Conflict],
    (mine, theirs): &(SidePaths, SidePaths),
) -> Report {
    let mut report = Report::default();
    let mut paths: BTreeMap<&[u8], String> = BTreeMap::new();
    for conflict in sided {
        let path = &conflict.path[..];
        if paths.contains_key(path) {
            continue;
        }
        let is_mine = match (mine.closeness(path), theirs.closeness(path)) {
            (None, None) => *mine == SidePaths::Others,
            (mine, theirs) => mine > theirs,
        };
        let (what, list) = match is_mine {
            true => ("overwrites", &mut report.overwrites),
            false => ("leaves", &mut report.leaves),
        };
        list.push(String::from_utf8_lossy(path).into_owned());
        paths.insert(path, format!("{what} {}", conflict_line(conflict)));
    }
    let more = paths.len().saturating_sub(NAMED_MAX);
    for line in paths.values().take(NAMED_MAX) {
        output.note(line);
    }
    if more > 0 {
        output.note(format_args!("and {more} more paths"));
    }
    report
}

struct BroughtBack {
    done: Done,
    report: Report,
}

impl Show for BroughtBack {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.done.show(painter)
    }
}

impl Serialize for BroughtBack {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Both<'a> {
            #[serde(flatten)]
            done: &'a Done,
            #[serde(flatten)]
            report: &'a Report,
        }
        let (done, report) = (&self.done, &self.report);
        Both { done, report }.serialize(serializer)
    }
}

/// Shows how far the begin of such a transaction has come.
pub(super) fn showing_progress<T>(
    context: &Context,
    begin: impl FnOnce(&mut dyn FnMut(Progress)) -> T,
) -> T {
    let mut line = context.output.progress("looking back");
    begin(&mut |progress| {
        if let Progress::Steps { done, total } = progress {
            line.update(done, total);
        }
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
    begin: impl FnOnce(&mut Connection, &BeginOptions) -> Result<(Transaction, Report), Error>,
) -> Result<ExitCode, Error> {
    let options = BeginOptions {
        label: wish.label,
        view: ViewChoice::Exact,
        opened: true,
        ..BeginOptions::default()
    };
    let connection = &mut connected.connection;
    let (transaction, report) = begin(connection, &options)?;
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
    let done = Done {
        transaction,
        committed,
    };
    context.output.confirm(&BroughtBack { done, report })?;
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
