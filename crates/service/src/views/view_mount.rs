//! The mount in which a user's transactions appear, each as a directory. It is made
//! for the user's first transaction, so all else works even where nothing can be
//! mounted.
//!
//! Programs in a mount can keep the kernel's locks for its directories, or for all of
//! it, and so hold up any thread that waits for the mount. So no thread holds the lock
//! `mounted` while it waits for the mount, except to end it, or to ask a new one for its
//! root's attributes, which takes no lock.

use crate::rights::permissions::no_such_transaction;
use crate::transactions::Transaction;
use crate::transactions::leases::Arrived;
use crate::views::claim::Claim;
use crate::views::mountpoint;
use atomdir_disk::reason;
use atomdir_disk::sync;
use atomdir_engine::{NodeId, Outdated};
use atomdir_fuse::{MountError, MountFlags, MountOptions, Session};
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// If the variable is `classic`, requests come by /dev/fuse even where io_uring is possible.
const FUSE_VARIABLE: &str = "ATOMDIR_FUSE";

pub(crate) struct ViewMount {
    claim: Arc<Claim>,
    place: PathBuf,
    store: PathBuf,
    /// The name of the store's root, which each view's root has as well.
    name: OsString,
    flags: MountFlags,
    filesystem: Arc<atomdir_views::Views>,
    mounted: Mutex<Option<Arc<Session>>>,
    is_over: AtomicBool,
    /// Transactions that only the present mount has shown. Other transactions may have
    /// lost writes through memory mappings when an older mount ended.
    whole: Mutex<HashSet<TransactionId>>,
}

