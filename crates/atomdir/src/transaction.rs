//! An open transaction on the client's side.

use crate::TransactionId;
use crate::connection::Connection;
use crate::layers::{Layers, Lower};
use crate::view_root::{self, ViewRootError};
use atomdir_protocol::Begun;
use atomdir_types::Deviation;
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
    /// The number by which it is named.
    pub id: TransactionId,
    /// The view's root directory; for a native view, that of the snapshot below it.
    pub view_path: PathBuf,
    root: OnceLock<OwnedFd>,
    /// Only a native view has layers.
    pub layers: Option<Layers>,
    /// Why the view is exact although the client would have taken a native one.
    pub exact_because: Option<String>,
    /// Deviations of overlayfs from a plain directory, if the view was native until now.
    pub deviations: Vec<Deviation>,
    /// The view is native, another process has mounted it, and [`root`](Self::root) is the root of
    /// a mount of it.
    pub is_lent: bool,
    /// For programs in the view. `None` if it is sealed, or the service cannot listen.
    pub(crate) within: Option<Within>,
    /// The user as whom the service runs that showed the view.
    service_user: u32,
}

/// How a program in a view reaches the service.
pub(crate) struct Within {
    pub(crate) socket: PathBuf,
    pub(crate) secret: Vec<u8>,
}

impl Transaction {
    /// Returns `None` if the service offers a native view that it must not offer.
    pub(crate) fn new(
        begun: Begun,
        root: Option<OwnedFd>,
        connection: &Connection,
    ) -> Option<Transaction> {
        let service_user = connection.service_user();
        let view_path = path(begun.view_path);
        let layers = match begun.layers {
            None => None,
            // A user who can write in a layer decides what its overlay shows.
            Some(_) if service_user != rustix::process::geteuid().as_raw() => return None,
            Some(layers) => Some(Layers {
                user_xattrs: layers.user_xattrs,
                is_required: layers.is_required,
                lower: match layers.over_base {
                    true => Lower::Base(connection.store().to_owned()),
                    false => Lower::Snapshot(view_path.clone()),
                },
                control: connection.control()?.to_owned(),
                below: path(layers.path),
                service_user,
            }),
        };
        Some(Transaction {
            id: begun.transaction,
            view_path,
            root: root.map_or_else(OnceLock::new, OnceLock::from),
            layers,
            exact_because: begun.exact_because,
            deviations: begun.deviations,
            is_lent: begun.lent,
            within: begun.within.map(|within| Within {
                socket: path(within.socket),
                secret: within.secret,
            }),
            service_user,
        })
    }

    /// Returns `view_path` opened with `O_PATH`. If the service was not asked to open it,
    /// the first call does, by its path. That fails once the transaction has ended, and
    /// where this process does not see the mount of views.
    pub fn root(&self) -> Result<BorrowedFd<'_>, Errno> {
        if let Some(root) = self.root.get() {
            return Ok(root.as_fd());
        }
        // The path is in the service's own mount, which never shows another transaction
        // of this store under the same path.
        let opened = view_root::open(&self.view_path)?;
        match view_root::check(&opened, self.service_user) {
            Ok(()) => Ok(self.root.get_or_init(|| opened).as_fd()),
            Err(ViewRootError::Io { errno, .. }) => Err(errno),
            Err(_) => Err(Errno::PROTO),
        }
    }

    /// For a view that [is lent](Self::is_lent): a mount of it that is attached to no path yet.
    pub fn lent_mount(&self) -> Option<OwnedFd> {
        let mount = self.root.get().filter(|_| self.is_lent)?;
        rustix::io::fcntl_dupfd_cloexec(mount, 3).ok()
    }

    pub(crate) fn enterable_root(&self) -> Result<OwnedFd, ViewRootError> {
        let duplicate = |root: &OwnedFd| {
            rustix::io::fcntl_dupfd_cloexec(root, 3).map_err(|errno| ViewRootError::Io {
                operation: "keeping it",
                errno,
            })
        };
        let brought = self.root.get();
        if let Some(root) = brought {
            match view_root::check(root, self.service_user) {
                // The service may be in another namespace than this process, for example
                // because this process runs in a view. Its mount may still be visible
                // here by its path.
                Err(ViewRootError::NotMounted) => {}
                checked => return checked.and_then(|()| duplicate(root)),
            }
        }
        let opened = view_root::open(&self.view_path).map_err(|errno| match errno {
            Errno::NOENT if brought.is_some() => ViewRootError::NotMounted,
            errno => ViewRootError::Io {
                operation: "opening it",
                errno,
            },
        })?;
        view_root::check(&opened, self.service_user)?;
        if let Some(root) = brought
            && !view_root::is_same(root, &opened)?
        {
            return Err(ViewRootError::Elsewhere {
                path: self.view_path.clone(),
            });
        }
        Ok(opened)
    }
}

impl fmt::Debug for Within {
    /// Leaves out the secret, which must not get into a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(formatter)
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes))
}
