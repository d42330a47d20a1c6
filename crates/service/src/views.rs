//! The views of open transactions: exact ones, which are file systems of
//! ours, and the snapshots that lie beneath native ones. Each kind has a mount,
//! as the second is read-only, and the kernel may then keep access times.
//!
//! Exact views have a mount for each user. What one mount has only once (its threads,
//! the barrier before a commit, the child process that waits for it, and in the kernel
//! the lock of its root and the lock for renames) can be held up by any program in it:
//! a directory stays locked while getdents(2) writes to a page of a file system that
//! does not answer. So nobody shares these with another user. Native views are for the
//! service's own user only.

use crate::mountpoint;
use crate::transactions::Transaction;
pub(crate) use crate::view_mount::Arrived;
use crate::view_mount::ViewMount;
use atomdir_engine::Outdated;
use atomdir_fuse::MountFlags;
use atomdir_protocol::{Failure, TransactionId};
use rustix::fs::Stat;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The store `/` has no name of its own.
const UNNAMED: &str = "root";

/// More mounts than these are taken away when nothing is open in them.
const IDLE_MOUNTS_MAX: usize = 16;

pub(crate) struct Views {
    user: u32,
    store: PathBuf,
    name: OsString,
    /// Exact ones of the service's own user.
    own: Arc<ViewMount>,
    /// Exact ones of others.
    others: Mutex<BTreeMap<u32, Arc<ViewMount>>>,
    lower: ViewMount,
}

impl Views {
    pub(crate) fn new(store: &Path, user: u32, control: &Stat) -> Views {
        mountpoint::sweep(user);
        let name = store.file_name().unwrap_or(UNNAMED.as_ref()).to_owned();
        let place = mountpoint::choose(user, control);
        mountpoint::sweep_others(user, &place);
        let lower = mountpoint::lower(&place);
        let own = ViewMount::new(user, place, store, name.clone(), MountFlags::empty());
        Views {
            user,
            store: store.to_owned(),
            name: name.clone(),
            own: Arc::new(own),
            others: Mutex::default(),
            lower: ViewMount::new(user, lower, store, name, MountFlags::RDONLY),
        }
    }

    /// Where the service's own user's exact ones are, or why there can be none.
    pub(crate) fn place(&self) -> Result<Vec<u8>, Failure> {
        self.own.mount()?;
        Ok(self.own.place().as_os_str().as_bytes().to_vec())
    }

    /// Where the mount of the service's own user's exact views is made.
    pub(crate) fn mountpoint(&self) -> &Path {
        self.own.place()
    }

    /// The mount of a user's exact views.
    fn exact(&self, owner: u32) -> Arc<ViewMount> {
        if owner == self.user {
            return self.own.clone();
        }
        let mut others = self.lock_others();
        if let Some(mount) = others.get(&owner) {
            return mount.clone();
        }
        let place = mountpoint::of_other(self.own.place(), owner);
        let name = self.name.clone();
        let mount = ViewMount::new(self.user, place, &self.store, name, MountFlags::empty());
        let mount = Arc::new(mount);
        others.insert(owner, mount.clone());
        if others.len() > IDLE_MOUNTS_MAX {
            unmount_idle(others.values().filter(|other| !Arc::ptr_eq(other, &mount)));
        }
        mount
    }

    /// All mounts of exact views.
    fn all_exact(&self) -> Vec<Arc<ViewMount>> {
        let others = self.lock_others();
        others.values().chain([&self.own]).cloned().collect()
    }

    fn lock_others(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<ViewMount>>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the view's root is; of a native one, where the snapshot is that
    /// lies beneath it.
    pub(crate) fn path(&self, transaction: &Transaction) -> PathBuf {
        let id = TransactionId(transaction.id().0);
        if transaction.is_lower() {
            return self.lower.path(id);
        }
        self.exact(transaction.owner()).path(id)
    }

    /// Makes sure that a user can have views.
    pub(crate) fn mount(&self, user: u32) -> Result<(), Failure> {
        self.exact(user).mount()
    }

    /// The transaction's native view will be taken over, and appear as an exact one.
    pub(crate) fn expect(&self, transaction: &Transaction) -> Result<(), Failure> {
        let id = TransactionId(transaction.id().0);
        self.exact(transaction.owner()).expect(id)
    }

    /// Makes the transaction's view appear.
    pub(crate) fn show(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        if transaction.is_lower() {
            return self.lower.show(transaction);
        }
        self.exact(transaction.owner()).show(transaction)
    }

    /// Opens the root directory of a view that is shown.
    pub(crate) fn open(&self, transaction: &Transaction) -> Result<OwnedFd, Failure> {
        let id = TransactionId(transaction.id().0);
        if transaction.is_lower() {
            return self.lower.open(id);
        }
        self.exact(transaction.owner()).open(id)
    }

    /// What programs wrote to mapped files reaches the transaction only now.
    pub(crate) fn write_back(&self, transaction: &Transaction) -> Result<Arrived, Failure> {
        if transaction.is_lower() {
            // An overlay's upper layer is a plain directory.
            return Ok(Arrived::All);
        }
        let id = TransactionId(transaction.id().0);
        match self.exact(transaction.owner()).write_back(id)? {
            // It was committed or aborted meanwhile, so its view has gone with it, not with
            // the mount. Nothing is missing: what the caller does next says that it ended.
            Arrived::PerhapsNotAll if !transaction.is_open() => Ok(Arrived::All),
            arrived => Ok(arrived),
        }
    }

    /// What was changed behind the kernel's back in a view of this user.
    pub(crate) fn forget(&self, owner: u32, id: TransactionId, outdated: &[Outdated]) {
        self.exact(owner).forget(id, outdated);
    }

    /// Whether requests for exact views do.
    pub(crate) fn come_over_io_uring(&self) -> bool {
        self.own.comes_over_io_uring()
    }

    /// How many requests the present mounts have served.
    pub(crate) fn requests(&self) -> u64 {
        let exact = self.all_exact();
        let exact = exact.iter().map(|mount| mount.requests());
        exact.sum::<u64>() + self.lower.requests()
    }

    pub(crate) fn hide(&self, transaction: &Transaction) {
        let id = TransactionId(transaction.id().0);
        self.exact(transaction.owner()).hide(id);
        self.lower.hide(id);
    }

    /// Lets everybody go who waits for programs in views. Views are of no use then but
    /// to be unmounted.
    pub(crate) fn give_up_barriers(&self) {
        for mount in self.all_exact() {
            mount.give_up_barriers();
        }
        self.lower.give_up_barriers();
    }

    pub(crate) fn unmount(&self) {
        let exact = self.all_exact();
        std::thread::scope(|scope| {
            // What holds up the end of one does not keep the others.
            for mount in &exact {
                scope.spawn(|| mount.unmount());
            }
            self.lower.unmount();
        });
    }
}

/// In a thread, as programs in a mount may hold up its end.
fn unmount_idle<'a>(mounts: impl Iterator<Item = &'a Arc<ViewMount>>) {
    let mounts: Vec<Arc<ViewMount>> = mounts.cloned().collect();
    let thread = std::thread::Builder::new().name("unmount".to_owned());
    // Without one, they stay for a while.
    let _ = thread.spawn(move || mounts.iter().for_each(|mount| mount.unmount_if_idle()));
}