impl ViewMount {
    /// `place` is the claimed one or beside it.
    pub(crate) fn new(
        claim: Arc<Claim>,
        place: PathBuf,
        store: &Path,
        name: OsString,
        flags: MountFlags,
    ) -> ViewMount {
        let flags = flags | forbidden_outside(store);
        if let Err(error) = claim.hold().and_then(|()| mountpoint::clear(&place)) {
            // Mounting will report this to each client that needs a view.
            tracing::warn!("{error}");
        }
        ViewMount {
            claim,
            place,
            store: store.to_owned(),
            filesystem: Arc::new(atomdir_views::Views::new(name.as_bytes())),
            name,
            flags,
            mounted: Mutex::new(None),
            is_over: AtomicBool::new(false),
            whole: Mutex::default(),
        }
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// The path of a view's root directory.
    pub(crate) fn path(&self, id: TransactionId) -> PathBuf {
        self.place.join(id.to_string()).join(&self.name)
    }

    /// Mounts unless a mount is there; mounts again if someone has unmounted it.
    pub(crate) fn mount(&self) -> Result<(), Failure> {
        self.serving().map(|_| ())
    }

    fn serving(&self) -> Result<Arc<Session>, Failure> {
        let mut mounted = sync::lock(&self.mounted);
        if self.is_serving(&mut mounted)
            && let Some(session) = &*mounted
        {
            return Ok(session.clone());
        }
        self.refuse_if_over()?;
        let session = Arc::new(self.make()?);
        *mounted = Some(session.clone());
        Ok(session)
    }

    /// Whether the mount is there. Clears away one that somebody has unmounted.
    fn is_serving(&self, mounted: &mut Option<Arc<Session>>) -> bool {
        let Some(ended) = mounted.take_if(|session| session.is_ended()) else {
            return mounted.is_some();
        };
        end(&ended);
        sync::lock(&self.whole).clear();
        false
    }

    fn make(&self) -> Result<Session, Failure> {
        let user = self.claim.user();
        let prepared = self.claim.hold();
        let _stays = prepared
            .and_then(|()| mountpoint::prepare(&self.place, user))
            .map_err(|error| Failure::new(FailureKind::NoViews, error.to_string()))?;
        let options = MountOptions {
            source: self.store.to_string_lossy().into_owned(),
            others_allowed: user == 0,
            // Views have the flags of the base's mount; fusermount3 adds some of its own.
            flags: self.flags,
            ..options()
        };
        Session::mount(self.filesystem.clone(), &self.place, &options)
            .map_err(|error| mount_failure(&error))
    }

    /// Announces that the transaction's view will appear. Nothing can be written in it
    /// before that, so this mount, or the first one from now on, will have received every write
    /// when a commit runs the barrier.
    pub(crate) fn expect(&self, id: TransactionId) -> Result<(), Failure> {
        let mut mounted = sync::lock(&self.mounted);
        if !self.is_serving(&mut mounted) {
            self.refuse_if_over()?;
        }
        sync::lock(&self.whole).insert(id);
        Ok(())
    }

    pub(crate) fn show(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        self.announce(transaction)?;
        let id = transaction.id();
        self.mount().inspect_err(|_| self.hide(id))
    }

    /// Makes the view appear, in this mount or in the next one.
    pub(crate) fn announce(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        self.filesystem.add(transaction.clone());
        let id = transaction.id();
        self.expect(id).inspect_err(|_| self.hide(id))?;
        // If the transaction ended meanwhile, its view may have been hidden before it
        // was added.
        if !transaction.is_open() {
            self.hide(id);
            return Err(no_such_transaction(id));
        }
        Ok(())
    }

    /// Opens a view's root directory.
    pub(crate) fn open(&self, id: TransactionId) -> Result<OwnedFd, Failure> {
        let path = Path::new(&id.to_string()).join(&self.name);
        self.serving()?
            .open_directory(&path)
            .map_err(|errno| view_failure(&format!("enter the view of transaction {id}"), errno))
    }

    /// Another mount of the same file system, attached nowhere. Only root may make one.
    pub(crate) fn lend(&self) -> Result<OwnedFd, Failure> {
        self.serving()?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        open_tree(CWD, &self.place, flags)
            .map_err(|errno| view_failure("lend the mount of views", errno))
    }

    /// Waits until writes through memory mappings have reached the transaction.
    /// Programs of the mount's user can hold this up.
    pub(crate) fn write_back(&self, id: TransactionId) -> Result<Arrived, Failure> {
        let session = sync::lock(&self.mounted).clone();
        if !sync::lock(&self.whole).contains(&id) {
            return Ok(Arrived::PerhapsNotAll);
        }
        if !self
            .filesystem
            .is_known(atomdir_engine::TransactionId(id.0))
        {
            // The kernel caches nothing of this view, so no write is under way.
            return Ok(Arrived::All);
        }
        let Some(session) = session else {
            return Ok(Arrived::PerhapsNotAll);
        };
        match session.run_barrier() {
            // Another mount may have replaced this one meanwhile.
            Ok(()) if sync::lock(&self.whole).contains(&id) => Ok(Arrived::All),
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => {
                // The connection may have broken because this service gave up.
                self.refuse_if_over()?;
                Ok(Arrived::PerhapsNotAll)
            }
            Err(Errno::AGAIN) => Ok(Arrived::NotAllYet),
            Err(errno) => Err(view_failure(
                &format!("gather what was written in transaction {id}"),
                errno,
            )),
        }
    }

    /// Invalidates the kernel's cached data after changes that did not come through the kernel.
    pub(crate) fn forget(&self, id: TransactionId, outdated: &[Outdated]) {
        self.filesystem.forget(id, outdated);
    }

    /// Makes the kernel forget everything about a view that has a new snapshot.
    pub(crate) fn renew(&self, id: TransactionId, known: &[NodeId]) {
        self.filesystem.renew(id, known);
    }

    /// Whether requests of the present mount come over io_uring.
    pub(crate) fn comes_over_io_uring(&self) -> bool {
        sync::lock(&self.mounted)
            .as_ref()
            .is_some_and(|session| session.has_rings())
    }

    /// How many requests the present mount has served.
    pub(crate) fn requests(&self) -> u64 {
        let mounted = sync::lock(&self.mounted);
        let counts = mounted.iter().flat_map(|session| session.requests());
        counts.map(|(_, count)| count).sum()
    }

    pub(crate) fn hide(&self, id: TransactionId) {
        self.filesystem.remove(id);
        sync::lock(&self.whole).remove(&id);
    }

    /// Ends the threads' wait for programs in the mount. Nothing mounts here again.
    pub(crate) fn give_up_barriers(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(session) = &*sync::lock(&self.mounted) {
            session.give_up_barriers();
        }
    }

    /// Meanwhile new transactions of this user wait, but nobody else's.
    pub(crate) fn unmount_if_idle(&self) {
        let mut mounted = sync::lock(&self.mounted);
        if !sync::lock(&self.whole).is_empty() {
            return;
        }
        if let Some(mounted) = mounted.take() {
            end(&mounted);
            if let Err(error) = mountpoint::clear(&self.place) {
                tracing::error!("{error}");
            }
            mountpoint::remove(&self.place);
        }
    }

    fn refuse_if_over(&self) -> Result<(), Failure> {
        match self.is_over.load(Ordering::Acquire) {
            true => Err(Failure::new(
                FailureKind::Ending,
                "the service is ending, and its views have gone",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn unmount(&self) {
        let mounted = sync::lock(&self.mounted).take();
        if let Some(mounted) = mounted {
            end(&mounted);
            // A mount whose FUSE connection someone has aborted counts as ended, but
            // is still there.
            if let Err(error) = mountpoint::clear(&self.place) {
                tracing::error!("{error}");
            }
        }
        if self.claim.is_held() {
            mountpoint::remove(&self.place);
        }
    }
}

/// Returns the restrictions of the base's own mount. A view has the same ones.
pub(crate) fn forbidden_outside(store: &Path) -> MountFlags {
    use rustix::fs::StatVfsMountFlags as Outside;
    let outside = rustix::fs::statvfs(store).map_or(Outside::empty(), |found| found.f_flag);
    let mut flags = MountFlags::empty();
    for (bit, flag) in [
        (Outside::NOSUID, MountFlags::NOSUID),
        (Outside::NODEV, MountFlags::NODEV),
        (Outside::NOEXEC, MountFlags::NOEXEC),
    ] {
        flags.set(flag, outside.contains(bit));
    }
    flags
}

/// How the file systems of a service are served.
pub(crate) fn options() -> MountOptions {
    MountOptions {
        source: String::new(),
        others_allowed: false,
        flags: MountFlags::empty(),
        workers: std::thread::available_parallelism().map_or(2, |count| count.get().clamp(2, 8)),
        rings: std::env::var_os(FUSE_VARIABLE).is_none_or(|way| way != "classic"),
    }
}

fn end(session: &Session) {
    if let Err(error) = session.unmount() {
        tracing::error!("{error}");
    }
    session.join();
}

fn mount_failure(error: &MountError) -> Failure {
    Failure::new(FailureKind::NoViews, error.to_string())
}

fn view_failure(action: &str, errno: Errno) -> Failure {
    let message = format!("cannot {action}: {errno}", errno = reason(errno));
    Failure::new(FailureKind::Io, message)
}

#[cfg(test)]
mod tests;
