use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text, quoted};
use atomdir::client::{ALLOW, HISTORY_AGE, Settings};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Make a directory a store
///
/// Its files stay where they are and as they are; the control directory
/// .atomdir is added. Doing it again is harmless.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir init /srv/site")]
pub struct Arguments {
    /// The directory; by default the current one
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Keep the control directory at PATH, on the same file system
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    control: Option<PathBuf>,
    /// Let these users and groups use it, too: a store of root's; see `config`
    #[arg(long, value_name = "USER,@GROUP")]
    allow: Option<String>,
    /// Keep nothing of what commits replace, so that none can be undone
    #[arg(long)]
    no_history: bool,
}

#[derive(Serialize)]
struct Initialized<'a> {
    store: Text<'a>,
    control: Text<'a>,
    created: bool,
}

impl Show for Initialized<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let root = quoted(self.store.0);
        if self.created {
            writeln!(painter, "{root} is now a store")
        } else {
            writeln!(painter, "{root} was a store already")
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let directory = match &arguments.store {
        Some(directory) => context.directory().join(directory),
        None => context.directory().to_owned(),
    };
    let control = arguments
        .control
        .as_ref()
        .map(|path| context.directory().join(path));
    let outcome = atomdir::init_with(&directory, control.as_deref(), context.trust())?;
    if let Some(allow) = &arguments.allow {
        Settings::change(&outcome.store, ALLOW, allow)?;
    }
    if arguments.no_history {
        Settings::change(&outcome.store, HISTORY_AGE, "off")?;
    }
    if control.is_some() && is_in_work_tree(&outcome.store.root) {
        context.output.note(
            "git sees the file .atomdir: add it to .git/info/exclude, or `git clean` takes it away",
        );
    }
    context.output.confirm(&Initialized {
        store: Text(outcome.store.root.as_os_str().as_bytes()),
        control: Text(outcome.store.control.as_os_str().as_bytes()),
        created: outcome.created,
    })?;
    Ok(SUCCESS)
}

/// Whether git would take the file that names the control directory for one of its
/// own. A control directory in the root has a .gitignore.
fn is_in_work_tree(root: &Path) -> bool {
    let mut above = root.ancestors();
    above.any(|directory| rustix::fs::stat(directory.join(".git")).is_ok())
}
