use super::log::forgotten_early;
use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, counted, json, time};
use atomdir::client::HistoryStatus;
use clap::Args;
use serde::{Serialize, Serializer};
use std::io::{self, Write};
use std::time::Duration;

/// Forget old commits, and free what is kept to undo them
///
/// Without an option it forgets what the store's settings allow to be forgotten; see
/// `config`. The store does that by itself from time to time. `log` still lists forgotten
/// commits, but they cannot be undone.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir prune --older-than 1d")]
pub struct Arguments {
    /// Forget what is older than T (12h, 3d)
    #[arg(long, value_name = "T", value_parser = crate::duration::parse)]
    older_than: Option<Duration>,
    /// Forget all commits
    #[arg(long, conflicts_with = "older_than")]
    all: bool,
}

struct Kept(Option<HistoryStatus>);

impl Show for Kept {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        writeln!(painter, "{}", describe(self.0.as_ref()))
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.map(json::History::from).serialize(serializer)
    }
}

/// How many commits can be undone, and what that takes.
pub(super) fn describe(history: Option<&HistoryStatus>) -> String {
    let Some(history) = history else {
        return "off: commits cannot be undone".to_owned();
    };
    let commits = counted(history.commits, "commit");
    let oldest = history.oldest.map_or_else(String::new, |(sequence, made)| {
        format!(", from {sequence} of {} on", time::readable(made))
    });
    let early = history.early.as_ref().map(forgotten_early);
    let early = early.map_or_else(String::new, |early| format!("; {early}"));
    let bytes = history.bytes;
    format!("{commits} can be undone{oldest}; {bytes} bytes{early}")
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let age = match arguments.all {
        true => Some(Duration::ZERO),
        false => arguments.older_than,
    };
    let kept = context.connect()?.connection.prune(age)?;
    context.output.confirm(&Kept(kept))?;
    Ok(SUCCESS)
}
