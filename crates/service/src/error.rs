use atomdir::FindError;
use atomdir::client::describe_user;
use atomdir::hosting::{HeldHow, Holder};
use atomdir_disk::reason;
use atomdir_protocol::{Failure, FailureKind};
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a service could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    #[error(transparent)]
    NotAStore(#[from] FindError),
    #[error("the store '{store}' belongs to {}; only they or root can open it", describe_user(*owner))]
    NotOwner { store: PathBuf, owner: u32 },
    #[error("'{control}' can be written by others than its owner, so it cannot be trusted")]
    WritableByOthers { control: PathBuf },
    #[error("the store '{store}' is already open in another process")]
    AlreadyRunning { store: PathBuf },
    #[error(
        "{} has the store '{store}' open and runs no service for it",
        describe_holder(holder)
    )]
    Held {
        store: PathBuf,
        /// `None` if it cannot be found, for example in another process namespace.
        holder: Option<Holder>,
        how: HeldHow,
    },
    #[error("the store '{store}' is on a file system that is mounted read-only")]
    ReadOnly { store: PathBuf },
    #[error("cannot open the store '{store}': {message}")]
    Open {
        store: PathBuf,
        message: String,
        kind: FailureKind,
    },
    #[error("cannot serve the store '{store}': {operation}: {errno}", errno = reason(errno))]
    Serve {
        store: PathBuf,
        operation: &'static str,
        errno: Errno,
    },
    #[error(
        "cannot mount the guard that the setting 'guard' of the store '{store}' asks for: {}",
        failure.message
    )]
    Guard { store: PathBuf, failure: Failure },
    #[error("cannot become the store's owner, {}: {operation}: {errno}", describe_user(*owner), errno = reason(errno))]
    Owner {
        owner: u32,
        operation: &'static str,
        errno: Errno,
    },
    #[error("cannot start the service: {operation}: {errno}", errno = reason(errno))]
    Process {
        operation: &'static str,
        errno: Errno,
    },
}

impl ServiceError {
    /// The failure to report to the starter.
    pub fn to_failure(&self) -> Failure {
        Failure {
            kind: self.kind(),
            message: self.to_string(),
            hint: self.hint(),
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            ServiceError::NotAStore(_) => FailureKind::NoStore,
            ServiceError::NotOwner { .. } => FailureKind::NotPermitted,
            ServiceError::WritableByOthers { .. } => FailureKind::Misconfigured,
            ServiceError::AlreadyRunning { .. } | ServiceError::Held { .. } => {
                FailureKind::AlreadyRunning
            }
            ServiceError::ReadOnly { .. } => FailureKind::Io,
            ServiceError::Open { kind, .. } => *kind,
            ServiceError::Serve { errno, .. } => match *errno {
                Errno::ACCESS | Errno::PERM => FailureKind::NotPermitted,
                Errno::NOENT | Errno::NOTDIR => FailureKind::NoStore,
                _ => FailureKind::Io,
            },
            ServiceError::Guard { failure, .. } => failure.kind,
            ServiceError::Owner { .. } | ServiceError::Process { .. } => FailureKind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ServiceError::NotOwner { store, .. } => Some(format!(
                "ask its owner to run `atomdir -C {} service start`",
                store.display()
            )),
            ServiceError::WritableByOthers { control } => Some(format!(
                "`chmod go-w {}` takes that away",
                control.display()
            )),
            ServiceError::AlreadyRunning { store } => Some(format!(
                "`atomdir -C {} service status` names the process",
                store.display()
            )),
            ServiceError::Held { how, .. } => Some(
                match how {
                    HeldHow::UntilIdle => {
                        "it hands the store over once no transaction and no file of it is open there; \
                         try again when they have ended"
                    }
                    HeldHow::Stopped => {
                        "it is stopped; it goes on after `kill -CONT` and its number"
                    }
                    HeldHow::ByChild => {
                        "a program forked it that had the store open and has ended; try again when this \
                         process has ended, too"
                    }
                    _ => "try again when that program has closed the store or handed it over",
                }
                .to_owned(),
            ),
            ServiceError::Guard { store, .. } => Some(format!(
                "`atomdir umount --always {0}` lets the store be used without a guard",
                store.display()
            )),
            ServiceError::Serve {
                store,
                errno: Errno::NOTCONN | Errno::CONNABORTED,
                ..
            } => Some(format!(
                "if the service was killed that served the guard over it: `atomdir umount {0}`, or \
                 `atomdir mount {0}` to go on with a guard",
                store.display()
            )),
            ServiceError::ReadOnly { .. } => Some("mount it read-write first".to_owned()),
            _ => None,
        }
    }
}

fn describe_holder(holder: &Option<Holder>) -> String {
    match holder {
        Some(holder) => holder.to_string(),
        None => "another process".to_owned(),
    }
}
