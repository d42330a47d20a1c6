use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use atomdir_disk::{Errno, FileUsers};

use crate::listings::Listings;
use crate::shared::Shared;
use crate::wire::Notification;

/// Invalidates data that the kernel has cached, and asks it who uses a file.
///
/// The kernel takes the directory's lock to invalidate an entry, and locks of pages to
/// invalidate contents. So never call this from a [`Filesystem`](crate::Filesystem)
/// method, nor with a lock held that such a method needs.
/// It is no error if the kernel knows no such node or name, or if the session has ended.
#[derive(Clone)]
pub struct Notifier {
    /// Weak, because the connection lives as long as any descriptor of it.
    device: Weak<OwnedFd>,
    shared: Weak<Shared>,
    listings: Arc<Listings>,
}

impl Notifier {
    pub(crate) fn new(
        device: &Arc<OwnedFd>,
        shared: &Arc<Shared>,
        listings: Arc<Listings>,
    ) -> Notifier {
        Notifier {
            device: Arc::downgrade(device),
            shared: Arc::downgrade(shared),
            listings,
        }
    }

    /// Makes the kernel forget a name in the root that has gone for good, with all below
    /// it. A listing of the root may still show the name. This process can be killed while
    /// it waits here, however many others look up names there. If programs in the mount
    /// hold this up, it returns before the kernel has forgotten the name.
    pub fn forget_in_root(&self, name: &[u8]) {
        if let Some(shared) = self.shared.upgrade()
            && !shared.is_ending()
            && !shared.is_ended()
        {
            shared.forgetting.forget(name);
        }
    }

    /// Tries the requests again that the file system answered with `ERESTART` or `EINPROGRESS`. This
    /// may be called from anywhere and with any lock held.
    pub fn retry(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.waiting.retry();
        }
    }

    /// How programs use a regular file of the mount. Only the kernel knows who has it open for writing
    /// or has locked it. `path`: below the mount point; `inode`: the number that the file system
    /// gives it. Fails with `ESTALE` if another object is there, and with `ENOTCONN` once the session
    /// ends. Without `may_wait` it fails with `EAGAIN` if a directory's lock is needed to find the file:
    /// a call that is not answered yet may hold that lock.
    pub fn users(&self, path: &[u8], inode: u64, may_wait: bool) -> Result<FileUsers, Errno> {
        let shared = self.shared.upgrade().filter(|shared| !shared.is_ended());
        let shared = shared.ok_or(Errno::NOTCONN)?;
        let barrier = &shared.barrier;
        barrier.users(shared.mountpoint(), path, (inode, may_wait))
    }

    /// Invalidates a name: it may lead to another object now, or to none.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.listings.changed(parent);
        self.send(&Notification::InvalidateEntry { parent, name })
    }

    /// Invalidates a name that was removed. Programs that watch the directory or the object
    /// get an event.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        self.listings.changed(parent);
        self.send(&Notification::Delete {
            parent,
            child,
            name,
        })
    }

    /// Invalidates attributes, and `length` bytes of contents from `offset` on (0: to the
    /// end; a negative `offset`: attributes only). The kernel first writes mapped pages
    /// that were changed.
    pub fn invalidate_inode(&self, node: u64, offset: i64, length: i64) -> Result<(), Errno> {
        self.listings.changed(node);
        self.send(&Notification::InvalidateInode {
            node,
            offset,
            length,
        })
    }

    fn send(&self, notification: &Notification<'_>) -> Result<(), Errno> {
        let Some(device) = self.device.upgrade() else {
            return Ok(());
        };
        unless_unknown(rustix::io::write(&*device, &notification.encode()).map(|_| ()))
    }
}

/// Ignores the error by which the kernel reports that it does not have the invalidated object
/// cached.
pub(crate) fn unless_unknown(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => {
            Ok(())
        }
        result => result,
    }
}
