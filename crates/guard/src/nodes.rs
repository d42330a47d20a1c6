//! The objects that the kernel knows, each by a descriptor.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use atomdir_disk::{Disk, Identity, Kind, LinuxDisk, Stat, sync};
use atomdir_engine::Located;
use atomdir_fuse::{ROOT_NODE, Result};
use rustix::io::Errno;

use crate::{Known, calls};

/// The node of the control directory's stand-in.
pub const STAND_IN: u64 = 2;
const FIRST: u64 = 3;

pub struct Node {
    /// Opened for nothing but to name the object (O_PATH).
    pub object: OwnedFd,
    pub identity: Identity,
    device: u64,
    pub kind: Kind,
    /// A commit has taken its last name.
    gone: AtomicBool,
    lookups: AtomicU64,
}

/// An object, for the engine.
pub struct Place<'a> {
    identity: Identity,
    path: Box<dyn Fn() -> Option<Vec<u8>> + 'a>,
}

impl Place<'_> {
    /// From the base's root, with a slash before each name.
    pub fn path(&self) -> Option<Vec<u8>> {
        (self.path)()
    }

    pub fn as_ref(&self) -> Located<'_> {
        Located {
            identity: self.identity,
            path: &*self.path,
        }
    }
}

impl Node {
    pub fn located<'a>(&'a self, known: &'a Known) -> Place<'a> {
        let path = || {
            let (root, path) = (
                calls::present_path(&known.root),
                calls::present_path(&self.object),
            );
            let (root, path) = (root.ok()?, path.ok()?);
            let below = path.strip_prefix(&*root)?;
            // Another file system may be mounted there.
            let is_below = root == b"/" || below.is_empty() || below.starts_with(b"/");
            (is_below && self.device == known.nodes.device).then(|| below.to_vec())
        };
        Place {
            identity: self.identity,
            path: Box::new(path),
        }
    }

    pub fn note_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    /// Fails if a commit has taken the object away: it may be in limbo.
    pub fn require_there(&self) -> Result<()> {
        match self.gone.load(Ordering::Acquire) {
            true => Err(Errno::STALE),
            false => Ok(()),
        }
    }
}

pub struct Nodes {
    table: RwLock<Table>,
    disk: LinuxDisk,
    pub device: u64,
}

struct Table {
    by_number: HashMap<u64, Arc<Node>>,
    by_object: HashMap<(u64, Identity), u64>,
    next: u64,
}

impl Nodes {
    pub fn new(root: OwnedFd) -> Result<Nodes> {
        let disk = LinuxDisk::new();
        let stat = disk.stat(&root)?;
        let nodes = Nodes {
            table: RwLock::new(Table {
                by_number: HashMap::new(),
                by_object: HashMap::new(),
                next: FIRST,
            }),
            disk,
            device: stat.device,
        };
        let mut table = sync::write(&nodes.table);
        table.add(ROOT_NODE, root, &stat);
        drop(table);
        Ok(nodes)
    }

    pub fn get(&self, number: u64) -> Result<Arc<Node>> {
        let table = sync::read(&self.table);
        table.by_number.get(&number).cloned().ok_or(Errno::STALE)
    }

    /// The object's node. Raises its lookup count.
    pub fn give(&self, object: OwnedFd) -> Result<(u64, Stat)> {
        let stat = self.disk.stat(&object)?;
        let key = (stat.device, stat.identity);
        {
            let table = sync::read(&self.table);
            if let Some(number) = table.by_object.get(&key) {
                table.raise(*number);
                return Ok((*number, stat));
            }
        }
        let mut table = sync::write(&self.table);
        let number = match table.by_object.get(&key) {
            Some(number) => *number,
            None => {
                let number = table.next;
                table.next += 1;
                table.add(number, object, &stat);
                number
            }
        };
        table.raise(number);
        Ok((number, stat))
    }

    pub fn forget(&self, number: u64, count: u64) {
        if number < FIRST {
            return;
        }
        let mut table = sync::write(&self.table);
        let Some(node) = table.by_number.get(&number) else {
            return;
        };
        let before = node.lookups.load(Ordering::Acquire);
        let left = before.saturating_sub(count);
        node.lookups.store(left, Ordering::Release);
        if left == 0
            && let Some(node) = table.by_number.remove(&number)
        {
            table.by_object.remove(&(node.device, node.identity));
        }
    }

    /// The node of an object of the base, if the kernel knows it.
    pub fn of_identity(&self, identity: Identity) -> Option<u64> {
        let table = sync::read(&self.table);
        table.by_object.get(&(self.device, identity)).copied()
    }
}

impl Table {
    fn add(&mut self, number: u64, object: OwnedFd, stat: &Stat) {
        let node = Node {
            object,
            identity: stat.identity,
            device: stat.device,
            kind: stat.kind,
            gone: AtomicBool::new(false),
            lookups: AtomicU64::new(0),
        };
        self.by_number.insert(number, Arc::new(node));
        self.by_object.insert((stat.device, stat.identity), number);
    }

    fn raise(&self, number: u64) {
        if let Some(node) = self.by_number.get(&number) {
            node.lookups.fetch_add(1, Ordering::AcqRel);
            // An undo may have brought it back.
            node.gone.store(false, Ordering::Release);
        }
    }
}
