use super::{ExitCode, mount};
use crate::context::Context;
use crate::error::Error;
use atomdir::client::mounts::clear_dead_guard;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// Unmount the guard
///
/// Programs outside then use the base itself again. Those that have something open in the guard get
/// an error (ENOTCONN) and have to open it again. This also removes the guard of a service that has
/// been killed.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  atomdir umount /srv/site")]
pub struct Arguments {
    /// The store; by default the one that holds the current directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let store = arguments.store.clone();
    let named = mount::Arguments { store, sync: false };
    let directory = mount::directory(&named, context);
    if let Some(cleared) = clear_dead_guard(&directory) {
        return mount::show(&cleared, (false, false), context);
    }
    let mut connected = context.connect_at(&directory)?;
    connected.connection.unmount_guard()?;
    mount::show(&connected.root, (false, false), context)
}
