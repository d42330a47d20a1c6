use super::{ExitCode, SUCCESS};
use crate::changes::ChangeList;
use crate::completion::commits;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, Style, escaped, json, time, user_name};
use atomdir::{CommitDetails, Sequence};
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};

/// Show what a commit changed
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir show 41")]
pub struct Arguments {
    /// The commit's number, as `atomdir log` lists it
    #[arg(value_name = "COMMIT", value_parser = crate::arguments::number::<u64>)]
    #[arg(add = commits())]
    commit: u64,
}

struct Details(CommitDetails);

impl Show for Details {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let CommitDetails { summary, changes } = &self.0;
        painter.line(Style::Heading, format!("commit {}", summary.sequence))?;
        writeln!(painter, "transaction {}", summary.transaction)?;
        writeln!(painter, "time        {}", time::readable(summary.time))?;
        writeln!(painter, "user        {}", user_name(summary.user))?;
        if !summary.label.is_empty() {
            writeln!(painter, "label       {}", escaped(&summary.label))?;
        }
        writeln!(painter)?;
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
            summary: json::Commit::from(&self.0.summary),
            changes: json::changes(&self.0.changes, None),
        }
        .serialize(serializer)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connection = context.connect()?.connection;
    let details = connection.show(Sequence(arguments.commit))?;
    context.output.print_paged(&Details(details))?;
    Ok(SUCCESS)
}
