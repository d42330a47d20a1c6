use super::{ExitCode, SUCCESS};
use crate::context::Context;
use crate::error::Error;
use crate::output::{Painter, Show, json::Text, quoted};
use atomdir::client::mounts::clear_dead_guard;
use atomdir::client::{GUARD, GuardChoice, Settings};
use clap::{Args, ValueHint};
use serde::Serialize;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mount the guard: programs outside transactions see each commit as a whole
///
/// The guard lies over the store's own path, for all users, until `atomdir umount`. Programs that have
/// files or directories of the store open go on beneath it. Only root can mount it, over a store of
/// root's. It ends with the store's service; with --always each later service mounts it as well. That
/// is the setting `guard` (`atomdir config guard`). docs/guard.md says what a guard promises.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir mount /srv/site
  atomdir mount --sync /srv/site
  atomdir mount --always /srv/site")]
pub struct Arguments {
    /// The store; by default the one that holds the current directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Flush what each call through the guard changes before the call returns. Over a store that has
    /// a guard, `mount` sets this anew. By default as the setting `guard` says
    #[arg(long)]
    sync: bool,
    /// From now on each service of the store mounts the guard: also after a restart of the machine,
    /// and after the service was killed
    #[arg(long)]
    always: bool,
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
    let directory = directory(arguments.store.as_deref(), context);
    // If this fails, connecting says why.
    if !matches!(context.bring_guard_back(&directory), Ok(true))
        && let Some(cleared) = clear_dead_guard(&directory)
    {
        let cleared = cleared.display();
        context.output.detail(format_args!(
            "removed a guard over {cleared} whose service had ended"
        ));
    }
    let store = context.store_at(&directory)?;
    let is_set = || {
        let settings = Settings::of(&store).and_then(|settings| settings.guard());
        settings.is_ok_and(|choice| choice == GuardChoice::Sync)
    };
    let sync = arguments.sync || is_set();
    let mut connected = context.connect_at(&directory)?;
    connected.connection.mount_guard(sync)?;
    if arguments.always {
        let choice = match sync {
            true => GuardChoice::Sync,
            false => GuardChoice::On,
        };
        Settings::change(&store, GUARD, choice.word())?;
    }
    show(&connected.root, (true, sync), context)
}

/// The directory that the user names.
pub fn directory(store: Option<&Path>, context: &Context) -> PathBuf {
    match store {
        Some(directory) => context.directory().join(directory),
        None => context.directory().to_owned(),
    }
}

pub fn show(
    store: &Path,
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
