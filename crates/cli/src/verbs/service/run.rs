//! `atomdir service run`.

use super::{IdleTime, idle_time};
use crate::context::{Context, own_program};
use crate::error::Error;
use atomdir::ConnectError;
use atomdir::client::{FailureKind, SERVICE_ENVIRONMENT};
use atomdir_service::ServiceOptions;
use clap::{Args, ValueHint};
use rustix::io::Errno;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where systemd listens for the news that the service is ready.
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

#[derive(Debug, Args)]
pub struct Arguments {
    /// The store; by default the one that holds the current directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Continue in the background, and report to the starter when ready
    #[arg(long, hide = true)]
    detach: bool,
    /// End after T (30s, 10m) without a transaction or a client, or `never`
    #[arg(long, value_name = "T", value_parser = idle_time, default_value = "30s")]
    idle: IdleTime,
}

pub fn serve(arguments: &Arguments, context: &Context) -> Result<(), Error> {
    let root = match &arguments.store {
        Some(store) => context.directory().join(store),
        None => context.store()?.root,
    };
    leave_environment(arguments, &root)?;
    if !arguments.detach {
        take_over(&root, context);
    }
    let options = ServiceOptions {
        detach: arguments.detach,
        idle: arguments.idle.0,
    };
    Ok(atomdir_service::run(&root, &options)?)
}

/// How often it is tried to take a store over.
const TAKE_OVER_PERIOD: Duration = Duration::from_secs(1);

/// Lets a service that was started automatically hand the store over, and waits until it can: as
/// long as transactions are open that would not survive. If anything is amiss, the start reports it.
fn take_over(root: &Path, context: &Context) {
    let mut is_told = false;
    while let Ok(Some(connected)) = context.connect_to_running_at(root) {
        let mut connection = connected.connection;
        match connection.service_status() {
            Ok(status) if !status.supervised => {}
            _ => return,
        }
        let error = match connection.stop_and_keep() {
            // Transactions are open that would not survive.
            Err(error) if error.kind() == Some(FailureKind::InUse) => error,
            _ => return,
        };
        if !is_told {
            let root = root.display();
            context.output.note(format_args!(
                "'{root}' has a service already; waiting until it can hand the store over: {error}"
            ));
            is_told = true;
        }
        std::thread::sleep(TAKE_OVER_PERIOD);
    }
}

/// A process cannot clean the memory in which it was given its environment, so the
/// program is executed again without what a service must not have.
fn leave_environment(arguments: &Arguments, root: &Path) -> Result<(), Error> {
    // What starts a service in the background may itself have been started by a supervisor, to which
    // that service is nothing.
    let of_supervisor = (!arguments.detach).then_some(&NOTIFY_SOCKET);
    let kept = || SERVICE_ENVIRONMENT.iter().chain(of_supervisor);
    let mut given = std::env::vars_os().map(|(name, _)| name);
    if given.all(|name| kept().any(|kept| name == *kept)) {
        return Ok(());
    }
    let kept = kept().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let program = own_program();
    let mut command = Command::new(&program);
    command.args(std::env::args_os().skip(1));
    if arguments.store.is_none() {
        // The store may have been found through the environment.
        command.arg("--store").arg(root);
    }
    let error = command.env_clear().envs(kept).exec();
    Err(Error::Connect(ConnectError::Start {
        program,
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    }))
}
