//! Runs a command inside a transaction's view.
//!
//! The command gets a private mount namespace in which the view is bound over
//! the store's own path, so that absolute paths keep their meaning. It starts
//! in the caller's directory. If the system forbids such namespaces, we refuse
//! to run the command. Only if the caller has allowed it does the command run
//! under the view's own path. A program that names the store's path then
//! changes the store at once, outside the transaction.
//!
//! The command stays in our process group: the terminal treats both as one job.

mod apart;
mod child;
mod descendants;
mod explain;
mod launch;
mod lent_mount;
mod loop_devices;
mod merge;
mod namespace;
mod outside;
mod overlay;
mod private_root;
mod renames;
mod seal;
mod signal_name;
mod signals;
#[cfg(test)]
mod tests;

pub use apart::stand_apart;
pub use child::{Background, Ended, Remainder, ServiceWatch, start};
pub use explain::explain;
pub use lent_mount::lend;
pub use merge::{MergeFailure, merge};
pub use outside::run_outside;
pub use overlay::{Overlay, OverlayFailure};
pub use seal::{Confinement, NAMED_MAX, Private, Sealing};
pub use signal_name::signal_name;
pub use signals::{HeldHangUp, HeldSignals};

use atomdir::TransactionId;
use atomdir::client::io_reason;
use atomdir::client::reason;
use rustix::io::Errno;
use std::ffi::{CString, NulError};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where a command is to run.
pub struct ViewBinding {
    /// The store's root, as an absolute path without symbolic links.
    pub base: PathBuf,
    pub view: Tree,
    /// The caller's directory, relative to the store's root.
    pub directory: PathBuf,
    /// Whether the command may run under the view's own path if the view cannot
    /// be bound over the store's.
    pub may_be_unbound: bool,
    /// The views of other stores, which the command sees in their places.
    pub also: Vec<AlsoBound>,
    /// Set for a command that is to be sealed.
    pub sealing: Option<Sealing>,
}

impl ViewBinding {
    /// The native views, each with the root of its store.
    fn overlays(&self) -> impl Iterator<Item = (&Path, &Overlay)> {
        let own = std::iter::once((&*self.base, &self.view));
        let also = self.also.iter().map(|one| (&*one.base, &one.view));
        own.chain(also).filter_map(|(base, view)| match view {
            Tree::Native(overlay) => Some((base, overlay)),
            Tree::Exact(_) => None,
        })
    }
}

/// The view of another store.
pub struct AlsoBound {
    /// The root of that store.
    pub base: PathBuf,
    /// Where an exact view is.
    pub path: PathBuf,
    pub view: Tree,
}

/// What the command sees in place of the store.
pub enum Tree {
    /// The root of a view, checked by `Connection::enterable_root`.
    Exact(OwnedFd),
    Native(Overlay),
}

/// A step of the way into a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    Unshare,
    MapUser,
    HoldMounts,
    Network,
    Bind,
    ChangeDirectory,
    WatchRenames,
    Confine,
    Cover,
    Processes,
    GiveUp,
}

impl Step {
    const ALL: [Step; 11] = [
        Step::Unshare,
        Step::MapUser,
        Step::HoldMounts,
        Step::Network,
        Step::Bind,
        Step::ChangeDirectory,
        Step::WatchRenames,
        Step::Confine,
        Step::Cover,
        Step::Processes,
        Step::GiveUp,
    ];
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Step::Unshare => "making a private mount namespace",
            Step::MapUser => "mapping the user into a user namespace",
            Step::HoldMounts => "keeping new mounts private",
            Step::Network => "making a network namespace",
            Step::Bind => "binding the view over the store",
            Step::ChangeDirectory => "changing to the caller's directory in the view",
            Step::WatchRenames => "watching the command's renames",
            Step::Confine => "making what is outside of the view read-only",
            Step::Cover => "hiding other ways to the store",
            Step::Processes => "making a private process namespace",
            Step::GiveUp => "giving up the capabilities that would undo the seal",
        })
    }
}

/// Which step failed, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{step} failed: {errno}", errno = reason(errno))]
pub struct SetUpFailure {
    pub step: Step,
    pub errno: Errno,
}

impl SetUpFailure {
    /// Whether the system forbids private mount namespaces to this user, in one
    /// of the ways of sandboxes, containers and security modules.
    fn is_forbidden(&self) -> bool {
        let early = matches!(
            self.step,
            Step::Unshare | Step::MapUser | Step::HoldMounts | Step::Processes
        );
        let refused = [
            Errno::PERM,
            Errno::ACCESS,
            Errno::NOSPC,
            Errno::USERS,
            Errno::NOSYS,
            Errno::INVAL,
            Errno::ROFS,
        ];
        early && refused.contains(&self.errno)
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnterError {
    #[error(
        "the system does not let this user put the view in the place of '{base}': {failure}; the \
         command was not started"
    )]
    Forbidden {
        base: PathBuf,
        failure: SetUpFailure,
    },
    #[error("cannot enter the view of '{base}': {failure}")]
    SetUp {
        base: PathBuf,
        failure: SetUpFailure,
    },
    #[error("cannot seal the command off from '{base}': {failure}")]
    Seal {
        base: PathBuf,
        failure: SetUpFailure,
    },
    #[error(
        "cannot seal the command off from '{base}': '{place}' may be another way to it, but cannot \
         be looked at: {errno}", errno = reason(errno))]
    Unseen {
        base: PathBuf,
        place: PathBuf,
        errno: Errno,
    },
    #[error("cannot run '{program}': no such program")]
    NoSuchProgram { program: PathBuf },
    #[error("cannot run '{program}': {}", io_reason(source))]
    NotExecutable {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot start '{program}': {}", io_reason(source))]
    Start {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "background processes of the command are still writing in its view, and cannot be \
         killed: {}", reason(.0))]
    LeftBehind(Errno),
    #[error("cannot enter the transaction's native view: {0}")]
    NotLent(OverlayFailure),
    #[error(
        "files of the native view of transaction {transaction} are still open for writing: {}",
        openers(loop_devices)
    )]
    StillWriting {
        transaction: TransactionId,
        loop_devices: Vec<String>,
    },
    #[error(
        "cannot leave a process behind for the programs that are still in the native view: {}",
        io_reason(.0)
    )]
    StayBehind(std::io::Error),
    #[error("cannot wait for the command: {}", io_reason(.0))]
    Wait(std::io::Error),
}

/// Who has files open that no process of the command has open.
fn openers(loop_devices: &[String]) -> String {
    match loop_devices {
        [] => {
            "programs of an `atomdir exec` or `atomdir shell` that has ended, or programs outside \
               to which the command has passed them"
                .to_owned()
        }
        [one] => format!("the loop device {one} uses one"),
        several => format!("the loop devices {} use some", several.join(", ")),
    }
}

impl EnterError {
    /// Call it when the command's own processes have ended, and the overlay can still be written.
    pub fn still_writing(transaction: TransactionId, overlay: &Overlay) -> EnterError {
        EnterError::StillWriting {
            transaction,
            loop_devices: loop_devices::on_files_of(overlay),
        }
    }
}

fn c_path(path: &Path) -> Result<CString, NulError> {
    CString::new(path.as_os_str().as_bytes())
}
