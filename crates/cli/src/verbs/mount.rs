use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text, quoted};
use atomdir::client::mounts::clear_dead_guard;
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Mount the guard: programs outside transactions see each commit as a whole
///
/// The guard lies over the store's own path, for all users, until `atomdir umount`. Programs that have
/// files or directories of the store open go on beneath it. Only root can mount it, over a store of
/// root's. docs/guard.md says what it promises.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir mount /srv/site
  atomdir mount --sync /srv/site")]
pub struct Arguments {
    /// The store; by default the one that holds the current directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub store: Option<PathBuf>,
    /// Flush what each call through the guard changes before the call returns. Over a store that has
    /// a guard, `mount` sets this anew
    #[arg(long)]
    pub sync: bool,
}

#[derive(Serialize)]
struct Guard<'a> {
    store: Text<'a>,
    mounted: bool,
    sync: bool,
}

impl Show for Guard<'_> {
    fn show(&self, painter: &mut Painter<'_>) -> io::Result<()> {
        let done = if self.mounted {
            "lies"
        } else {
            "no longer lies"
        };
        let store = quoted(self.store.0);
        writeln!(painter, "a guard {done} over {store}")?;
        match self.sync {
            true => writeln!(painter, "what a call changes is flushed before it returns"),
            false => Ok(()),
        }
    }
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let directory = directory(arguments, context);
    if let Some(cleared) = clear_dead_guard(&directory) {
        let cleared = cleared.display();
        context.output.detail(format_args!(
            "removed a guard over {cleared} whose service had ended"
        ));
    }
    let mut connected = context.connect_at(&directory)?;
    connected.connection.mount_guard(arguments.sync)?;
    show(&connected.root, (true, arguments.sync), context)
}

/// The directory that the user names.
pub fn directory(arguments: &Arguments, context: &Context) -> PathBuf {
    match &arguments.store {
        Some(directory) => context.directory().join(directory),
        None => context.directory().to_owned(),
    }
}

pub fn show(
    store: &std::path::Path,
    (mounted, sync): (bool, bool),
    context: &Context,
) -> Result<ExitCode, Error> {
    let store = Text(store.as_os_str().as_bytes());
    context.output.confirm(&Guard {
        store,
        mounted,
        sync,
    })?;
    Ok(SUCCESS)
}
