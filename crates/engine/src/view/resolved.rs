//! The names of the snapshot that a view has resolved, so that none of them comes to mean another
//! object of an outside writer's.
//!
//! Programs check a name and then use it, and the kernel looks a name up again whenever it has
//! forgotten it or finds it stale. A lookup reads the base, where an outside writer may have put
//! something else at the name meanwhile, such as a symbolic link out of the store.
//!
//! Invariants, as long as the view keeps its snapshot
//! 1. A name that was found leads to the object that was found, or fails with `ESTALE`.
//! 2. A name that was missing stays missing.
//! 3. A name that was listed leads to an object with the inode that was listed, or is missing, or
//!    fails with `ESTALE`. What the lookup finds is final.
//!    A file that the transaction has changed is still found at its name, if outside writers have
//!    taken that from it.
//! 4. What a view changes at a name, it changes of the object that was found there, so that a
//!    commit finds out about any other.
//!
//! Commits of others do not matter here, since the snapshot goes on showing the same objects.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Result};

use super::View;
use crate::base::Base;
use crate::base::snapshot::Found;
use crate::ids::NodeId;
use crate::lock;

/// By a hash of the directory's serial and the name: a view may resolve millions of names. Two names
/// with the same hash would only be refused.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    hash: RandomState,
    names: Mutex<HashMap<u64, Resolution>>,
    /// Shared with others. What is added to it for the names is subtracted again in the end.
    counter: OnceLock<Arc<AtomicU64>>,
}

impl Drop for Resolved {
    fn drop(&mut self) {
        self.uncount(lock(&self.names).len());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    Missing,
    Listed { inode: u64 },
    Found(Identity),
}

impl Resolution {
    fn of(found: Option<&Found>) -> Resolution {
        found.map_or(Resolution::Missing, |found| {
            Resolution::Found(found.stat.identity)
        })
    }

    /// Whether a later lookup may have this result.
    fn allows(self, later: Option<&Found>) -> bool {
        let Resolution::Listed { inode } = self else {
            return self == Resolution::of(later);
        };
        later.is_none_or(|found| {
            // A listing shows the inode below a mount point, and that which a later commit has
            // given to the object.
            let is_exempt = || found.base.is_mount_point() || found.base.state().history.is_some();
            found.stat.identity.inode == inode || is_exempt()
        })
    }
}

impl Resolved {
    fn key(&self, directory: &Base, name: &Name) -> u64 {
        self.hash.hash_one((directory.serial, name.as_bytes()))
    }

    fn get(&self, directory: &Base, name: &Name) -> Option<Resolution> {
        let key = self.key(directory, name);
        lock(&self.names).get(&key).copied()
    }

    pub fn forget(&self, directory: &Base, name: &Name) {
        let key = self.key(directory, name);
        let mut names = lock(&self.names);
        if names.remove(&key).is_some() {
            self.uncount(1);
        }
    }

    /// For another transaction with the same snapshot: each of the two may land something there.
    pub fn copy(&self) -> Resolved {
        Resolved {
            hash: self.hash.clone(),
            names: Mutex::new(lock(&self.names).clone()),
            counter: OnceLock::new(),
        }
    }

    /// For another snapshot of the same transaction.
    pub fn without_names(&self) -> Resolved {
        let new = Resolved::default();
        if let Some(counter) = self.counter.get() {
            new.count_in(counter);
        }
        new
    }

    pub fn count_in(&self, counter: &Arc<AtomicU64>) {
        let names = lock(&self.names);
        if self.counter.set(counter.clone()).is_ok() {
            counter.fetch_add(names.len() as u64, Ordering::Relaxed);
        }
    }

