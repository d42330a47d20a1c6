use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::inspection::{Inspected, look};
use crate::output::{Painter, Show, counted, escaped};
use atomdir::client::Checked;
use atomdir::hosting::with_remedy;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Look for damage in the store's log and control directory
///
/// Nothing is changed: a store that is not in use stays as it is. `atomdir recover
/// --dry-run` shows more detail.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir check -C /srv/site || echo damaged")]
pub struct Arguments {}

#[derive(Serialize)]
struct Report {
    problems: Vec<String>,
    commits_in_history: u64,
    commits_in_log: u64,
    log_bytes: u64,
}

impl Show for Report {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for problem in &self.problems {
            writeln!(painter, "{}", escaped(problem.as_bytes()))?;
        }
        let commits = counted(self.commits_in_history, "commit");
        let (in_log, bytes) = (self.commits_in_log, self.log_bytes);
        writeln!(
            painter,
            "the history has {commits}; the log holds {in_log} of them in {bytes} bytes"
        )
    }
}

pub fn run(_: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let report = match look(context)? {
        Inspected::InUse(mut connected) => {
            let Checked { report, problems } = connected.connection.check()?;
            Report {
                problems,
                commits_in_history: report.commits_in_history,
                commits_in_log: report.commits_in_log,
                log_bytes: report.log_bytes,
            }
        }
        Inspected::AtRest(found) => {
            let problems = found.damage.iter().map(|damage| with_remedy(&damage.error));
            Report {
                problems: problems.collect(),
                commits_in_history: found.commits_in_history,
                commits_in_log: found.commits.len() as u64,
                log_bytes: found.log_bytes,
            }
        }
    };
    context.output.print(&report)?;
    match report.problems.len() {
        0 => Ok(SUCCESS),
        count => Err(Error::Unsound {
            problems: counted(count as u64, "problem"),
        }),
    }
}
