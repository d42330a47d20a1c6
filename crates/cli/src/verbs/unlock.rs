use super::lock::Subject;
use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// End locks of a transaction before it ends
///
/// Without a path: all of them. Without TX: the current transaction, or the only
/// one open.
#[derive(Debug, Args)]
#[command(mut_arg("words", |words| words.required(false)))]
#[command(after_help = "Examples:
  atomdir unlock 12 index.html
  atomdir unlock 12")]
pub struct Arguments {
    #[command(flatten)]
    subject: Subject,
}

#[derive(Serialize)]
struct Unlocked {
    unlocked: u64,
}

impl Show for Unlocked {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "ended {}", counted(self.unlocked, "lock"))
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let (mut connected, transaction, paths) = arguments.subject.resolve(context)?;
    let paths = (!paths.is_empty()).then_some(paths.as_slice());
    let unlocked = connected.connection.unlock(transaction, paths)?;
    context.output.confirm(&Unlocked { unlocked })?;
    Ok(SUCCESS)
}
