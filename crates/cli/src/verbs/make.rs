use super::ExitCode;
use crate::arguments::number;
use crate::context::Context;
use crate::error::Error;
use crate::making;
use atomdir::Trust;
use clap::{Args, ValueHint};
use std::ffi::OsString;

/// Run GNU make so that each recipe is a transaction
///
/// A recipe commits whole if it succeeds, and else leaves nothing: an interrupted or failed build
/// has no half-written target that looks up to date. Make and the makefiles need no change. With
/// -j, recipes are transactions beside one another. docs/make.md says what differs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir make
  atomdir make -- -j4 -C src install")]
pub struct Arguments {
    /// Run a recipe again after a conflict, up to N times
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = number::<u32>)]
    retry: u32,
    /// Arguments for make
    #[arg(value_name = "ARGUMENT", last = true, value_hint = ValueHint::Other)]
    words: Vec<OsString>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut options = vec![format!("--retry={}", arguments.retry)];
    if context.trust() == Trust::Everyone {
        options.push("--trust".to_owned());
    }
    making::run(context, &options, &arguments.words)
}
