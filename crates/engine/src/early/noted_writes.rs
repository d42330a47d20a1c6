//! Remembers which open transaction has written what.
//!
//! Invariants
//! 1. If two open transactions with early conflicts have written the same part, the
//!    younger has met a conflict.
//! 2. A noted write keeps its object alive, so that the object keeps its
//!    serial.
//! 3. A transaction whose lazy commit has returned meets nobody any more. What it has written is
//!    still found by [`NotedWrites::written`], until its commit is applied.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::Kind;

use crate::base::Base;
use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::TransactionId;
use crate::locks::{Extent, Target};
use crate::ranges::RangeSet;

/// The transaction that writes. One with a lower age is older.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Author {
    pub transaction: TransactionId,
    pub age: TransactionId,
    pub is_early: bool,
    pub label: Vec<u8>,
}

struct Writer {
    author: Author,
    conflicts: Vec<Conflict>,
    /// Its commit is being logged, so it counts as older than all others.
    is_committing: bool,
    /// The written parts of each object, by the object's serial.
    written: HashMap<u64, Parts>,
}

/// The parts of one object that one transaction has written.
struct Parts {
    base: Arc<Base>,
    pages: RangeSet,
    attributes: bool,
    entries: BTreeSet<atomdir_disk::Name>,
    /// The object was removed.
    object: bool,
}

#[derive(Default)]
pub(crate) struct NotedWrites {
    writers: HashMap<TransactionId, Writer>,
    /// The transactions that have written a part of an object, by its serial.
    by_object: HashMap<u64, Vec<TransactionId>>,
    /// What lazy commits that have returned have written.
    returned: HashMap<TransactionId, HashMap<u64, Parts>>,
}

/// Another transaction has written or locked it first.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl NotedWrites {
    /// Notes a write that is about to happen. Refuses it if the writer wants to
    /// know early and has met a conflict, now or before.
    pub fn announce(&mut self, author: &Author, targets: &[Target]) -> Result<(), Busy> {
        if self.writer(author).conflicts.is_empty() {
            for target in targets {
                self.meet_others(author, target);
            }
        }
        if !self.writer(author).conflicts.is_empty() {
            return Err(Busy);
        }
        self.note(author, targets);
        Ok(())
    }

    /// Notes writes that have already happened.
    pub fn note(&mut self, author: &Author, targets: &[Target]) {
        for target in targets {
            let serial = target.base.serial;
            let written = &mut self.writer(author).written;
            let is_new = !written.contains_key(&serial);
            let parts = written.entry(serial);
            parts.or_insert_with(|| Parts::of(&target.base)).add(target);
            if is_new {
                let writers = self.by_object.entry(serial).or_default();
                writers.push(author.transaction);
            }
        }
    }

    fn meet_others(&mut self, author: &Author, target: &Target) {
        let others = self.by_object.get(&target.base.serial).cloned();
        for other in others.into_iter().flatten() {
            let Some(writer) = self.writers.get_mut(&other) else {
                continue;
            };
            let overlaps = writer
                .written
                .get(&target.base.serial)
                .is_some_and(|parts| parts.overlap(&target.extent));
            if other == author.transaction || !overlaps {
                continue;
            }
            let is_older = writer.is_committing || writer.author.age < author.age;
            if is_older && author.is_early {
                let conflict = conflict(target, &writer.author);
                self.writer(author).conflicts.push(conflict);
            } else if !is_older && writer.author.is_early {
                writer.conflicts.push(conflict(target, author));
            }
        }
    }

    /// Returns the conflicts that forbid a commit. If there are none, no other
    /// transaction can forbid it until the commit has ended.
    pub fn enter_commit(&mut self, transaction: TransactionId) -> Vec<Conflict> {
        let Some(own) = self.writers.get(&transaction) else {
            return Vec::new();
        };
        let mut conflicts = own.conflicts.clone();
        for (serial, parts) in &own.written {
            let others = self.by_object.get(serial).into_iter().flatten();
            let others = others.filter_map(|other| self.writers.get(other));
            let older = others.filter(|other| {
                other.author.is_early
                    && other.conflicts.is_empty()
                    && other.author.age < own.author.age
            });
            for other in older {
                if let Some(theirs) = other.written.get(serial)
                    && let Some(shared) = parts.targets().find(|one| theirs.overlap(&one.extent))
                {
                    conflicts.push(conflict(&shared, &other.author));
                }
            }
        }
        if conflicts.is_empty() {
            self.set_committing(transaction, true);
        }
        conflicts
    }

    pub fn set_committing(&mut self, transaction: TransactionId, is_committing: bool) {
        if let Some(writer) = self.writers.get_mut(&transaction) {
            writer.is_committing = is_committing;
        }
    }

    pub fn meet(&mut self, author: &Author, conflicts: Vec<Conflict>) {
        self.writer(author).conflicts.extend(conflicts);
    }

    pub fn met_by(&self, transaction: TransactionId) -> Vec<Conflict> {
        let writer = self.writers.get(&transaction);
        writer.map_or_else(Vec::new, |writer| writer.conflicts.clone())
    }

    /// Which transactions have written a part of these. What a commit or a program changes in a file
    /// conflicts with them all, whatever part of the file it is, so a file counts as a whole.
    pub fn written(&self, targets: &[Target]) -> BTreeSet<TransactionId> {
        let mut found = BTreeSet::new();
        for target in targets {
            let serial = target.base.serial;
            let extent = match target.base.kind {
                Kind::Directory => &target.extent,
                _ => &Extent::Object,
            };
            let overlaps = |written: &HashMap<u64, Parts>| {
                let parts = written.get(&serial);
                parts.is_some_and(|parts| parts.overlap(extent))
            };
            let writers = self.by_object.get(&serial).into_iter().flatten();
            found.extend(writers.copied().filter(|id| {
                let writer = self.writers.get(id);
                writer.is_some_and(|writer| overlaps(&writer.written))
            }));
            let returned = self.returned.iter();
            found.extend(returned.filter_map(|(id, written)| overlaps(written).then_some(*id)));
        }
        found
    }

    pub fn is_empty(&self) -> bool {
        self.writers.is_empty() && self.returned.is_empty()
    }

    /// The transaction's lazy commit has returned.
    pub fn note_returned(&mut self, transaction: TransactionId) {
        if let Some(written) = self.take(transaction) {
            self.returned.insert(transaction, written);
        }
    }

    pub fn forget_returned(&mut self) {
        self.returned.clear();
    }

    pub fn remove(&mut self, transaction: TransactionId) {
        self.returned.remove(&transaction);
        self.take(transaction);
    }

    fn take(&mut self, transaction: TransactionId) -> Option<HashMap<u64, Parts>> {
        let writer = self.writers.remove(&transaction)?;
        for serial in writer.written.keys() {
            if let Some(writers) = self.by_object.get_mut(serial) {
                writers.retain(|other| *other != transaction);
                if writers.is_empty() {
                    self.by_object.remove(serial);
                }
            }
        }
        Some(writer.written)
    }

    fn writer(&mut self, author: &Author) -> &mut Writer {
        let writer = self.writers.entry(author.transaction);
        writer.or_insert_with(|| Writer {
            author: author.clone(),
            conflicts: Vec::new(),
            is_committing: false,
            written: HashMap::new(),
        })
    }
}

