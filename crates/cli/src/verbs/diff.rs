use super::{ExitCode, SUCCESS};
use crate::attempt::Linked;
use crate::changes::{
    self, Affected, Between, ChangeList, Difference, Filter, Listing, Stat, Subject, name_of,
};
use crate::completion::transactions_or_commits;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{InStore, Painter, Show, Style, json::Text, quoted, to_json};
use crate::when::{self, When};
use atomdir::client::{ChangeLine, Failure, FailureKind, RequestError, Transaction};
use atomdir::{Sequence, TransactionId};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Show what a transaction has changed, or what differs between two commits
///
/// By default as a patch in git's format, from the transaction's snapshot to its view:
/// `git apply` makes the same changes to a copy of the files. Lines that start with `#`
/// say what git's format cannot, such as owners and empty directories; `git apply`
/// skips them.
///
/// A..B, or A B, compares the store as it was after two commits, and A.. with what is there
/// now. Instead of a commit there can be a time, as for `at`. Renames between commits are shown as
/// removals and additions. Only the store's owner and root can compare commits.
///
/// Of transactions of several stores that are linked, each store's changes follow a line with its path;
/// --name-only and --name-status show whole paths.
///
/// The short forms have a line for each change. Letters are A added, M modified,
/// D deleted, R renamed and T changed to another type.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir diff 12 --stat
  atomdir diff 12 --binary | git apply -
  atomdir diff 12 --name-status -z -- docs src
  atomdir diff 40..42 -- etc
  atomdir diff 2h..")]
pub struct Arguments {
    /// A transaction, by default the current one, or the only one open; or commits
    #[arg(value_name = "TX|A..B", num_args = 0..=2, value_parser = point)]
    #[arg(add = transactions_or_commits("of"))]
    of: Vec<Point>,
    #[command(flatten)]
    form: Form,
    /// Only what is at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

/// What is compared, or one side of it.
#[derive(Debug, Clone)]
enum Point {
    /// Alone, a transaction's id.
    Number(u64),
    Moment(When),
    /// `None`: now.
    Range(When, Option<When>),
}

fn point(text: &str) -> Result<Point, String> {
    if let Some((from, to)) = text.split_once("..") {
        let to = (!to.is_empty()).then(|| when::parse(to)).transpose()?;
        return Ok(Point::Range(when::parse(from)?, to));
    }
    match text.parse() {
        Ok(number) => Ok(Point::Number(number)),
        Err(_) => when::parse(text).map(Point::Moment),
    }
}

impl Point {
    fn when(&self) -> Option<When> {
        match self {
            Point::Number(number) => Some(When::Commit(Sequence(*number))),
            Point::Moment(when) => Some(*when),
            Point::Range(..) => None,
        }
    }
}

#[derive(Debug, Default, Args)]
pub(super) struct Form {
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
}

impl Form {
    pub(super) fn patch(binary: bool) -> Form {
        Form {
            binary,
            ..Form::default()
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let transaction = match &arguments.of[..] {
        [] => None,
        [Point::Number(id)] => Some(TransactionId(*id)),
        [Point::Range(from, to)] => return of_commits(arguments, context, (*from, *to)),
        [from, to] => match (from.when(), to.when()) {
            (Some(from), to @ Some(_)) => return of_commits(arguments, context, (from, to)),
            _ => return Err(Error::usage("two ranges cannot be compared")),
        },
        _ => return Err(Error::usage("name a transaction, or two commits: A..B")),
    };
    of_transaction(arguments, context, transaction)
}

fn of_commits(
    arguments: &Arguments,
    context: &Context,
    (from, to): (When, Option<When>),
) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let filter = Filter::new(&connected.root, &connected.start, &arguments.paths)?;
    let from = from.commit(&mut connected.connection)?;
    let to = to.map(|to| to.commit(&mut connected.connection));
    let range = (from, to.transpose()?);
    show_between(context, &mut connected, &arguments.form, (&filter, range))
}

/// Shows what differs between two commits, or a commit and now.
pub(super) fn show_between(
    context: &Context,
    connected: &mut Connected,
    form: &Form,
    (filter, range): (&Filter, (Sequence, Option<Sequence>)),
) -> Result<ExitCode, Error> {
    let output = context.output;
    output.page(|| show_unpaged(context, connected, form, (filter, range)))?;
    Ok(SUCCESS)
}

/// Like [`show_between`], as a part of a longer output.
pub(super) fn show_unpaged(
    context: &Context,
    connected: &mut Connected,
    form: &Form,
    (filter, range): (&Filter, (Sequence, Option<Sequence>)),
) -> Result<(), Error> {
    let between = Between::open(context, connected, filter, range)?;
    let shown = match form {
        Form { stat: true, .. } => print_stat(context, connected, &between),
        Form {
            name_only: false,
            name_status: false,
            ..
        } if !context.output.is_json() => between.patches(connected, |file| {
            let binary = form.binary;
            context.output.write(|painter| file.show(painter, binary))
        }),
        Form {
            name_only: false,
            name_status: false,
            ..
        } => print_contents(context, connected, &between),
        form => {
            let lines = between.lines(connected)?;
            match context.output.is_json() {
                true => context.output.print(&Named {
                    subject: between.subject(),
                    changes: ChangeList::new(&lines),
                }),
                false => write_names(form, context, &lines),
            }
        }
    };
    between.close(connected);
    shown
}

/// Changes between commits, without contents.
#[derive(Serialize)]
struct Named<'a> {
    #[serde(flatten)]
    subject: Subject,
    changes: ChangeList<'a>,
}

impl Show for Named<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        self.changes.show(painter)
    }
}

