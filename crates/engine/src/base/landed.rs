//! The changes that an open transaction has already committed.
//!
//! A transaction that lands a part of its changes stays open over its old snapshot. It must still
//! see the landed changes, and must not conflict with its own commit.
//!
//! Invariants
//! 1. The snapshot of such a transaction is the base at its begin, except for the parts noted here.
//!    Each of those is as the transaction's own commit left it. Later commits of others are not
//!    visible in it: a commit of a part is refused if another commit has changed another part of
//!    one of its objects.
//! 2. A sequence noted here counts as an open snapshot, so later commits keep the old versions that
//!    this snapshot shows (`Transaction::snapshots`).
//! 3. Every object noted here stays alive, so that it keeps its serial and its history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::Name;

use crate::base::Base;
use crate::ids::Sequence;

#[derive(Clone, Default)]
pub(crate) struct Landed {
    /// The entries of each directory, by its serial, each with the commit that landed it.
    entries: BTreeMap<u64, (Arc<Base>, BTreeMap<Name, Sequence>)>,
    /// Contents and attributes, by serial.
    objects: BTreeMap<u64, (Arc<Base>, Sequence)>,
    commits: BTreeSet<Sequence>,
}

/// For snapshots that are all of one point in the commit order.
pub(crate) static NOTHING_LANDED: Landed = Landed {
    entries: BTreeMap::new(),
    objects: BTreeMap::new(),
    commits: BTreeSet::new(),
};

impl Landed {
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    pub fn note_commit(&mut self, sequence: Sequence) {
        self.commits.insert(sequence);
    }

    pub fn note_entry(&mut self, directory: &Arc<Base>, name: &Name, sequence: Sequence) {
        self.assert_own(sequence);
        let known = self.entries.entry(directory.serial);
        let (_, names) = known.or_insert_with(|| (directory.clone(), BTreeMap::new()));
        names.insert(name.clone(), sequence);
    }

    pub fn note_object(&mut self, base: &Arc<Base>, sequence: Sequence) {
        self.assert_own(sequence);
        self.objects.insert(base.serial, (base.clone(), sequence));
    }

    /// Later commits keep what such a snapshot shows only if the commit is noted.
    fn assert_own(&self, sequence: Sequence) {
        assert!(
            self.is_own(sequence),
            "a part of a snapshot is of a commit that is not noted"
        );
    }

    /// The point in the commit order at which an object is read, in a snapshot at `at`.
    pub fn object_at(&self, base: &Base, at: Sequence) -> Sequence {
        let landed = self.objects.get(&base.serial);
        landed.map_or(at, |(_, sequence)| *sequence)
    }

    /// The same for an entry.
    pub fn entry_at(&self, directory: &Base, name: &Name, at: Sequence) -> Sequence {
        let landed = self.entries.get(&directory.serial);
        let landed = landed.and_then(|(_, names)| names.get(name));
        landed.copied().unwrap_or(at)
    }

    /// Whether the commit is one of the transaction's own.
    pub fn is_own(&self, sequence: Sequence) -> bool {
        self.commits.contains(&sequence)
    }
}
