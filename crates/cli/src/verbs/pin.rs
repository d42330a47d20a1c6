use super::{ExitCode, SUCCESS};
use crate::completion::commits;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use atomdir::Sequence;
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Keep a commit from being forgotten
///
/// The history keeps what the commit replaced, however old it gets and however little space there
/// is, so that it can be undone until it is unpinned. Later commits are forgotten as ever: an undo
/// of the pinned one is refused where they have changed the same.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir pin 41
  atomdir pin --remove 41")]
pub struct Arguments {
    /// The commit's number, as `atomdir log` lists it
    #[arg(value_name = "COMMIT", value_parser = crate::arguments::number::<u64>)]
    #[arg(add = commits())]
    commit: u64,
    /// Unpin it: it is forgotten like others
    #[arg(long)]
    remove: bool,
}

#[derive(Serialize)]
struct Pinned {
    commit: u64,
    pinned: bool,
}

impl Show for Pinned {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let what = match self.pinned {
            true => "is kept until it is unpinned",
            false => "is forgotten like others",
        };
        writeln!(painter, "commit {} {what}", self.commit)
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (commit, pinned) = (arguments.commit, !arguments.remove);
    let mut connection = context.connect()?.connection;
    connection.pin(Sequence(commit), pinned)?;
    context.output.confirm(&Pinned { commit, pinned })?;
    Ok(SUCCESS)
}
