use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show};
use clap::Args;
use serde::Serialize;
use std::io;

/// Make all lazy commits durable
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir run --durability lazy -- ./step-1 &&
  atomdir run --durability lazy -- ./step-2 && atomdir sync")]
pub struct Arguments {}

#[derive(Serialize)]
struct Synced {
    synced: bool,
}

impl Show for Synced {
    fn show(&self, _: &mut Painter<'_>) -> io::Result<()> {
        Ok(())
    }
}

pub fn run(_: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    context.connect()?.connection.sync()?;
    context.output.confirm(&Synced { synced: true })?;
    Ok(SUCCESS)
}
