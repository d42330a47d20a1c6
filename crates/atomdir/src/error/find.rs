//! Errors of looking for a store.

use crate::accounts::describe_user;
use crate::trust::{Distrust, configuration};
use atomdir_disk::reason;
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Why no store was found, or why one is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// No directory on the way up is a store.
    #[error("no store holds '{start}': neither it nor a directory above it has a .atomdir")]
    NoStore {
        /// Where the search began.
        start: PathBuf,
    },
    /// The path is in the view of a transaction.
    #[error("'{path}' is in the view of a transaction, from which its store cannot be reached")]
    InView {
        /// The path.
        path: PathBuf,
    },
    /// The path looks like a view, and another user may have made it.
    #[error(
        "'{path}' looks like a view, but {} may have mounted it, so it is not taken for one",
        describe_user(*user)
    )]
    ForeignView {
        /// The path.
        path: PathBuf,
        /// The numeric id of that user.
        user: u32,
    },
    /// Somebody else could decide what the store contains.
    #[error("the store '{store}' is not trusted: {reason}")]
    Untrusted {
        /// The store's root.
        store: PathBuf,
        /// The reason.
        reason: Distrust,
        /// The caller's configuration, which can list the store.
        configuration: Option<PathBuf>,
    },
    /// A system call failed.
    #[error("cannot look for a store at '{path}': {errno}", errno = reason(errno))]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        errno: Errno,
    },
    /// The path does not lead to a control directory.
    #[error("'{path}' is neither a control directory nor a file that names one")]
    NotAControl {
        /// The path.
        path: PathBuf,
    },
    /// The directory was copied, and still names the control directory of the original.
    #[error("'{root}' is a copy of the store whose control directory is '{control}'")]
    Copied {
        /// The copy's root.
        root: PathBuf,
        /// The control directory.
        control: PathBuf,
    },
    /// The directory was copied with its control directory.
    #[error(
        "'{root}' is a copy of a store: its control directory was made elsewhere, so nothing in it counts here"
    )]
    Unadopted {
        /// The copy's root.
        root: PathBuf,
    },
    /// Something called `.atomdir` came into a store with an archive, a clone or a move.
    #[error(
        "'{root}' lies inside the store '{store}', to which it belongs; stores cannot be nested"
    )]
    Inside {
        /// The directory.
        root: PathBuf,
        /// The root of the store that holds it.
        store: PathBuf,
    },
    /// The control directory that the path names cannot be used.
    #[error(
        "'{path}' says that the control directory is '{control}', which cannot be used: {reason}"
    )]
    BadControl {
        /// The path.
        path: PathBuf,
        /// The control directory.
        control: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl FindError {
    pub(crate) fn untrusted(store: &Path, reason: Distrust) -> FindError {
        FindError::Untrusted {
            store: store.to_owned(),
            reason,
            configuration: configuration::path(),
        }
    }
}
