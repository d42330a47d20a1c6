use super::{ExitCode, SUCCESS};
use crate::context::{Connected, Context};
use crate::error::Error;
use crate::output::{Painter, Show, counted, json::Text, quoted};
use crate::system::SystemArguments;
use atomdir::InitError;
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Make a store an ordinary directory again
///
/// Its files stay as the last commit left them. Its control directory is removed, and with it the
/// history: no commit can be undone any more. It is refused while a program has the store open, and
/// while it holds anything else: open transactions, commits that wait to be confirmed, files of
/// others that were in the way of commits.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir deinit /srv/site")]
pub struct Arguments {
    /// The directory; by default the current one
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Drop open transactions with their changes, keep commits that wait to be confirmed, and
    /// remove what was in the way of commits
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    system: SystemArguments,
}

#[derive(Serialize)]
struct Deinitialized<'a> {
    directory: Text<'a>,
    commits_forgotten: u64,
}

impl Show for Deinitialized<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let (root, commits) = (quoted(self.directory.0), self.commits_forgotten);
        let forgotten = counted(commits, "commit");
        writeln!(
            painter,
            "{root} is an ordinary directory again; {forgotten} can no longer be undone"
        )
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    if arguments.system.system {
        if arguments.store.is_some() {
            return Err(Error::usage(
                "`--system` is about its own directories, not DIR",
            ));
        }
        for store in arguments.system.stores(context)? {
            deinit(arguments, context, &store.root)?;
        }
        return Ok(SUCCESS);
    }
    let directory = match &arguments.store {
        Some(directory) => context.directory().join(directory),
        None => context.directory().to_owned(),
    };
    deinit(arguments, context, &directory)
}

fn deinit(arguments: &Arguments, context: &Context, directory: &Path) -> Result<ExitCode, Error> {
    atomdir::check_deinit(directory, context.trust())?;
    if let Some(mut connected) = context.connect_to_running_at(directory)? {
        if !arguments.force {
            refuse_unconfirmed(&mut connected)?;
        }
        match arguments.force {
            true => connected.connection.stop_and_abort()?,
            false => connected.connection.stop()?,
        };
    }
    let done = atomdir::deinit_with(directory, arguments.force, context.trust())?;
    context.output.confirm(&Deinitialized {
        directory: Text(done.root.as_os_str().as_bytes()),
        commits_forgotten: done.commits,
    })?;
    Ok(SUCCESS)
}

/// Only a service that runs takes such a commit back, so it must not be stopped in vain.
fn refuse_unconfirmed(connected: &mut Connected) -> Result<(), Error> {
    let status = connected.connection.service_status()?;
    match status.unconfirmed.first() {
        None => Ok(()),
        Some((commit, _)) => Err(InitError::HasMore {
            path: connected.root.clone(),
            what: format!("commit {commit} waits to be confirmed"),
        }
        .into()),
    }
}
