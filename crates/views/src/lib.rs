//! Open transactions as one file system.
//!
//! The mount's root holds one directory for each transaction, named by its id and
//! closed to all but its owner. In it is one directory with the name of the store's
//! base, which is the view's root. Nothing can be changed on the upper two levels.
//!
//! Invariants
//! 1. The nodes of a transaction that has ended fail with `ESTALE` for ever. So do a
//!    transaction's nodes from before its refresh, which gives it another slot. A slot is lent
//!    again only when the kernel has forgotten all of its nodes (`slots`).
//! 2. A request that does not parse is an error, never a panic.
//! 3. No worker waits for a commit. The commit takes the view out of its slot
//!    (`view_slot` in the engine), and requests to that view wait in
//!    `waiting` in `atomdir-fuse` until it is back or has ended.

mod filesystem;
mod slots;

use atomdir_disk::sync;
use std::sync::{Arc, Mutex};

use atomdir_disk::{Disk, Kind, LinuxDisk, Owner, Timestamp, reason};
use atomdir_engine::{INODES_END, NodeId, Outdated, Transaction, TransactionId};
use slots::{Slots, Within};

use atomdir_fuse::{NodeAttributes, Notifier, ROOT_NODE};

/// The inode number of the mount's root. Those of the level below follow it, and all are below
/// 2^53, as views' are.
const ROOT_INODE: u64 = INODES_END;
const IDS_MAX: u64 = (1 << 51) - 2;

pub struct Views<D: Disk = LinuxDisk> {
    /// The name of each view's root.
    name: Vec<u8>,
    slots: Slots<D>,
    notifier: Arc<Mutex<Option<Notifier>>>,
}

impl<D: Disk> Views<D> {
    /// `name`: the name of the store's base directory.
    pub fn new(name: &[u8]) -> Views<D> {
        Views {
            name: name.to_vec(),
            slots: Slots::new(),
            notifier: Arc::default(),
        }
    }

    /// Makes a transaction's view appear.
    pub fn add(&self, transaction: Arc<Transaction<D>>) {
        let id = transaction.id();
        let notifier = Arc::clone(&self.notifier);
        transaction.on_commit_end(move || {
            let notifier = sync::lock(&notifier);
            notifier.iter().for_each(Notifier::retry);
        });
        if !self.slots.add(transaction) {
            tracing::error!(%id, "no room for another view; end programs in views that are over");
        }
        // The next listing of the root must show the view.
        self.notify(|notifier| notifier.invalidate_inode(ROOT_NODE, 0, 0));
    }

    /// Makes a view vanish. Programs still in it get errors.
    pub fn remove(&self, id: TransactionId) {
        let is_known = self.slots.remove(id);
        // The next listing of the root must not show the view.
        self.notify(|notifier| notifier.invalidate_inode(ROOT_NODE, 0, 0));
        if is_known {
            self.forget_name(id);
        }
    }

    /// Makes the kernel forget a view that has changed as a whole. The view
    /// keeps its name. Programs that are in it or have files of it open get errors. `known`: the
    /// nodes whose attributes and contents the kernel may have cached.
    pub fn renew(&self, id: TransactionId, known: &[NodeId]) {
        let Some(old) = self.slots.by_id(id) else {
            return;
        };
        if self.slots.renew(id) {
            self.forget_name(id);
        }
        // Without this the kernel would keep its cache of nodes that programs have open.
        for node in known {
            let number = old.number(Within::Node(*node));
            self.notify(|notifier| notifier.invalidate_inode(number, 0, 0));
        }
    }

    /// Whether the kernel may have cached anything of a view. If not, no program is in it, and
    /// every write has arrived: the kernel forgets a file only after that.
    pub fn is_known(&self, id: TransactionId) -> bool {
        self.slots.is_known(id)
    }

    fn forget_name(&self, id: TransactionId) {
        let name = id.to_string();
        self.notify(|notifier| {
            notifier.forget_in_root(name.as_bytes());
            Ok(())
        });
    }

    /// Invalidates the kernel's cached data after changes in a view that did not come through the
    /// kernel.
    pub fn forget(&self, id: TransactionId, outdated: &[Outdated]) {
        let Some(borrowed) = self.slots.by_id(id) else {
            return;
        };
        for one in outdated {
            self.notify(|notifier| match one {
                Outdated::Node(node) => {
                    notifier.invalidate_inode(borrowed.number(Within::Node(*node)), 0, 0)
                }
                Outdated::Entry(node, name) => {
                    let directory = borrowed.number(Within::Node(*node));
                    notifier.invalidate_entry(directory, name.as_bytes())
                }
            });
        }
    }

    fn notify(&self, tell: impl FnOnce(&Notifier) -> atomdir_fuse::Result<()>) {
        let notifier = sync::lock(&self.notifier).clone();
        if let Some(Err(errno)) = notifier.as_ref().map(tell) {
            tracing::warn!(errno = %reason(errno), "the kernel refused to hear of a change of views");
        }
    }
}

/// The mount's root. Everyone may pass through it to their own views; only the service
/// may list it.
fn root_attributes() -> NodeAttributes {
    own_attributes(
        ROOT_INODE,
        0o711,
        rustix::process::geteuid().as_raw(),
        Timestamp::default(),
    )
}

/// The directory that holds a transaction's view.
fn wrapper_attributes<D: Disk>(transaction: &Transaction<D>) -> NodeAttributes {
    let inode = wrapper_inode(transaction.id());
    own_attributes(inode, 0o700, transaction.owner(), transaction.began())
}

fn wrapper_inode(id: TransactionId) -> u64 {
    assert!(id.0 <= IDS_MAX, "no store lives for so many transactions");
    ROOT_INODE + 1 + id.0
}

fn own_attributes(inode: u64, mode: u32, user: u32, time: Timestamp) -> NodeAttributes {
    NodeAttributes {
        inode,
        kind: Kind::Directory,
        mode,
        links: 2,
        owner: Owner {
            user,
            group: rustix::process::getegid().as_raw(),
        },
        device_number: 0,
        length: 0,
        blocks: 0,
        accessed: time,
        modified: time,
        changed: time,
    }
}
