use super::{ExitCode, SUCCESS};
use crate::changes::Filter;
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, time, user_name};
use atomdir::CommitSummary;
use clap::{Args, ValueHint};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::io::{self, Write};
use std::path::PathBuf;

/// List the commits, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir log -n 10
  atomdir log -- etc/site.conf")]
pub struct Arguments {
    /// At most so many
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = u64::MAX)]
    #[arg(hide_default_value = true, value_parser = crate::arguments::number::<u64>)]
    // So that the message about a negative number says what is wrong with it.
    #[arg(allow_negative_numbers = true)]
    limit: u64,
    /// Only those that changed something at or below these paths
    #[arg(value_name = "PATH", last = true, value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

struct Log(Vec<CommitSummary>);

impl Show for Log {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for commit in &self.0 {
            painter.paint(Style::Heading, format!("{:>6}", commit.sequence.0))?;
            let time = time::readable(commit.time);
            let changes = counted(commit.changes, "change");
            writeln!(
                painter,
                "  {time}  {:8}  {changes:>12}  {}",
                user_name(commit.user),
                escaped(&commit.label)
            )?;
        }
        Ok(())
    }
}

impl Serialize for Log {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let commits: Vec<_> = self.0.iter().map(json::Commit::from).collect();
        let mut object = serializer.serialize_struct("Log", 1)?;
        object.serialize_field("commits", &commits)?;
        object.end()
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let Connected {
        mut connection,
        root,
        start,
        ..
    } = context.connect()?;
    let filter = Filter::new(&root, &start, &arguments.paths)?;
    let commits = connection.log_of(&filter, None, arguments.limit)?;
    context.output.print_paged(&Log(commits))?;
    Ok(SUCCESS)
}
