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
//! 4. What a view changes at a name, it changes of the object that was found there, so that a
//!    commit finds out about any other.
//!
//! Commits of others do not matter here, since the snapshot goes on showing the same objects.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use atomdir_disk::{Disk, Errno, Identity, Name, Result};

use super::View;
use crate::base::Base;
use crate::base::snapshot::Found;
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
        let found = self.snapshot().lookup(directory, name)?;
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
