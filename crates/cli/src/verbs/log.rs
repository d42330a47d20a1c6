use super::diff::{Form, show_unpaged};
use super::{ExitCode, SUCCESS};
use crate::attempt::early_reason;
use crate::changes::Filter;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, time, user_name};
use crate::system::{self, SystemArguments};
use crate::when::{self, When};
use atomdir::client::{Account, CommitFilter, ForgottenEarly, HistoryStatus, Unconfirmed};
use atomdir::{CommitSummary, Sequence};
use clap::{Args, ValueHint};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// List the commits, newest first
///
/// Marked are commits that are undone, those that are forgotten, so that they cannot be undone,
/// those that are pinned, and those that wait to be confirmed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir log -n 10
  atomdir log --since 2h --user alice
  atomdir log --grep upgrade --patch
  atomdir log -- etc/site.conf")]
pub struct Arguments {
    /// At most so many
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = u64::MAX)]
    #[arg(hide_default_value = true, value_parser = crate::arguments::number::<u64>)]
    // So that the message about a negative number says what is wrong with it.
    #[arg(allow_negative_numbers = true)]
    limit: u64,
    /// Only those made since then: 2h (ago), a date and time, or after the commit of this number
    #[arg(long, value_name = "WHEN", value_parser = when::parse, conflicts_with = "system")]
    since: Option<When>,
    /// Only those whose label contains this text, in upper or lower case
    #[arg(long, value_name = "TEXT", conflicts_with = "system")]
    grep: Option<OsString>,
    /// Only those of this user
    #[arg(long, value_name = "USER", value_parser = user, conflicts_with = "system")]
    user: Option<u32>,
    /// Only numbers and labels, a line for each
    #[arg(long)]
    oneline: bool,
    /// Also show the contents that each changed, as `show --patch` does
    #[arg(short, long, conflicts_with = "system")]
    patch: bool,
    /// Only those that changed something at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath, conflicts_with = "system")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    system: SystemArguments,
}

fn user(text: &str) -> Result<u32, String> {
    let found = Account::named(text).map(|account| account.user);
    let number = || text.parse().ok();
    found
        .or_else(number)
        .ok_or_else(|| "there is no such user".to_owned())
}

struct Log {
    commits: Vec<CommitSummary>,
    is_brief: bool,
    history: Option<HistoryStatus>,
}

impl Show for Log {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for commit in &self.commits {
            painter.paint(Style::Heading, format!("{:>6}", commit.sequence.0))?;
            let marks = marks(commit);
            let label = escaped(&commit.label);
            if self.is_brief {
                writeln!(painter, "  {marks}{label}")?;
                continue;
            }
            let time = time::readable(commit.time);
            let changes = counted(commit.changes, "change");
            writeln!(
                painter,
                "  {time}  {:8}  {changes:>12}  {marks}{label}",
                user_name(commit.user),
            )?;
        }
        let early = self.history.and_then(|history| history.early);
        let is_listed = |newest| self.commits.iter().any(|one| one.sequence <= newest);
        match early.filter(|early| is_listed(early.newest)) {
            Some(early) => writeln!(painter, "{}", forgotten_early(&early)),
            None => Ok(()),
        }
    }
}

pub(super) fn forgotten_early(early: &ForgottenEarly) -> String {
    format!(
        "commits up to {} were forgotten early, at {}: {}",
        early.newest,
        time::readable(early.time),
        early_reason(early.why)
    )
}

/// Says what has become of commits that the user may have to know.
pub(super) fn note_commits(context: &Context, connected: &mut Connected) -> Result<(), Error> {
    let status = connected.connection.service_status()?;
    for (commit, one) in &status.unconfirmed {
        let waits = unconfirmed(one);
        context
            .output
            .note(format_args!("commit {commit}: {waits}"));
    }
    if let Some(early) = status.history.and_then(|history| history.early) {
        context.output.note(forgotten_early(&early));
    }
    Ok(())
}

/// What has become of a commit: words in brackets and a blank, or nothing.
pub fn marks(commit: &CommitSummary) -> String {
    let marks = &commit.marks;
    let mut words = Vec::new();
    words.extend(marks.undone_by.map(|by| format!("undone by {by}")));
    words.extend(marks.forgotten.then(|| "forgotten".to_owned()));
    words.extend(marks.pinned.then(|| "pinned".to_owned()));
    words.extend(marks.unconfirmed.as_ref().map(unconfirmed));
    match words.is_empty() {
        true => String::new(),
        false => format!("[{}] ", words.join(", ")),
    }
}

pub(super) fn unconfirmed(one: &Unconfirmed) -> String {
    match one.refused {
        None => format!("to be confirmed by {}", time::readable(one.due)),
        Some(0) => "not confirmed, and forgotten before it was taken back".to_owned(),
        Some(_) => "not confirmed, and not taken back: changed since".to_owned(),
    }
}

impl Serialize for Log {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let commits: Vec<_> = self.commits.iter().map(json::Commit::from).collect();
        let mut object = serializer.serialize_struct("Log", 1)?;
        object.serialize_field("commits", &commits)?;
        object.end()
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if let Some(context) = arguments.system.context(context)? {
        system::log(&context, arguments.limit, arguments.oneline)?;
        return Ok(SUCCESS);
    }
    let mut connected = context.connect()?;
    let filter = Filter::new(&connected.root, &connected.start, &arguments.paths)?;
    let after = match arguments.since {
        Some(When::Commit(commit)) => commit,
        _ => Sequence(0),
    };
    let only = CommitFilter {
        since: match arguments.since {
            Some(When::At(moment)) => Some(moment),
            _ => None,
        },
        user: arguments.user,
        label: arguments
            .grep
            .clone()
            .map_or_else(Vec::new, OsString::into_vec),
    };
    let connection = &mut connected.connection;
    let mut commits = connection.log_only((&filter, only), None, arguments.limit)?;
    commits.retain(|commit| commit.sequence > after);
    if arguments.patch {
        return patches(context, &mut connected, &filter, commits);
    }
    let history = connected.connection.service_status()?.history;
    context.output.print_paged(&Log {
        commits,
        is_brief: arguments.oneline,
        history,
    })?;
    Ok(SUCCESS)
}

/// Shows each commit with what it changed.
fn patches(
    context: &Context,
    connected: &mut Connected,
    filter: &Filter,
    commits: Vec<CommitSummary>,
) -> Result<ExitCode, Error> {
    context.output.page(|| {
        for commit in commits {
            let sequence = commit.sequence;
            let is_forgotten = commit.marks.forgotten;
            context.output.print(&Log {
                commits: vec![commit],
                is_brief: false,
                history: None,
            })?;
            if is_forgotten {
                continue;
            }
            let before = Sequence(sequence.0.saturating_sub(1));
            let range = (before, Some(sequence));
            show_unpaged(context, connected, &Form::patch(false), (filter, range))?;
        }
        Ok(())
    })?;
    Ok(SUCCESS)
}
