use super::{ExitCode, SUCCESS};
use crate::completion::commits;
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, escaped, json::Text};
use crate::system::keeping_mark;
use atomdir::Sequence;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

/// Change what the log says of a commit
///
/// Of your own commits; the store's owner and root may change any.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir relabel 41 'the upgrade to 2.1, first attempt'")]
pub struct Arguments {
    /// The commit's number, as `atomdir log` lists it
    #[arg(value_name = "COMMIT", value_parser = crate::arguments::number::<u64>)]
    #[arg(add = commits())]
    commit: u64,
    /// The new label
    #[arg(value_name = "TEXT")]
    label: OsString,
}

#[derive(Serialize)]
struct Relabelled<'a> {
    commit: u64,
    label: Text<'a>,
}

impl Show for Relabelled<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "commit {}: {}", self.commit, escaped(self.label.0))
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let commit = arguments.commit;
    let mut connection = context.connect()?.connection;
    let older = connection.log(Some(Sequence(commit.saturating_add(1))), 1)?;
    let old = older.first().filter(|one| one.sequence.0 == commit);
    let label = match old {
        Some(old) => keeping_mark(&old.label, arguments.label.as_bytes()),
        None => arguments.label.as_bytes().to_vec(),
    };
    connection.relabel(Sequence(commit), label.clone())?;
    let label = Text(&label);
    context.output.confirm(&Relabelled { commit, label })?;
    Ok(SUCCESS)
}
