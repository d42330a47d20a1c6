//! If the guard is mounted with `--sync`, what a call has changed is durable before the call returns.
//!
//! A call flushes when it is outside the gate again, so no commit waits for a flush.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use atomdir_disk::Kind;
use atomdir_fuse::{Entry, Result};
use rustix::fs::OFlags;

use crate::nodes::Node;
use crate::{Guarded, calls};

#[derive(Default)]
pub struct Flushing {
    is_wanted: AtomicBool,
    count: AtomicU64,
}

impl Guarded {
    /// Says whether calls are flushed from now on.
    pub fn flush_changes(&self, wanted: bool) {
        self.flushing.is_wanted.store(wanted, Ordering::Release);
    }

    pub fn flushes_changes(&self) -> bool {
        self.flushing.is_wanted.load(Ordering::Acquire)
    }

    /// How often something was flushed because a call had changed it.
    pub fn flushes(&self) -> u64 {
        self.flushing.count.load(Ordering::Relaxed)
    }

    /// Flushes what a call has changed, if that is wanted: objects, and directories in which names
    /// have changed. Each is flushed once. An object that has lost its last name is gone with its
    /// directory's entry.
    pub(crate) fn flush_changed(&self, changed: &[&Node]) -> Result<()> {
        if !self.flushes_changes() {
            return Ok(());
        }
        for (number, node) in changed.iter().enumerate() {
            let is_same = |other: &&Node| std::ptr::eq(*other, *node);
            if !changed[..number].iter().any(is_same) {
                self.flush_object(node)?;
                self.flushing.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Flushes an object that has got a name in a directory.
    pub(crate) fn flush_new(&self, made: &Entry, directory: &Node) -> Result<()> {
        match self.flushes_changes() {
            true => self.flush_changed(&[&*self.known.nodes.get(made.node)?, directory]),
            false => Ok(()),
        }
    }

    fn flush_object(&self, node: &Node) -> Result<()> {
        match node.kind {
            Kind::File | Kind::Directory => calls::flush(&node.object, node.kind),
            // Only its file system as a whole can be flushed. In others, which may be mounted
            // inside the store, such an object cannot be found without opening it.
            _ => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                rustix::fs::syncfs(&calls::open(&self.known.root, flags)?)
            }
        }
    }
}
