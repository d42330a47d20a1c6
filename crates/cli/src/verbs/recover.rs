use super::{ExitCode, SUCCESS};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, counted};
use clap::Args;
use serde::Serialize;
use std::io::{self, Write};

/// Bring the store to the state of its last commit
///
/// After a crash this happens by itself when the store is next used; this verb
/// does it now and tells what there was to do. A store that takes no more
/// commits, because a write has failed, is opened anew.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir recover -C /srv/site")]
pub struct Arguments {}

#[derive(Serialize)]
struct Report {
    /// Whether the service was started for it; else the store was in use
    /// already, and the rest tells of when that began.
    recovered_now: bool,
    commits_replayed: u64,
    bytes_replayed: u64,
    transactions_discarded: u64,
    torn_tail_bytes: u64,
}

impl Show for Report {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        if !self.recovered_now {
            writeln!(
                painter,
                "the store is in use and sound; when its service started:"
            )?;
        }
        let commits = counted(self.commits_replayed, "commit");
        writeln!(painter, "{commits} replayed, {} bytes", self.bytes_replayed)?;
        let transactions = counted(self.transactions_discarded, "unfinished transaction");
        writeln!(painter, "{transactions} discarded")?;
        if self.torn_tail_bytes > 0 {
            let bytes = self.torn_tail_bytes;
            writeln!(
                painter,
                "{bytes} bytes of a commit that was never finished dropped"
            )?;
        }
        Ok(())
    }
}

pub fn run(_: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let mut connected = context.connect()?;
    let mut status = connected.connection.service_status()?;
    if let Some(reason) = &status.poisoned {
        context
            .output
            .note(format_args!("opening the store anew: {reason}"));
        let Connected { connection, .. } = connected;
        connection.stop()?;
        connected = context.connect()?;
        status = connected.connection.service_status()?;
    }
    let recovery = status.recovery;
    context.output.print(&Report {
        recovered_now: connected.connection.started(),
        commits_replayed: recovery.commits_replayed,
        bytes_replayed: recovery.bytes_replayed,
        transactions_discarded: recovery.transactions_discarded,
        torn_tail_bytes: recovery.torn_tail_bytes,
    })?;
    Ok(SUCCESS)
}
