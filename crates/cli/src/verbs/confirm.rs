use super::{ExitCode, SUCCESS};
use crate::completion::commits;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::Sequence;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Confirm a commit that would take itself back
///
/// `commit --confirm T` and `run --confirm T` make such commits. If a change of the network or of
/// ssh locks you out, you cannot confirm it, and it takes itself back.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir run --confirm 5m -- ./new-firewall.sh
  atomdir confirm 41")]
pub struct Arguments {
    /// The commit's number, as `atomdir log` lists it
    #[arg(value_name = "COMMIT", value_parser = crate::arguments::number::<u64>)]
    #[arg(add = commits())]
    commit: u64,
}

#[derive(Serialize)]
struct Confirmed {
    commit: u64,
}

impl Show for Confirmed {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "commit {} stays", self.commit)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let commit = arguments.commit;
    context.connect()?.connection.confirm(Sequence(commit))?;
    context.output.confirm(&Confirmed { commit })?;
    Ok(SUCCESS)
}
