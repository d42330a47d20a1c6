//! The views of open transactions: exact ones, which are file systems of
//! ours, and the snapshots that lie beneath native ones. Each kind has a mount,
//! as the second is read-only, and the kernel may then keep access times.

use crate::mountpoint;
use crate::transactions::Transaction;
pub(crate) use crate::view_mount::Arrived;
use crate::view_mount::ViewMount;
use atomdir_engine::Outdated;
use atomdir_fuse::MountFlags;
use atomdir_protocol::{Failure, TransactionId};
use rustix::fs::Stat;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The store `/` has no name of its own.
const UNNAMED: &str = "root";

pub(crate) struct Views {
    exact: ViewMount,
    lower: ViewMount,
}

impl Views {
    pub(crate) fn new(store: &Path, user: u32, control: &Stat) -> Views {
        mountpoint::sweep(user);
        let name = store.file_name().unwrap_or(UNNAMED.as_ref()).to_owned();
        let place = mountpoint::choose(user, control);
        let lower = mountpoint::lower(&place);
        Views {
            exact: ViewMount::new(user, place, store, name.clone(), MountFlags::empty()),
            lower: ViewMount::new(user, lower, store, name, MountFlags::RDONLY),
        }
    }

    /// Where the exact ones are, or why there can be none.
    pub(crate) fn place(&self) -> Result<Vec<u8>, Failure> {
        self.exact.mount()?;
        Ok(self.exact.place().as_os_str().as_bytes().to_vec())
    }

    /// Where the mount of exact views is made.
    pub(crate) fn mountpoint(&self) -> &Path {
        self.exact.place()
    }

    fn of(&self, transaction: &Transaction) -> &ViewMount {
        if transaction.is_lower() {
            &self.lower
        } else {
            &self.exact
        }
    }

    /// Where the view's root is; of a native one, where the snapshot is that
    /// lies beneath it.
    pub(crate) fn path(&self, transaction: &Transaction) -> PathBuf {
        self.of(transaction).path(TransactionId(transaction.id().0))
    }

    /// Makes sure that views can be had.
    pub(crate) fn mount(&self) -> Result<(), Failure> {
        self.exact.mount()
    }

    /// Makes the transaction's view appear.
    pub(crate) fn show(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        self.of(transaction).show(transaction)
    }

    /// Opens the root directory of a view that is shown.
    pub(crate) fn open(&self, transaction: &Transaction) -> Result<OwnedFd, Failure> {
        self.of(transaction).open(TransactionId(transaction.id().0))
    }

    /// What programs wrote to mapped files reaches the transaction only now.
    pub(crate) fn write_back(&self, transaction: &Transaction) -> Result<Arrived, Failure> {
        if transaction.is_lower() {
            // An overlay's upper layer is a plain directory.
            return Ok(Arrived::All);
        }
        self.exact.write_back(TransactionId(transaction.id().0))
    }

    /// What was changed behind the kernel's back.
    pub(crate) fn forget(&self, id: TransactionId, outdated: &[Outdated]) {
        self.exact.forget(id, outdated);
    }

    /// Whether requests for exact views do.
    pub(crate) fn come_over_io_uring(&self) -> bool {
        self.exact.comes_over_io_uring()
    }

    /// How many requests the present mounts have served.
    pub(crate) fn requests(&self) -> u64 {
        self.exact.requests() + self.lower.requests()
    }

    pub(crate) fn hide(&self, id: TransactionId) {
        self.exact.hide(id);
        self.lower.hide(id);
    }

    pub(crate) fn unmount(&self) {
        self.exact.unmount();
        self.lower.unmount();
    }
}
