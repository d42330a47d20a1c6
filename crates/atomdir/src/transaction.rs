//! An open transaction, as its client knows it.

use crate::TransactionId;
use atomdir_protocol::Begun;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

/// An open transaction's view. Dropping it changes nothing.
#[derive(Debug)]
pub struct Transaction {
    pub id: TransactionId,
    /// The view's root directory; of a native view, the snapshot's beneath it.
    pub view_path: PathBuf,
    root: OnceLock<OwnedFd>,
    /// Of a native view.
    pub layers: Option<Layers>,
    /// For programs in its view. `None`: it is sealed, or the service cannot listen.
    pub(crate) within: Option<Within>,
}

/// How a program in a view reaches the service.
pub(crate) struct Within {
    pub(crate) socket: PathBuf,
    pub(crate) secret: Vec<u8>,
}

/// What a native view's overlay is mounted with, above the snapshot.
#[derive(Debug, Clone)]
pub struct Layers {
    /// Where the directories `upper` and `work` are.
    pub path: PathBuf,
    /// overlayfs has to keep its notes where ordinary users may (`userxattr`).
    pub user_marks: bool,
}

impl Transaction {
    pub(crate) fn new(begun: Begun, root: Option<OwnedFd>) -> Transaction {
        Transaction {
            id: begun.transaction,
            view_path: path(begun.view_path),
            root: root.map_or_else(OnceLock::new, OnceLock::from),
            layers: begun.layers.map(|layers| Layers {
                path: path(layers.path),
                user_marks: layers.user_marks,
            }),
            within: begun.within.map(|within| Within {
                socket: path(within.socket),
                secret: within.secret,
            }),
        }
    }

    /// What `view_path` names, open with `O_PATH`: by the service if it was asked
    /// to, else by that path when this is first called, which fails where the
    /// mount of views is not seen and once the transaction has ended.
    pub fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(root) = self.root.get() {
            return Ok(root.as_fd());
        }
        // The path is in the service's own mount, and no other transaction of
        // this store is ever shown under it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, &self.view_path, flags, Mode::empty())?;
        Ok(self.root.get_or_init(|| opened).as_fd())
    }
}

impl fmt::Debug for Within {
    /// Without the secret, which must not get into a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(formatter)
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
