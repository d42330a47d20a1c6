use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use atomdir::Checked;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Look for damage in the store's log and control directory
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir check -C /srv/site || echo damaged")]
pub struct Arguments {}

#[derive(Serialize)]
struct Report {
    problems: Vec<String>,
    commits_in_log: u64,
    log_bytes: u64,
}

impl Show for Report {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        for problem in &self.problems {
            writeln!(painter, "{problem}")?;
        }
        let commits = counted(self.commits_in_log, "commit");
        writeln!(
            painter,
            "the log holds {commits} in {} bytes",
            self.log_bytes
        )
    }
}

pub fn run(_: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let Checked { report, problems } = context.connect()?.connection.check()?;
    let found = problems.len() as u64;
    context.output.print(&Report {
        problems,
        commits_in_log: report.commits_in_log,
        log_bytes: report.log_bytes,
    })?;
    match found.max(report.problems_count) {
        0 => Ok(SUCCESS),
        count => Err(Error::Unsound {
            problems: counted(count, "problem"),
        }),
    }
}