    /// To be called while the names are locked.
    fn count_one(&self) {
        if let Some(counter) = self.counter.get() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn uncount(&self, names: usize) {
        if let Some(counter) = self.counter.get() {
            counter.fetch_sub(names as u64, Ordering::Relaxed);
        }
    }
}

impl<D: Disk> View<D> {
    /// Looks a name up in the snapshot.
    pub(super) fn look_up(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Found>> {
        let before = self.resolved.get(directory, name);
        if before == Some(Resolution::Missing) {
            return Ok(None);
        }
        let found = self.settled_lookup(directory, name)?;
        if self.core.is_hidden(directory, name) {
            return Ok(found);
        }
        let now = Resolution::of(found.as_ref());
        // The transaction's own commit may have given the file a new inode.
        let has_landed = |found: &Found| self.at_of(&found.base) != self.at;
        if before.is_some_and(|before| !before.allows(found.as_ref()))
            && !found.as_ref().is_some_and(has_landed)
        {
            return Err(Errno::STALE);
        }
        if before != Some(now) {
            let key = self.resolved.key(directory, name);
            let mut names = lock(&self.resolved.names);
            if names.insert(key, now).is_none() {
                self.resolved.count_one();
            }
        }
        Ok(found)
    }

    /// Adds the number of names to a counter for as long as they are remembered.
    pub fn count_names_in(&self, counter: &Arc<AtomicU64>) {
        self.resolved.count_in(counter);
    }

    /// The object that a lookup finds. If one has found it, it is not looked for again.
    pub(super) fn object_at(
        &self,
        directory: &Arc<Base>,
        name: &Name,
    ) -> Result<Option<Arc<Base>>> {
        if let Some(Resolution::Found(identity)) = self.resolved.get(directory, name)
            && let Some(base) = self.core.known(identity)
        {
            return Ok(Some(base));
        }
        let found = self.look_up(directory, name)?;
        Ok(found.map(|found| found.base))
    }

    /// What the transaction found at a path of its snapshot, as far as it has looked; `None`: it has
    /// not. The inner `None`: there was nothing.
    pub fn found_before(&self, path: &[u8]) -> Option<Option<Arc<Base>>> {
        let mut at = self.core.root_base.clone();
        let parts = path.split(|byte| *byte == b'/');
        let mut parts = parts.filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let name = Name::new(part).ok()?;
            let found = self.found_in(&at, &name);
            if parts.peek().is_none() {
                return found;
            }
            at = match found {
                Some(None) => return Some(None),
                Some(Some(directory)) => directory,
                None => self.settled_lookup(&at, &name).ok()??.base,
            };
        }
        Some(Some(at))
    }

    fn found_in(&self, directory: &Arc<Base>, name: &Name) -> Option<Option<Arc<Base>>> {
        let node = self.nodes.by_base.get(&directory.serial);
        let node = node.and_then(|id| self.node(*id).ok());
        let delta = node.and_then(|node| node.directory_delta());
        if let Some(entry) = delta.and_then(|delta| delta.entries.get(name)) {
            return Some(entry.before.clone());
        }
        if let Some(shown) = self.shown_name(directory, name) {
            return Some(shown);
        }
        match self.resolved.get(directory, name)? {
            Resolution::Missing => Some(None),
            Resolution::Found(identity) => self.core.known(identity).map(Some),
            Resolution::Listed { .. } => None,
        }
    }

    /// Resolves the names of changed files anew, as they were when the transaction changed these.
    pub(super) fn resolve_changed(&self) {
        let files = self.changed_nodes().filter_map(|id| {
            let base = self.node(id).ok()?.base.as_ref()?;
            (base.kind == Kind::File).then_some((base, self.base_place(id)?))
        });
        for (base, (directory, name)) in files {
            let key = self.resolved.key(&directory, &name);
            let found = Resolution::Found(base.identity());
            if lock(&self.resolved.names).insert(key, found).is_none() {
                self.resolved.count_one();
            }
        }
    }

    /// A changed file whose name outside writers have taken from it. The view goes on showing it
    /// there.
    pub(super) fn changed_at(&self, directory: NodeId, name: &Name) -> Option<NodeId> {
        let is_it = |id: &NodeId| {
            self.node(*id).is_ok_and(|node| {
                let is_there = node.parent == directory && node.name.as_ref() == Some(name);
                is_there && node.base.is_some() && node.contents().is_some() && !node.is_unnamed()
            })
        };
        self.changed_nodes().find(is_it)
    }

    /// Takes note of what a listing shows of a name. Returns whether it may show the name.
    pub(super) fn note_listed(&self, directory: &Base, name: &Name, inode: u64) -> bool {
        let key = self.resolved.key(directory, name);
        match lock(&self.resolved.names).entry(key) {
            Entry::Occupied(before) => *before.get() != Resolution::Missing,
            Entry::Vacant(new) => {
                new.insert(Resolution::Listed { inode });
                self.resolved.count_one();
                true
            }
        }
    }
}
