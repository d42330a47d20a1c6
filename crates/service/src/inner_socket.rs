//! A second socket, beside the mount of views: programs in a view do not see
//! the control directory, and nested transactions begin with them.
//!
//! Everybody can find this socket, whoever may see the store. So a connection
//! first shows the secret of a transaction, which that transaction's programs
//! get in their environment. The kernel keeps a process's environment from other
//! users. It reaches more programs than an inherited descriptor would, as many
//! close those that they do not know. The connection must besides come from the
//! transaction's owner or root, and then acts within that transaction only.

use crate::connection::Connection;
use crate::mountpoint::{self, MountpointError};
use crate::permissions::{Reach, no_such_transaction};
use crate::service::Service;
use crate::socket::{self, Listener};
use atomdir_disk::reason;
use atomdir_protocol::{Failure, FailureKind, TransactionId, Within};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

pub(crate) struct InnerSocket {
    pub(crate) listener: Listener,
    directory: OwnedFd,
    name: String,
    path: PathBuf,
}

/// Of one transaction. Too long to be guessed.
#[derive(Clone)]
pub(crate) struct Secret([u8; 16]);

impl Secret {
    pub(crate) fn new() -> Result<Secret, Errno> {
        let mut bytes = [0; 16];
        // A request this small is answered whole or not at all.
        retry_on_intr(|| getrandom(&mut bytes, GetRandomFlags::empty()))?;
        Ok(Secret(bytes))
    }

    /// Takes as long for every guess of the right length.
    fn is(&self, guess: &[u8]) -> bool {
        let different = self
            .0
            .iter()
            .zip(guess)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        guess.len() == self.0.len() && different == 0
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.to_vec()
    }
}

/// What programs in the view of a transaction are given. Those in a sealed one
/// get nothing.
pub(crate) fn way_in(service: &Service, id: TransactionId) -> Option<Within> {
    let socket = service.inner_socket.clone()?;
    let secret = service.transactions.secret(id)?;
    Some(Within {
        socket,
        secret: secret.to_bytes(),
    })
}

/// A connection that came by the inner socket says which transaction it is in.
pub(crate) fn enter(
    service: &Service,
    connection: &mut Connection,
    id: TransactionId,
    guess: &[u8],
) -> Result<(), Failure> {
    if connection.peer.reach != Reach::Nothing {
        let message = "only the first request over the inner socket can say whose it is";
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    // A wrong guess learns no more than one about a transaction that has ended.
    let secret = service.transactions.secret(id);
    if !secret.is_some_and(|secret| secret.is(guess)) {
        return Err(no_such_transaction(id));
    }
    connection.peer.reach = Reach::Within(id);
    // Knowing the secret is not enough: it must be the owner's process, or root's.
    service
        .transactions
        .find(id, &connection.peer)
        .map(|_| ())
        .inspect_err(|_| connection.peer.reach = Reach::Nothing)
}

#[derive(Debug, thiserror::Error)]
enum InnerSocketError {
    #[error(transparent)]
    Place(#[from] MountpointError),
    #[error("cannot listen at '{path}': {errno}", errno = reason(errno))]
    Listen { path: PathBuf, errno: Errno },
}

impl InnerSocket {
    /// `mountpoint`: of the views. Without the socket all works but nesting
    /// from within, so a failure is only noted.
    pub(crate) fn bind(mountpoint: &Path, user: u32) -> Option<InnerSocket> {
        let bound = try_bind(mountpoint, user);
        bound
            .inspect_err(|error| {
                tracing::warn!("nothing in a view will reach the service: {error}")
            })
            .ok()
    }

    pub(crate) fn path(&self) -> Vec<u8> {
        OsString::from(&self.path).into_vec()
    }

    pub(crate) fn remove(&self) {
        socket::remove(&self.directory, &self.name);
    }
}

fn try_bind(mountpoint: &Path, user: u32) -> Result<InnerSocket, InnerSocketError> {
    // Held until it listens, so that nobody takes it for dead.
    let lock = mountpoint::prepare_parent(user)?;
    let path = mountpoint.with_extension("socket");
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let failed = |errno| InnerSocketError::Listen {
        path: path.clone(),
        errno,
    };
    let listener = Listener::bind(&lock, &name, user == 0).map_err(failed)?;
    // Another descriptor of the directory, without the lock.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(&lock, ".", flags, Mode::empty()).map_err(failed)?;
    Ok(InnerSocket {
        listener,
        directory,
        name,
        path,
    })
}
