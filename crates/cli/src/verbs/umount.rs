use super::{ExitCode, mount};
use crate::context::Context;
use crate::error::Error;
use crate::output::quoted;
use atomdir::client::mounts::{clear_dead_guard, force_guard_away};
use atomdir::client::{Failure, FailureKind, GUARD, GuardChoice, RequestError, Settings, reason};
use clap::{Args, ValueHint};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Unmount the guard
///
/// Programs outside then use the base itself again. Those that have something open in the guard get
/// an error (ENOTCONN) and have to open it again. This also removes the guard of a service that has
/// been killed. If the setting `guard` is on, the next service mounts a guard again, unless you give
/// --always.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  atomdir umount /srv/site
  atomdir umount --always /srv/site
  atomdir umount --force /srv/site")]
pub struct Arguments {
    /// The store; by default the one that holds the current directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Turn the setting `guard` off as well, so that the next service mounts none
    #[arg(long)]
    always: bool,
    /// Do not ask the service, which may hang. Calls that wait in the guard fail
    #[arg(long)]
    force: bool,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<ExitCode, Error> {
    let directory = mount::directory(arguments.store.as_deref(), context);
    let root = match arguments.force {
        true => force(&directory)?,
        false => match clear_dead_guard(&directory) {
            Some(cleared) => cleared,
            None => ask(arguments, &directory, context)?,
        },
    };
    heed_setting(arguments, &root, context)?;
    mount::show(&root, (false, false), context)
}

fn ask(arguments: &Arguments, directory: &Path, context: &Context) -> Result<PathBuf, Error> {
    if !arguments.always {
        let mut connected = context.connect_at(directory)?;
        connected.connection.unmount_guard()?;
        return Ok(connected.root);
    }
    // First, since without a guard that can be mounted no service starts.
    let store = context.store_at(directory)?;
    Settings::change(&store, GUARD, "")?;
    if let Some(mut connected) = context.connect_to_running_at(&store.root)? {
        match connected.connection.unmount_guard() {
            Err(error) if error.kind() == Some(FailureKind::BadRequest) => {}
            unmounted => unmounted?,
        }
    }
    Ok(store.root)
}

fn force(directory: &Path) -> Result<PathBuf, Error> {
    let quoted = quoted(directory.as_os_str().as_bytes());
    let refused = |kind, message| Error::from(RequestError::Failed(Failure::new(kind, message)));
    match force_guard_away(directory) {
        Ok(Some(root)) => Ok(root),
        Ok(None) => {
            let message = format!("no guard is mounted over {quoted}");
            Err(refused(FailureKind::BadRequest, message))
        }
        Err(errno) => {
            let message = format!("cannot unmount the guard over {quoted}: {}", reason(errno));
            Err(refused(FailureKind::NotPermitted, message))
        }
    }
}

fn heed_setting(arguments: &Arguments, root: &Path, context: &Context) -> Result<(), Error> {
    let store = match context.store_at(root) {
        Ok(store) => store,
        // What lies there is no store, or cannot be used: the guard is gone all the same.
        Err(_) if !arguments.always => return Ok(()),
        Err(error) => return Err(error),
    };
    if arguments.always {
        return Ok(Settings::change(&store, GUARD, "")?);
    }
    let choice = Settings::of(&store).and_then(|settings| settings.guard());
    if choice.is_ok_and(|choice| choice != GuardChoice::Off) {
        context.output.note(
            "the setting `guard` is on: the next service of the store mounts a guard again; \
             `atomdir umount --always` turns it off",
        );
    }
    Ok(())
}
