use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use atomdir_disk::Errno;

use crate::listings::Listings;
use crate::shared::Shared;
use crate::wire::Notification;

/// Tells the kernel that something it may remember has changed.
///
/// The kernel takes the directory's lock for an entry, and those of pages for
/// contents: never call from within a [`Filesystem`](crate::Filesystem) method, nor
/// with a lock held that one needs.
/// What the kernel does not know is no error, nor is a session that has ended.
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

    /// The name in the root has gone for good, with all below it; a listing of the
    /// root may still show it. However many others look up names there, a process
    /// that is killed meanwhile can end. If programs in the mount hold it up, this
    /// returns before the kernel has forgotten it.
    pub fn forget_in_root(&self, name: &[u8]) {
        if let Some(shared) = self.shared.upgrade()
            && !shared.is_ending()
            && !shared.is_ended()
        {
            shared.forgetting.forget(name);
        }
    }

    /// Requests that the file system answered with `ERESTART` are tried again. This
    /// may be called from anywhere and with any lock held.
    pub fn retry(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.waiting.retry();
        }
    }

    /// The name may lead elsewhere now, or nowhere.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.listings.changed(parent);
        self.send(&Notification::InvalidateEntry { parent, name })
    }

    /// The name is gone; those who watch the directory or the object are told.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        self.listings.changed(parent);
        self.send(&Notification::Delete {
            parent,
            child,
            name,
        })
    }

    /// Attributes have changed, and contents from `offset` on for `length`
    /// bytes (0: to the end; a negative `offset`: attributes only). Mapped
    /// pages that were changed are written first.
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

/// What the kernel does not know, or no longer, need not be told.
pub(crate) fn unless_unknown(told: Result<(), Errno>) -> Result<(), Errno> {
    match told {
        Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => {
            Ok(())
        }
        told => told,
    }
}
