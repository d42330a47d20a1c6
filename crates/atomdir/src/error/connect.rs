//! Errors of starting a store's service and connecting to it.

use crate::accounts::describe_user;
use atomdir_disk::reason;
use atomdir_protocol::Failure;
use atomdir_protocol::handshake::HandshakeError;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a store's service cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No service runs, and none was to be started.
    #[error("the store '{store}' is not in use: no service runs for it")]
    NotRunning {
        /// The store's root.
        store: PathBuf,
    },
    /// No service runs, and this user may not start one.
    #[error("the store '{store}' belongs to {owner}, and no service runs for it")]
    NotPermittedToStart {
        /// The store's root.
        store: PathBuf,
        /// The owner's name.
        owner: String,
    },
    /// The user may not do it.
    #[error("the service of the store '{store}' takes no connections from this user")]
    NotPermitted {
        /// The store's root.
        store: PathBuf,
    },
    /// A stranger listens in place of the service.
    #[error(
        "what listens for the store '{store}' runs as {}, who is neither root nor the owner",
        describe_user(*user)
    )]
    Impostor {
        /// The store's root.
        store: PathBuf,
        /// The numeric id of that user.
        user: u32,
    },
    /// The control directory has got another owner since it was found.
    #[error("the control directory of the store '{store}' has changed hands since it was found")]
    Replaced {
        /// The store's root.
        store: PathBuf,
    },
    /// The service has as many connections as it takes.
    #[error("the service of the store '{store}' has as many connections as it takes")]
    TooManyConnections {
        /// The store's root.
        store: PathBuf,
    },
    /// The service speaks another version of the protocol.
    #[error("the service of the store '{store}' is of another version: {source}")]
    OtherVersion {
        /// The store's root.
        store: PathBuf,
        /// The fault.
        source: HandshakeError,
    },
    /// The program could not be started.
    #[error("cannot start the service with '{program}': {errno}", errno = reason(errno))]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        errno: Errno,
    },
    /// The service ended before it was ready.
    #[error("the service of the store '{store}' ended before it was ready")]
    StartedBadly {
        /// The store's root.
        store: PathBuf,
    },
    /// The service ended each time it was started.
    #[error("the service ended each time it was started for '{store}'")]
    KeepsEnding {
        /// The store's root.
        store: PathBuf,
    },
    /// Reported by the service that was started.
    #[error("{0}")]
    Failed(Failure),
    /// The caller is in the view of a transaction of that store.
    #[error("the service of the store '{store}' cannot be reached from within its view")]
    NotReachedWithin {
        /// The store's root.
        store: PathBuf,
    },
    /// A system call failed.
    #[error("cannot reach the service of the store '{store}': {operation}: {errno}", errno = reason(errno))]
    Io {
        /// The store's root.
        store: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        errno: Errno,
    },
}
