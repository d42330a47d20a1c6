//! Starts a store's service and waits until it is ready.

use crate::environment;
use crate::mounts;
use crate::{ConnectError, StoreLocation};
use atomdir_protocol::{FailureKind, Readiness, frame};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The variables that a service gets from the starter's environment. It gets no others: it
/// may run as another user than its starter, and must not learn the starter's secrets.
pub const SERVICE_ENVIRONMENT: [&str; 6] = [
    // To find fusermount3.
    "PATH",
    // The directory for the mounts of views.
    "XDG_RUNTIME_DIR",
    "ATOMDIR_FUSE",
    "LANG",
    "LC_ALL",
    "TZ",
];

/// What to do when no service runs for the store.
#[derive(Debug, Clone)]
pub enum StartService {
    /// Report that none runs.
    Never,
    /// Run this program. It must call `atomdir_service::run` for the store with `detach`
    /// set, which reports on its standard output when it is ready.
    IfNeeded {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        arguments: Vec<OsString>,
    },
}

impl StartService {
    /// `PROGRAM service run --detach --store ROOT`, as the `atomdir` command understands it.
    pub fn with_program(program: impl Into<PathBuf>, store: &StoreLocation) -> StartService {
        StartService::IfNeeded {
            program: program.into(),
            arguments: arguments(&store.root),
        }
    }
}

fn arguments(root: &Path) -> Vec<OsString> {
    let run = ["service", "run", "--detach", "--store"].map(OsString::from);
    run.into_iter().chain([root.into()]).collect()
}

/// Starts the service of a store over which the guard of a killed service lies, at this directory or
/// above it. It puts a new one in its place if the store's settings say so, and otherwise fails. `None`:
/// there is no such guard. `program` is as for [`StartService::with_program`].
pub fn bring_guard_back(directory: &Path, program: &Path) -> Option<Result<(), ConnectError>> {
    let root = mounts::dead_guard(directory).filter(|_| geteuid().is_root())?;
    match start(&root, program, &arguments(&root)) {
        // The settings want no guard, so the service has not looked beneath the dead one.
        Err(ConnectError::Failed(failure)) if failure.kind == FailureKind::NoStore => None,
        started => Some(started),
    }
}

/// Returns when the service is ready, or if another one was already.
pub(crate) fn start(
    store: &Path,
    program: &Path,
    arguments: &[OsString],
) -> Result<(), ConnectError> {
    let failed = |errno| ConnectError::Start {
        program: program.to_owned(),
        errno,
    };
    let found = environment::program(program).ok_or_else(|| failed(Errno::NOENT))?;
    let mut child = Command::new(found)
        .args(arguments)
        .env_clear()
        .envs(environment::of_service(&SERVICE_ENVIRONMENT))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .current_dir("/")
        .spawn()
        .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    let readiness = child.stdout.take().map(read_readiness);
    // The service is a child of this child, so we do not have to reap it.
    let _ = child.wait();
    match readiness.flatten() {
        Some(Readiness::Ready) => Ok(()),
        Some(Readiness::Failed(failure)) => Err(ConnectError::Failed(failure)),
        None => Err(ConnectError::StartedBadly {
            store: store.to_owned(),
        }),
    }
}

fn read_readiness(mut pipe: impl Read) -> Option<Readiness> {
    let mut header = [0; frame::HEADER_LENGTH];
    pipe.read_exact(&mut header).ok()?;
    let length = frame::decode_header(header, frame::REQUEST_LENGTH_MAX).ok()?;
    let mut payload = vec![0; length];
    pipe.read_exact(&mut payload).ok()?;
    frame::decode(&payload).ok()
}
