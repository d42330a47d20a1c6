//! Attributes told again before anyone asks.
//!
//! After a READ the kernel holds a file's access time for unknown, after a listing the
//! directory's; and so the next fstat(2) asks for all attributes: a second pass over a
//! tree would send a request for each file. Attributes are only ever told in answers.
//! So, some milliseconds after files were read, a child process ([`crate::helper`])
//! lists their directories, whereupon READDIRPLUS tells the attributes of many at once,
//! and asks for those of the directories themselves. Directories that a program lists
//! while it reads files count as read, too.
//!
//! The child lists from an [`OFFSET`] that no entry has. There the answer is what was
//! read and nothing else: it costs by that, however large the directory is, and the
//! kernel's own copy of the listing stays as it is.
//!
//! # What may not happen
//!
//! An answer that was made before a change must not be taken by the kernel after it
//! has heard of the change. Against that the kernel has versions: each inode has that
//! of its last change, and an answer to an older question is dropped. But not every
//! operation makes a version: extended attributes, stores to mapped memory, names made
//! and removed in the directory only make attributes unknown. So whoever serves such
//! an operation while an answer may be on its way ([`Batch::tells`]) makes one before
//! it is answered: FUSE_NOTIFY_INVAL_INODE does, and waits for nothing. Operations on
//! names of the files do not meet the listing itself: the kernel holds the directory's
//! lock until it has taken the answer. Names elsewhere are why files with several are
//! left out. What the child is told on its way to the directory is not to be kept.
//!
//! Programs can hold up the child, by holding the locks of directories it comes to. So
//! nothing waits for it but the next batch, and the end of the session.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use atomdir_disk::Name;

use crate::filesystem::{Filesystem, Result};
use crate::helper::Helper;

/// Higher than that of any entry ([`crate::listings`]), and a valid one.
pub const OFFSET: u64 = 3 << 61;

/// Between two askings, so that much is asked at once. What was read last waits for
/// the one after the next: its READ, or its next one, may still be under way.
const PAUSE: Duration = Duration::from_millis(20);

/// In one answer, which has room for as many, whatever they are called.
const CHILDREN_MAX: usize = 256;

/// What is read beyond that within one pause is not told.
const NOTED_MAX: usize = 1 << 16;

pub struct Refresh {
    /// Whether the kernel doubts at all: not what is mounted read-only.
    is_needed: bool,
    state: Mutex<State>,
    changed: Condvar,
    /// The child process while there is a batch in the state, or 0.
    process: AtomicU32,
}

#[derive(Default)]
struct State {
    /// What the kernel doubts since the last asking.
    recent: HashSet<u64>,
    /// Since the one before that.
    due: HashSet<u64>,
    /// What is being asked for.
    batch: Option<Arc<Batch>>,
    is_over: bool,
}

/// A directory that is listed, and what is told of.
pub struct Batch {
    pub directory: u64,
    /// Relative to the mount's root.
    pub path: PathBuf,
    /// With their nodes.
    pub children: Vec<(Name, u64)>,
}

impl Batch {
    /// Whether an answer may be on its way that tells a node's attributes.
    pub fn tells(&self, node: u64) -> bool {
        node == self.directory || self.children.iter().any(|(_, child)| *child == node)
    }
}

impl State {
    fn note(&mut self, node: u64, changed: &Condvar) {
        if self.is_idle() {
            changed.notify_all();
        }
        if self.recent.len() < NOTED_MAX {
            self.recent.insert(node);
        }
    }

    fn is_idle(&self) -> bool {
        self.recent.is_empty() && self.due.is_empty() && self.batch.is_none()
    }
}

impl Refresh {
    pub fn new(is_needed: bool) -> Refresh {
        Refresh {
            is_needed,
            state: Mutex::default(),
            changed: Condvar::new(),
            process: AtomicU32::new(0),
        }
    }

    /// A file was read.
    pub fn read(&self, node: u64) {
        if self.is_needed {
            self.lock().note(node, &self.changed);
        }
    }

    /// A directory was listed. That alone is no sign that attributes will be wanted.
    pub fn listed(&self, node: u64) {
        if self.is_needed {
            let mut state = self.lock();
            if !state.is_idle() {
                state.note(node, &self.changed);
            }
        }
    }

    /// What is asked for now.
    pub fn batch(&self) -> Option<Arc<Batch>> {
        if self.process.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.lock().batch.clone()
    }

    /// What is asked for, if it is the child that asks.
    pub fn batch_for(&self, process: u32) -> Option<Arc<Batch>> {
        if process == 0 || process != self.process.load(Ordering::SeqCst) {
            return None;
        }
        self.lock().batch.clone()
    }

    /// Has the kernel ask again and again, until [`end`](Self::end).
    pub fn run<F: Filesystem>(&self, filesystem: &F, mountpoint: &Path) {
        let mut helper = None;
        while let Some(noted) = self.next() {
            for batch in batches(filesystem, noted) {
                if let Err(errno) = self.ask(&mut helper, mountpoint, batch) {
                    tracing::debug!(%errno, "attributes are not told again");
                    break;
                }
            }
        }
    }

    /// Returns once the kernel has taken what it was told, or what was in the way.
    fn ask(&self, helper: &mut Option<Helper>, mountpoint: &Path, batch: Batch) -> Result<()> {
        let child = match helper {
            Some(child) => child,
            None => helper.insert(Helper::start(mountpoint, 0)?),
        };
        let batch = Arc::new(batch);
        let listed = match self.set_batch(Some(Arc::clone(&batch)), child.process()) {
            true => child.list(&batch.path),
            false => Ok(()),
        };
        self.set_batch(None, 0);
        if child.has_ended() {
            *helper = None;
            return listed;
        }
        // What is no longer there, or not for this process to see, need not be told.
        Ok(())
    }

    pub fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// What to ask for; `None` at the end.
    fn next(&self) -> Option<HashSet<u64>> {
        let idle = |state: &mut State| state.is_idle() && !state.is_over;
        let woken = self.changed.wait_while(self.lock(), idle);
        let state = woken.unwrap_or_else(PoisonError::into_inner);
        let open = |state: &mut State| !state.is_over;
        let paused = self.changed.wait_timeout_while(state, PAUSE, open);
        let mut state = paused.unwrap_or_else(PoisonError::into_inner).0;
        let recent = std::mem::take(&mut state.recent);
        let due = std::mem::replace(&mut state.due, recent);
        (!state.is_over).then_some(due)
    }

    /// False at the end.
    fn set_batch(&self, batch: Option<Arc<Batch>>, process: u32) -> bool {
        let mut state = self.lock();
        state.batch = batch;
        self.process.store(process, Ordering::SeqCst);
        !state.is_over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One or more for each directory that any of the nodes is in.
fn batches<F: Filesystem>(filesystem: &F, nodes: HashSet<u64>) -> Vec<Batch> {
    let mut directories: BTreeMap<u64, Vec<Batch>> = BTreeMap::new();
    for node in nodes {
        let Some(found) = filesystem.location(node) else {
            continue;
        };
        let directory = found.directory;
        let batches = directories.entry(directory).or_default();
        if let Some(batch) = batches.last_mut()
            && batch.children.len() < CHILDREN_MAX
        {
            batch.children.push((found.name, node));
        } else {
            batches.push(Batch {
                directory,
                path: found.path,
                children: vec![(found.name, node)],
            });
        }
    }
    directories.into_values().flatten().collect()
}
