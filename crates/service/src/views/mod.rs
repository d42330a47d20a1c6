//! The views of open transactions: exact ones, which are FUSE file systems of ours, and the
//! snapshots below native ones. Each kind has mounts of its own, since the snapshots' mount
//! is read-only, so that the kernel may keep access times there.
//!
//! Each user has a mount for exact views. Any program in a mount can hold up what the mount
//! has only once: its threads, the barrier before a commit, the child process that waits
//! for it, and in the kernel the lock of its root and the lock for renames. For example, a
//! directory stays locked while getdents(2) writes to a page of a file system that does not
//! answer. So users do not share a mount. Only the service's own user can have native
//! views.

pub(crate) mod aborter;
pub(crate) mod claim;
mod file_sessions;
pub(crate) mod guard;
pub(crate) mod inner_socket;
pub(crate) mod lending;
pub(crate) mod merge_turns;
pub(crate) mod merges;
pub(crate) mod mountpoint;
pub(crate) mod native;
mod outside_locks;
pub(crate) mod view_mount;

use crate::transactions::Transaction;
use crate::transactions::leases::Arrived;
use crate::views::claim::Claim;
use crate::views::view_mount::ViewMount;
use atomdir_disk::sync;
use atomdir_engine::{NodeId, Outdated};
use atomdir_fuse::MountFlags;
use atomdir_protocol::{Failure, TransactionId};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The store `/` has no name of its own.
const UNNAMED: &str = "root";

/// If there are more mounts than this, the service unmounts those with nothing open.
const IDLE_MOUNTS_MAX: usize = 16;

pub(crate) struct Views {
    claim: Arc<Claim>,
    user: u32,
    store: PathBuf,
    name: OsString,
    /// The mount for exact views of the service's own user.
    own: Arc<ViewMount>,
    /// The mounts for exact views of other users.
    others: Mutex<BTreeMap<u32, Arc<ViewMount>>>,
    lower: ViewMount,
}

impl Views {
    pub(crate) fn new(store: &Path, user: u32, control: &OwnedFd) -> Result<Views, Errno> {
        mountpoint::sweep(user);
        let claim = Arc::new(Claim::take(user, control)?);
        let place = claim.place().to_owned();
        if claim.is_held() {
            mountpoint::sweep_others(user, &place);
        }
        let name = store.file_name().unwrap_or(UNNAMED.as_ref()).to_owned();
        let lower = mountpoint::lower(&place);
        let mount = |place, flags| ViewMount::new(claim.clone(), place, store, name.clone(), flags);
        Ok(Views {
            user,
            store: store.to_owned(),
            own: Arc::new(mount(place, MountFlags::empty())),
            others: Mutex::default(),
            lower: mount(lower, MountFlags::RDONLY),
            name,
            claim,
        })
    }

    /// Where the exact views of the service's own user are, or why there can be none.
    pub(crate) fn place(&self) -> Result<Vec<u8>, Failure> {
        self.own.mount()?;
        Ok(self.own.place().as_os_str().as_bytes().to_vec())
    }

    pub(crate) fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The mount for a user's exact views.
    fn exact(&self, owner: u32) -> Arc<ViewMount> {
        if owner == self.user {
            return self.own.clone();
        }
        let mut others = sync::lock(&self.others);
        if let Some(mount) = others.get(&owner) {
            return mount.clone();
        }
        let place = mountpoint::of_other(self.own.place(), owner);
        let name = self.name.clone();
        let claim = self.claim.clone();
        let mount = ViewMount::new(claim, place, &self.store, name, MountFlags::empty());
        let mount = Arc::new(mount);
        others.insert(owner, mount.clone());
        if others.len() > IDLE_MOUNTS_MAX {
            unmount_idle(others.values().filter(|other| !Arc::ptr_eq(other, &mount)));
        }
        mount
    }