impl Parts {
    fn of(base: &Arc<Base>) -> Parts {
        Parts {
            base: base.clone(),
            pages: RangeSet::default(),
            attributes: false,
            entries: BTreeSet::new(),
            object: false,
        }
    }

    fn add(&mut self, target: &Target) {
        match &target.extent {
            Extent::Pages(start, end) => self.pages.insert(*start, *end),
            Extent::Attributes | Extent::Leave => self.attributes = true,
            Extent::Entry(name) => {
                self.entries.insert(name.clone());
            }
            Extent::Object | Extent::Subtree => self.object = true,
        }
    }

    fn overlap(&self, extent: &Extent) -> bool {
        let is_any = self.attributes || self.pages.total() > 0 || !self.entries.is_empty();
        self.object
            || match extent {
                Extent::Pages(start, end) => self.pages.overlaps(*start, *end),
                Extent::Attributes | Extent::Leave => self.attributes,
                Extent::Entry(name) => self.entries.contains(name),
                Extent::Object | Extent::Subtree => is_any,
            }
    }

    fn targets(&self) -> impl Iterator<Item = Target> + '_ {
        let pages = self.pages.iter();
        let pages = pages.map(|(start, end)| Extent::Pages(start, end));
        let entries = self.entries.iter().cloned().map(Extent::Entry);
        let attributes = self.attributes.then_some(Extent::Attributes);
        let object = self.object.then_some(Extent::Object);
        let extents = pages.chain(entries).chain(attributes).chain(object);
        extents.map(|extent| Target {
            base: self.base.clone(),
            extent,
        })
    }
}

fn conflict(target: &Target, by: &Author) -> Conflict {
    let mut path = target.base.path().unwrap_or_default();
    if let Extent::Entry(name) = &target.extent {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name.as_bytes());
    }
    Conflict {
        path,
        what: ConflictKind::Written,
        by: ChangedBy::Open {
            transaction: by.transaction,
            label: by.label.clone(),
        },
    }
}
