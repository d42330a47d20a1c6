use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, Style, counted, escaped, json, time, user_name};
use atomdir::CommitSummary;
use clap::Args;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::io::{self, Write};

/// How many commits are asked for at once.
const PART_LENGTH: u64 = 1000;

/// List the commits, newest first
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir log -n 10")]
pub struct Arguments {
    /// At most so many
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = u64::MAX)]
    #[arg(hide_default_value = true, value_parser = crate::arguments::number::<u64>)]
    // So that the message about a negative number says what is wrong with it.
    #[arg(allow_negative_numbers = true)]
    limit: u64,
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
    let mut connection = context.connect()?.connection;
    let mut commits = Vec::new();
    let mut left = arguments.limit;
    while left > 0 {
        let before = commits.last().map(|commit: &CommitSummary| commit.sequence);
        let part = connection.log(before, left.min(PART_LENGTH))?;
        if part.is_empty() {
            break;
        }
        left = left.saturating_sub(part.len() as u64);
        commits.extend(part);
    }
    context.output.print_paged(&Log(commits))?;
    Ok(SUCCESS)
}
