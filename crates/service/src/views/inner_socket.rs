//! A second socket, beside the mount of views. Programs in a view do not see the
//! control directory, and they use this socket to begin nested transactions.
//!
//! Everybody can find this socket, even users who may not see the store. So a connection
//! first presents the secret of a transaction, which that transaction's programs
//! get in their environment. The kernel hides a process's environment from other
//! users. The environment reaches more programs than an inherited descriptor
//! would, since many close descriptors that they do not know. The connection must
//! also come from the transaction's owner or root, and then acts within that
//! transaction only.

use crate::clients::connection::Connection;
use crate::clients::socket::{self, Listener};
use crate::rights::permissions::{Reach, no_such_transaction};
use crate::service::Service;
use crate::views::claim::Claim;
use crate::views::mountpoint::{self, MountpointError};
use atomdir_disk::reason;
use atomdir_protocol::{Answer, Failure, FailureKind, TransactionId, Within};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub(crate) struct InnerSocket {
    pub(crate) listener: Listener,
    directory: OwnedFd,
    name: String,
    path: PathBuf,
}

/// The data that programs in a transaction's view need to use this socket; `None` for a sealed
/// transaction.
pub(crate) fn way_in(service: &Service, id: TransactionId) -> Option<Within> {
    let socket = service.inner_socket.clone()?;
    let secret = service.transactions.secret(id)?;
    Some(Within {
        socket,
        secret: secret.to_bytes(),
    })
}

/// A connection at the inner socket names its transaction and proves it.
pub(crate) fn enter(
    service: &Service,
    connection: &mut Connection,
    id: TransactionId,
    guess: &[u8],
) -> Result<Answer, Failure> {
    if connection.peer.reach != Reach::Nothing {
        let message = "only the first request on the inner socket can name the transaction that the program runs in";
        return Err(Failure::new(FailureKind::BadRequest, message));
    }
    // A wrong guess gets the same answer as one about a transaction that has ended.
    let secret = service.transactions.secret(id);
    if !secret.is_some_and(|secret| secret.is(guess)) {
        return Err(no_such_transaction(id));
    }
    connection.peer.reach = Reach::Within(id);
    // The secret is not enough: the process must be the owner's or root's.
    service
        .transactions
        .find(id, &connection.peer)
        .map(|_| Answer::Nothing)
        .inspect_err(|_| connection.peer.reach = Reach::Nothing)
}

#[derive(Debug, thiserror::Error)]
enum InnerSocketError {
    #[error(transparent)]
    Mountpoint(#[from] MountpointError),
    #[error("cannot listen at '{path}': {errno}", errno = reason(errno))]
    Listen { path: PathBuf, errno: Errno },
}

impl InnerSocket {
    /// It is beside the place of the views. Without the socket only nesting from
    /// within a view fails, so an error is only reported in the service's log.
    pub(crate) fn bind(claim: &Claim) -> Option<InnerSocket> {
        let bound = try_bind(claim);
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

fn try_bind(claim: &Claim) -> Result<InnerSocket, InnerSocketError> {
    claim.hold()?;
    let user = claim.user();
    let parent = mountpoint::prepare_parent(user)?;
    let path = mountpoint::socket_of(claim.place());
    let name = path.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let failed = |errno| InnerSocketError::Listen {
        path: path.clone(),
        errno,
    };
    let listener = Listener::bind(&parent, &name, user == 0).map_err(failed)?;
    // A second descriptor of the directory, which does not hold the lock of the first.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(&parent, ".", flags, Mode::empty()).map_err(failed)?;
    Ok(InnerSocket {
        listener,
        directory,
        name,
        path,
    })
}
