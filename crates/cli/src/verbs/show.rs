use super::diff::{Form, show_between};
use super::{ExitCode, SUCCESS};
use crate::changes::{ChangeList, Filter};
use crate::completion::commits;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, time, user_name};
use atomdir::Sequence;
use atomdir::client::CommitDetails;
use clap::{Args, ValueHint};
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::path::PathBuf;

/// Show what a commit changed
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir show 41
  atomdir show 41 --patch
  atomdir show 41 -- etc/site.conf")]
pub struct Arguments {
    /// The commit's number, as `atomdir log` lists it
    #[arg(value_name = "COMMIT", value_parser = crate::arguments::number::<u64>)]
    #[arg(add = commits())]
    commit: u64,
    /// Also show the contents, as a patch in git's format; as `atomdir diff`, only for the store's
    /// owner and root, and as far as the history goes back
    #[arg(short, long)]
    patch: bool,
    /// In the patch, also show contents that are not text, for `git apply`
    #[arg(long, requires = "patch")]
    binary: bool,
    /// Only what is at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

struct Details {
    commit: CommitDetails,
    /// How many changes the store no longer lists.
    left_out: u64,
}

impl Show for Details {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let CommitDetails { summary, changes } = &self.commit;
        painter.line(Style::Heading, format!("commit {}", summary.sequence))?;
        writeln!(painter, "transaction {}", summary.transaction)?;
        writeln!(painter, "time        {}", time::readable(summary.time))?;
        writeln!(painter, "user        {}", user_name(summary.user))?;
        if !summary.label.is_empty() {
            writeln!(painter, "label       {}", escaped(&summary.label))?;
        }
        let marks = super::log::marks(summary);
        if !marks.is_empty() {
            writeln!(painter, "now         {}", marks.trim_end())?;
        }
        writeln!(painter)?;
        if self.left_out > 0 {
            let changes = counted(self.left_out, "change");
            let why = "no longer listed, since the list took more space than other users' lists";
            writeln!(painter, "{changes}, {why}")?;
        }
        ChangeList::new(changes).show(painter)
    }
}

#[derive(Serialize)]
struct DetailsJson<'a> {
    #[serde(flatten)]
    summary: json::Commit<'a>,
    changes: Vec<json::Change<'a>>,
}

impl Serialize for Details {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        DetailsJson {
            summary: json::Commit::from(&self.commit.summary),
            changes: json::changes(&self.commit.changes, None),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let filter = Filter::new(&connected.root, &connected.start, &arguments.paths)?;
    let mut details = connected.connection.show(Sequence(arguments.commit))?;
    let listed = details.changes.len() as u64;
    let left_out = details.summary.changes.saturating_sub(listed);
    details.changes = filter.of_commit(&details.changes);
    if !arguments.patch {
        context.output.print_paged(&Details {
            commit: details,
            left_out,
        })?;
        return Ok(SUCCESS);
    }
    if !context.output.is_json() {
        context.output.print(&Details {
            commit: details,
            left_out,
        })?;
    }
    let before = Sequence(arguments.commit.saturating_sub(1));
    let range = (before, Some(Sequence(arguments.commit)));
    let form = Form::patch(arguments.binary);
    show_between(context, &mut connected, &form, (&filter, range))
}
