//! One mount in which the transactions of a user appear, each as a directory. It is
//! made for the first of them: all else works also where nothing can be mounted.
//!
//! Programs in a mount can hold up whatever waits for it, since they can keep locks
//! that the kernel has for its directories, or for all of it. So the lock `mounted` is
//! held by nobody who waits for the mount.

use crate::mountpoint;
use crate::permissions::no_such_transaction;
use crate::transactions::Transaction;
use atomdir_disk::reason;
use atomdir_engine::Outdated;
use atomdir_fuse::{MountError, MountFlags, MountOptions, Session};
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// `classic`: requests come by /dev/fuse even where io_uring could bring them.
const FUSE_VARIABLE: &str = "ATOMDIR_FUSE";

pub(crate) struct ViewMount {
    user: u32,
    place: PathBuf,
    store: PathBuf,
    /// What the store's root is called, and so each view's.
    name: OsString,
    flags: MountFlags,
    filesystem: Arc<atomdir_fuse::Views>,
    mounted: Mutex<Option<Arc<Session>>>,
    is_over: AtomicBool,
    /// Transactions that the present mount has shown from their begin on. Of
    /// others, an older mount took along what was stored to mapped memory.
    whole: Mutex<HashSet<TransactionId>>,
}

/// Whether all that a transaction's programs wrote is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    All,
    /// The mount was ended from outside since the transaction's begin.
    PerhapsNotAll,
    /// Something needs a file on which another process holds a lease.
    NotAllYet,
}

impl ViewMount {
    pub(crate) fn new(
        user: u32,
        place: PathBuf,
        store: &Path,
        name: OsString,
        flags: MountFlags,
    ) -> ViewMount {
        let flags = flags | forbidden_outside(store);
        if let Err(error) = mountpoint::clear(&place) {
            // Mounting will say so to whoever needs it.
            tracing::warn!("{error}");
        }
        ViewMount {
            user,
            place,
            store: store.to_owned(),
            filesystem: Arc::new(atomdir_fuse::Views::new(name.as_bytes())),
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

    /// A view's root directory.
    pub(crate) fn path(&self, id: TransactionId) -> PathBuf {
        self.place.join(id.to_string()).join(&self.name)
    }

    /// Mounts, unless that is done; again, when someone has unmounted it.
    pub(crate) fn mount(&self) -> Result<(), Failure> {
        self.serving().map(|_| ())
    }

    fn serving(&self) -> Result<Arc<Session>, Failure> {
        self.serving_while(|_| ())
    }

    /// `act` is done while no other mount can take this one's place; it must not wait
    /// for anything.
    fn serving_while(&self, act: impl FnOnce(&Session)) -> Result<Arc<Session>, Failure> {
        let mut mounted = self.lock();
        if let Some(session) = mounted.as_ref().filter(|session| !session.is_ended()) {
            act(session);
            return Ok(session.clone());
        }
        self.refuse_if_over()?;
        if let Some(ended) = mounted.take() {
            end(&ended);
            self.lock_whole().clear();
        }
        let session = Arc::new(self.make()?);
        act(&session);
        *mounted = Some(session.clone());
        Ok(session)
    }

    fn make(&self) -> Result<Session, Failure> {
        let _stays = mountpoint::prepare(&self.place, self.user)
            .map_err(|error| Failure::new(FailureKind::NoViews, error.to_string()))?;
        let options = MountOptions {
            source: self.store.to_string_lossy().into_owned(),
            others_allowed: self.user == 0,
            // Programs behave as outside; fusermount3 forbids some by itself.
            flags: self.flags,
            workers: std::thread::available_parallelism()
                .map_or(2, |count| count.get().clamp(2, 8)),
            rings: std::env::var_os(FUSE_VARIABLE).is_none_or(|way| way != "classic"),
        };
        Session::mount(self.filesystem.clone(), &self.place, &options)
            .map_err(|error| mount_failure(&error))
    }

    /// The transaction's view will appear. Until then nothing can be written in it, so
    /// a commit finds everything in this mount.
    pub(crate) fn expect(&self, id: TransactionId) -> Result<(), Failure> {
        let whole = || _ = self.lock_whole().insert(id);
        self.serving_while(|_| whole()).map(drop)
    }

    /// Makes the transaction's view appear.
    pub(crate) fn show(&self, transaction: &Arc<Transaction>) -> Result<(), Failure> {
        self.filesystem.add(transaction.clone());
        let id = TransactionId(transaction.id().0);
        self.expect(id).inspect_err(|_| self.hide(id))?;
        // Whoever ended it meanwhile may have hidden its view before it was added.
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

    /// What programs wrote to mapped files reaches the transaction only now. Programs
    /// of the user whose mount this is can make it wait.
    pub(crate) fn write_back(&self, id: TransactionId) -> Result<Arrived, Failure> {
        let session = self.lock().clone();
        let Some(session) = session.filter(|_| self.lock_whole().contains(&id)) else {
            return Ok(Arrived::PerhapsNotAll);
        };
        match session.settle() {
            // Another mount may have taken its place meanwhile.
            Ok(()) if self.lock_whole().contains(&id) => Ok(Arrived::All),
            Ok(()) | Err(Errno::NOTCONN | Errno::CONNABORTED) => {
                // Then it was this service that gave up.
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

    /// What was changed behind the kernel's back.
    pub(crate) fn forget(&self, id: TransactionId, outdated: &[Outdated]) {
        let id = atomdir_engine::TransactionId(id.0);
        self.filesystem.forget(id, outdated);
    }

    /// Whether the present mount's requests do.
    pub(crate) fn comes_over_io_uring(&self) -> bool {
        self.lock()
            .as_ref()
            .is_some_and(|session| session.has_rings())
    }

    /// How many requests the present mount has served.
    pub(crate) fn requests(&self) -> u64 {
        let mounted = self.lock();
        let counts = mounted.iter().flat_map(|session| session.requests());
        counts.map(|(_, count)| count).sum()
    }

    pub(crate) fn hide(&self, id: TransactionId) {
        self.filesystem.remove(atomdir_engine::TransactionId(id.0));
        self.lock_whole().remove(&id);
    }

    /// Lets those go who wait for programs in the mount; there will be no other.
    pub(crate) fn give_up_barriers(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(session) = &*self.lock() {
            session.give_up_barriers();
        }
    }

    /// Keeps new transactions of the user waiting meanwhile, and nobody else.
    pub(crate) fn unmount_if_idle(&self) {
        let mut mounted = self.lock();
        if !self.lock_whole().is_empty() {
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
        let mounted = self.lock().take();
        if let Some(mounted) = mounted {
            end(&mounted);
            // One whose connection someone has aborted had ended, and is still there.
            if let Err(error) = mountpoint::clear(&self.place) {
                tracing::error!("{error}");
            }
        }
        mountpoint::remove(&self.place);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Session>>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_whole(&self) -> MutexGuard<'_, HashSet<TransactionId>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the base's own mount forbids is forbidden in a view.
fn forbidden_outside(store: &Path) -> MountFlags {
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