fn print_stat(
    context: &Context,
    connected: &mut Connected,
    between: &Between,
) -> Result<(), Error> {
    let lines = between.lines(connected)?;
    let mut stat = Stat::new(between.subject());
    for line in &lines {
        stat.push(&between.difference(connected, line)?);
    }
    context.output.print(&stat)
}

fn print_contents(
    context: &Context,
    connected: &mut Connected,
    between: &Between,
) -> Result<(), Error> {
    let lines = between.lines(connected)?;
    let head = to_json(&between.subject());
    let print = |text: String| {
        let write = |painter: &mut Painter<'_>| painter.exact(text.as_bytes());
        context.output.write(write)
    };
    print(format!(r#"{},"changes":["#, head.trim_end_matches('}')))?;
    let mut separator = "";
    for line in &lines {
        let difference = between.difference(connected, line)?;
        let json = difference.json().map_err(Error::Output)?;
        print(format!("{separator}{json}"))?;
        separator = ",";
    }
    print("]}\n".into())
}

/// The error for an id that is no open transaction. If it is the number of a commit, the hint says how to
/// see that one.
fn or_commit(failure: Failure, connected: &mut Connected, id: TransactionId) -> Error {
    let number = id.0;
    let is_commit = failure.kind == FailureKind::NoSuchTransaction
        && connected.connection.show(Sequence(number)).is_ok();
    let hint = match failure.hint.as_deref() {
        _ if !is_commit => None,
        Some(hint) => Some(format!("{hint}; ")),
        None => Some(String::new()),
    };
    let failure = match hint {
        Some(hint) => failure.with_hint(format!(
            "{hint}for commit {number}: `atomdir show {number} --patch`"
        )),
        None => failure,
    };
    Error::Request(RequestError::Failed(failure))
}

fn of_transaction(
    arguments: &Arguments,
    context: &Context,
    transaction: Option<TransactionId>,
) -> Result<ExitCode, Error> {
    let (found, id) = Linked::connect(context, transaction)?;
    match found {
        Err(mut connected) => {
            let paths = arguments.paths.iter();
            let paths: Vec<PathBuf> = paths
                .map(|path| connected.out_of_view(path).into_owned())
                .collect();
            let filter = Filter::new(&connected.root, &connected.start, &paths)?;
            let page = || {
                show_one(
                    &arguments.form,
                    context,
                    (&mut connected, id),
                    &filter,
                    None,
                )
            };
            context.output.page(page)?;
        }
        Ok(linked) => {
            linked.note_missing(context);
            let page = || show_linked(arguments, context, linked);
            context.output.page(page)?;
        }
    }
    Ok(SUCCESS)
}

/// Shows the changes in each store. In JSON it is a list.
fn show_linked(arguments: &Arguments, context: &Context, mut linked: Linked) -> Result<(), Error> {
    let form = &arguments.form;
    let is_json = context.output.is_json();
    let print = |text: &str| (context.output).write(|painter| painter.exact(text.as_bytes()));
    if is_json {
        print(r#"{"stores":["#)?;
    }
    let wanted = linked.by_store(&arguments.paths)?;
    for (place, (connected, id, paths)) in wanted.into_iter().enumerate() {
        let root = connected.root.clone();
        let filter = Filter::new(&root, Path::new(""), &paths)?;
        if is_json {
            print(if place == 0 { "" } else { "," })?;
        } else if !(form.name_only || form.name_status) {
            let heading = format!("# store {}", quoted(root.as_os_str().as_bytes()));
            (context.output).write(|painter| painter.line(Style::Heading, heading))?;
        }
        show_one(form, context, (connected, id), &filter, Some(&root))?;
    }
    match is_json {
        true => print("]}\n"),
        false => Ok(()),
    }
}

/// `store`: it is one of several.
fn show_one(
    form: &Form,
    context: &Context,
    (connected, id): (&mut Connected, TransactionId),
    filter: &Filter,
    store: Option<&Path>,
) -> Result<(), Error> {
    let lines = match connected.connection.changes(id) {
        Err(RequestError::Failed(failure)) => return Err(or_commit(failure, connected, id)),
        lines => lines?,
    };
    let wanted: Vec<ChangeLine> = lines
        .iter()
        .filter(|line| filter.wants(line))
        .cloned()
        .collect();
    if form.name_only || form.name_status {
        return show_names(form, context, id, (wanted, store));
    }
    let transaction = connected.connection.open_view(id)?;
    let mut differences = Differences {
        connected,
        transaction: &transaction,
        lines: &lines,
        wanted: &wanted,
    };
    if form.stat {
        print_in(context, store, differences.stat()?)
    } else if context.output.is_json() {
        differences.print_json(context, store)
    } else {
        differences.print_patch(context, filter, form.binary)
    }
}

/// Prints the result, which in JSON is a part of a list if it is one of several stores'.
fn print_in<T: Show>(context: &Context, store: Option<&Path>, result: T) -> Result<(), Error> {
    let Some(store) = store.filter(|_| context.output.is_json()) else {
        return context.output.print(&result);
    };
    let text = to_json(&InStore {
        store: store.to_owned(),
        result,
    });
    let write = |painter: &mut Painter<'_>| painter.exact(text.as_bytes());
    context.output.write(write)
}

/// Names in one of several stores are whole paths.
fn show_names(
    form: &Form,
    context: &Context,
    transaction: TransactionId,
    (mut lines, store): (Vec<ChangeLine>, Option<&Path>),
) -> Result<(), Error> {
    if context.output.is_json() {
        let listing = Listing::new(transaction, ChangeList::new(&lines));
        return print_in(context, store, listing);
    }
    if let Some(store) = store {
        let whole = |path: &mut Vec<u8>| {
            let joined = store.join(OsStr::from_bytes(path));
            *path = joined.into_os_string().into_vec();
        };
        for line in &mut lines {
            whole(&mut line.path);
            line.from.as_mut().map(whole);
        }
    }
    write_names(form, context, &lines)
}

fn write_names(form: &Form, context: &Context, lines: &[ChangeLine]) -> Result<(), Error> {
    let letters = form.name_status;
    context.output.write(|painter| match (form.null, letters) {
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

    fn print_json(&mut self, context: &Context, store: Option<&Path>) -> Result<(), Error> {
        let print = |text: String| {
            context
                .output
                .write(|painter| painter.exact(text.as_bytes()))
        };
        let store = store.map(|store| {
            let store = to_json(&Text(store.as_os_str().as_bytes()));
            format!(r#""store":{store},"#)
        });
        let (end, store) = match store {
            Some(store) => ("]}", store),
            None => ("]}\n", String::new()),
        };
        print(format!(
            r#"{{{store}"transaction":{},"changes":["#,
            self.transaction.id
        ))?;
        let mut separator = "";
        self.each(|difference| {
            let json = difference.json().map_err(Error::Output)?;
            print(format!("{separator}{json}"))?;
            separator = ",";
            Ok(())
        })?;
        print(end.to_owned())
    }

    fn stat(&mut self) -> Result<Stat<'a>, Error> {
        let mut stat = Stat::new(self.transaction.id.into());
        self.each(|difference| {
            stat.push(difference);
            Ok(())
        })?;
        Ok(stat)
    }
}