    /// All mounts for exact views.
    fn all_exact(&self) -> Vec<Arc<ViewMount>> {
        let others = sync::lock(&self.others);
        others.values().chain([&self.own]).cloned().collect()
    }

    /// The path of the view's root; for a native view, of the snapshot below it.
    pub(crate) fn path(&self, transaction: &Transaction) -> PathBuf {
        let id = transaction.id();
        if transaction.is_lower() {
            return self.lower.path(id);
        }
        self.exact(transaction.owner()).path(id)
    }

    /// Makes sure that a user can have views.
    pub(crate) fn mount(&self, user: u32) -> Result<(), Failure> {
        self.exact(user).mount()
    }

    /// Announces that the native view will be taken over and appear as an exact one.
    pub(crate) fn expect(&self, transaction: &Transaction) -> Result<(), Failure> {
        let id = transaction.id();
        self.exact(transaction.owner()).expect(id)
    }

    /// Makes an exact view appear where its user's views are mounted, and mounts nothing. Most
    /// native views that become exact are committed at once, and nobody looks at them.
    pub(crate) fn announce(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        self.exact(transaction.owner()).announce(transaction)
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
        let id = transaction.id();
        if transaction.is_lower() {
            return self.lower.open(id);
        }
        self.exact(transaction.owner()).open(id)
    }

    /// A mount of the file system in which the transaction's view is, for another mount namespace.
    pub(crate) fn lend(&self, transaction: &Transaction) -> Result<OwnedFd, Failure> {
        if transaction.is_lower() {
            return self.lower.lend();
        }
        self.exact(transaction.owner()).lend()
    }

    /// Waits until writes through memory mappings have reached the transaction.
    pub(crate) fn write_back(&self, transaction: &Transaction) -> Result<Arrived, Failure> {
        if transaction.is_lower() {
            // An overlay's upper layer is a plain directory.
            return Ok(Arrived::All);
        }
        let id = transaction.id();
        match self.exact(transaction.owner()).write_back(id)? {
            // The transaction was committed or aborted meanwhile, and its view ended with
            // it. So no write was lost with the mount, and the caller's next step reports
            // the end.
            Arrived::PerhapsNotAll if !transaction.is_open() => Ok(Arrived::All),
            arrived => Ok(arrived),
        }
    }

    /// Invalidates the kernel's cached data after changes that did not come through the kernel.
    pub(crate) fn forget(&self, owner: u32, id: TransactionId, outdated: &[Outdated]) {
        self.exact(owner).forget(id, outdated);
    }

    /// Makes the kernel forget everything about a view that has a new snapshot.
    pub(crate) fn renew(&self, transaction: &Transaction, known: &[NodeId]) {
        let id = transaction.id();
        self.exact(transaction.owner()).renew(id, known);
    }

    /// Whether requests for exact views come over io_uring.
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
        let id = transaction.id();
        self.exact(transaction.owner()).hide(id);
        self.lower.hide(id);
    }

    /// Ends all waits for programs in views. After that views can only be unmounted.
    pub(crate) fn give_up_barriers(&self) {
        for mount in self.all_exact() {
            mount.give_up_barriers();
        }
        self.lower.give_up_barriers();
    }

    pub(crate) fn unmount(&self) {
        let exact = self.all_exact();
        std::thread::scope(|scope| {
            // If the end of one mount is held up, the others still end.
            for mount in &exact {
                scope.spawn(|| mount.unmount());
            }
            self.lower.unmount();
        });
        self.claim.end();
    }
}

/// Unmounts in a new thread, since programs in a mount may hold up its end.
fn unmount_idle<'a>(mounts: impl Iterator<Item = &'a Arc<ViewMount>>) {
    let mounts: Vec<Arc<ViewMount>> = mounts.cloned().collect();
    let thread = std::thread::Builder::new().name("unmount".to_owned());
    // If no thread can be started, the mounts stay for a while.
    let _ = thread.spawn(move || mounts.iter().for_each(|mount| mount.unmount_if_idle()));
}
