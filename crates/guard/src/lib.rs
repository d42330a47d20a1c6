//! The guard: the base as a file system over the store's own path.
//!
//! Programs outside transactions go through it. It passes each call to the base, as a section of
//! the engine's gate (`atomdir_engine::Guard`): so a call comes before or after a whole commit. The
//! kernel caches names, attributes and contents without limit, and forgets what a commit touches.
//!
//! Modules
//! - `filesystem`: passes each call to the base
//! - `serving`: what such calls have in common
//! - `flushing`: changes that are durable when their calls return
//! - `forgetting`: makes the kernel forget, also what it keeps locked for calls that wait
//! - `runs`: which run of a program makes a call
//! - `waits`: calls that wait for transactions
//! - `sessions`: files that change whole, when a program closes them
//! - `deadlock`: no process waits for itself
//! - `processes`: what `/proc` says of the programs that make calls
//! - `nodes`: the objects that the kernel knows, each by a descriptor
//! - `calls`: system calls on such objects
//! - `acting`: new objects belong to the caller
//!
//! Invariants
//! 1. A node is one object of the base, by a descriptor of it (`nodes`). It stays that object under
//!    whatever name, and as long as the kernel knows it, even if it has no name any more.
//! 2. The base is reached by descriptors only, from one of its root that is older than the mount. So
//!    no call leads back into the guard.
//! 3. The control directory is not served: its name leads to an empty directory that nobody can
//!    change, for the service to mount the real one on.
//! 4. The kernel has checked the caller's permissions (`default_permissions`). New objects belong to
//!    the caller, and space is taken at the caller's expense (`acting`).
//! 5. What a commit has replaced or removed can be read by programs that have it open. It is not
//!    written any more: it may be in limbo, for older snapshots and the history.

mod acting;
mod calls;
mod deadlock;
mod filesystem;
mod flushing;
mod forgetting;
mod nodes;
mod processes;
mod runs;
mod serving;
mod sessions;
mod waits;

use std::sync::Arc;

use atomdir_disk::{FileUsers, Identity, LinuxDisk, Name, reason, sync};
use atomdir_engine::{Guard, Guarding, MayWait, Touched};
use atomdir_fuse::{Notifier, ROOT_NODE};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, OnceLock};

use nodes::{Node, Nodes};
pub use sessions::{FileSessions, Landing};
pub use waits::Holds;
use waits::Waits;

/// The base, as programs outside transactions see it.
pub struct Guarded {
    guard: Guard<LinuxDisk>,
    known: Arc<Known>,
    disk: LinuxDisk,
    /// The control directory's name, if it is in the root.
    hidden: Option<Name>,
    flushing: flushing::Flushing,
    holds: OnceLock<Holds>,
    runs: runs::Runs,
    sessions: Arc<sessions::Sessions>,
}

/// What the kernel knows of the base, for the engine.
pub struct Known {
    /// A descriptor of the base's root directory.
    root: OwnedFd,
    nodes: Nodes,
    notifier: Mutex<Option<Notifier>>,
    /// What the commit that is about to change the base takes away.
    dying: Mutex<Vec<Arc<Node>>>,
    waits: Arc<Waits>,
    may_wait: OnceLock<MayWait>,
}

impl Known {
    /// `root`: the base's root directory.
    pub fn new(root: &OwnedFd) -> Result<Known, Errno> {
        Ok(Known {
            root: calls::path_descriptor(root)?,
            nodes: Nodes::new(calls::path_descriptor(root)?)?,
            notifier: Mutex::default(),
            dying: Mutex::default(),
            waits: Arc::default(),
            may_wait: OnceLock::new(),
        })
    }

    /// Whether calls may wait for transactions.
    fn may_wait(&self) -> bool {
        self.may_wait.get().is_some_and(MayWait::now)
    }

    /// The base's own file system; others may be mounted in it.
    fn device(&self) -> u64 {
        self.nodes.device
    }

    /// Makes the kernel forget the contents of a file. A call that writes to it is under way, and its
    /// pages are locked until it is answered, so another thread does that.
    fn forget_later(self: &Arc<Self>, node: u64) {
        let known = Arc::clone(self);
        let thread = std::thread::Builder::new().name("guard-forget".to_owned());
        let forget = move || known.notify(|notifier| notifier.invalidate_inode(node, 0, 0));
        if let Err(error) = thread.spawn(forget) {
            tracing::warn!("the kernel goes on to show old contents of a file: {error}");
        }
    }

    /// Requests that wait may be answered now.
    fn retry_requests(&self) {
        if let Some(notifier) = &*sync::lock(&self.notifier) {
            notifier.retry();
        }
    }

    fn notify(&self, tell: impl FnOnce(&Notifier) -> Result<(), Errno>) {
        let notifier = sync::lock(&self.notifier).clone();
        if let Some(Err(errno)) = notifier.as_ref().map(tell) {
            tracing::warn!(errno = %reason(errno), "the kernel did not forget what a commit changes");
        }
    }
}

impl Guarding for Known {
    fn users(&self, path: &[u8], file: Identity) -> FileUsers {
        // A file that the kernel does not know is open nowhere.
        if self.nodes.of_identity(file).is_none() {
            return FileUsers::default();
        }
        // A call that waits for the commit may hold the lock of the file's directory.
        let may_wait = self.waits.count() == 0;
        let notifier = sync::lock(&self.notifier).clone();
        let users = notifier.map_or(Err(Errno::NOTCONN), |one| {
            one.users(path, file.inode, may_wait)
        });
        users.unwrap_or_else(|errno| {
            tracing::debug!(errno = %reason(errno), "who uses a file of the guard is not known");
            FileUsers::default()
        })
    }

    fn forget(&self, touched: &Touched) {
        let dying = touched.dying.iter();
        let dying = dying.filter_map(|object| self.nodes.of_identity(*object));
        let dying = dying.filter_map(|node| self.nodes.get(node).ok());
        *sync::lock(&self.dying) = dying.collect();
        let entries = touched.entries.iter().filter_map(|(directory, name)| {
            let node = self.nodes.of_identity(*directory)?;
            Some((*directory, node, name))
        });
        let entries: Vec<(Identity, u64, &Name)> = entries.collect();
        // Before the objects: this waits for answers that are on their way to these directories, and
        // that may make objects known.
        self.forget_names(&entries, touched);
        for object in &touched.objects {
            if let Some(node) = self.nodes.of_identity(*object) {
                self.forget_object(node, *object);
            }
        }
    }

    fn begin(&self, may_wait: MayWait) {
        let _ = self.may_wait.set(may_wait);
    }

    fn retry(&self) {
        self.retry_requests();
    }

    fn changed(&self, applied: bool) {
        let dying = std::mem::take(&mut *sync::lock(&self.dying));
        if applied {
            dying.iter().for_each(|node| node.note_gone());
        }
    }
}

impl Guarded {
    /// `guard` must report to `known`.
    pub fn new(guard: Guard<LinuxDisk>, known: Arc<Known>, hidden: Option<Name>) -> Guarded {
        Guarded {
            guard,
            known,
            disk: LinuxDisk::new(),
            hidden,
            flushing: flushing::Flushing::default(),
            holds: OnceLock::new(),
            runs: runs::Runs::default(),
            sessions: Arc::default(),
        }
    }

    /// Whether a name is the control directory's.
    fn is_hidden(&self, parent: u64, name: &[u8]) -> bool {
        let is_it = |hidden: &Name| hidden.as_bytes() == name;
        parent == ROOT_NODE && self.hidden.as_ref().is_some_and(is_it)
    }
}
