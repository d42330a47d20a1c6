//! The parts of its snapshot that a serializable transaction has read, as a value.
//!
//! Invariants
//! 1. It keeps alive every base object that it mentions. So any later commit to
//!    one of them is found in that object's own history.
//! 2. It does not keep implied reads: a listing implies the names in it, and a file's attributes
//!    imply its contents, since writing changes its times.
//! 3. Its size is bounded by the number of objects, and of names looked up in
//!    directories that were not listed: if many runs of pages of a file were read,
//!    the file counts as read from the first to the last.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use atomdir_disk::{Kind, Name, Owner, Stat};

use crate::base::Base;
use crate::ranges::RangeSet;

/// A file read in more runs of pages than this counts as read throughout.
const RUNS_MAX: usize = 256;

#[derive(Clone, Default)]
pub(crate) struct ReadSet {
    /// Keyed by the object's serial.
    objects: BTreeMap<u64, ObjectReads>,
    size: usize,
}

#[derive(Clone)]
pub(crate) struct ObjectReads {
    pub base: Arc<Base>,
    pub attributes: bool,
    /// Whether the mode, the owner and the access control list were used to check a permission.
    pub access: bool,
    /// Only for a directory whose attributes were read.
    pub permissions: Option<Permissions>,
    /// Whether the end of the contents was seen.
    pub length: bool,
    pub pages: PagesRead,
    pub entries: EntriesRead,
}

/// The attributes that show outside changes of a directory. Its times cannot be used for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Permissions {
    mode: u32,
    owner: Owner,
}

impl Permissions {
    pub fn of(stat: &Stat) -> Permissions {
        Permissions {
            mode: stat.attributes.mode,
            owner: stat.attributes.owner,
        }
    }
}

#[derive(Clone, Default)]
pub(crate) enum PagesRead {
    #[default]
    None,
    /// Most files are read in one run.
    Run(u64, u64),
    Runs(Box<RangeSet>),
}

#[derive(Clone, Default)]
pub(crate) enum EntriesRead {
    #[default]
    None,
    /// The object that each name was found to name, if any.
    Names(BTreeMap<Name, Option<Arc<Base>>>),
    Listed(ListingDigest),
    /// Two reads differed, so an outside writer changed something between them.
    Torn,
}

/// A digest of the names in a directory, in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListingDigest(u64);

impl ListingDigest {
    pub fn of(entries: &[(Name, u64, Kind)]) -> ListingDigest {
        let sum = entries.iter().fold(0u64, |sum, entry| {
            let mut hasher = DefaultHasher::new();
            entry.hash(&mut hasher);
            sum.wrapping_add(hasher.finish())
        });
        ListingDigest(sum)
    }
}

impl ReadSet {
    /// The number of objects of which the transaction has read any part.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// How many objects, names and runs of pages it holds.
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn iter(&self) -> impl Iterator<Item = &ObjectReads> {
        self.objects.values()
    }

    pub fn name(&mut self, directory: &Arc<Base>, name: &Name, found: Option<&Arc<Base>>) {
        self.change(directory, |object| {
            let entries = &mut object.entries;
            if let EntriesRead::None = entries {
                *entries = EntriesRead::Names(BTreeMap::new());
            }
            let EntriesRead::Names(names) = entries else {
                return;
            };
            match names.get(name) {
                None => {
                    names.insert(name.clone(), found.cloned());
                }
                Some(known) if serial_of(known.as_ref()) != serial_of(found) => {
                    *entries = EntriesRead::Torn;
                }
                Some(_) => {}
            }
        });
    }

    pub fn listing(&mut self, directory: &Arc<Base>, listed: &[(Name, u64, Kind)]) {
        let digest = ListingDigest::of(listed);
        self.change(directory, |object| {
            let agrees = match &object.entries {
                EntriesRead::None => true,
                EntriesRead::Listed(first) => *first == digest,
                EntriesRead::Torn => false,
                EntriesRead::Names(names) => {
                    let listed: HashSet<&Name> = listed.iter().map(|(name, ..)| name).collect();
                    names
                        .iter()
                        .all(|(name, found)| found.is_some() == listed.contains(name))
                }
            };
            object.entries = if agrees {
                EntriesRead::Listed(digest)
            } else {
                EntriesRead::Torn
            };
        });
    }

    /// `permissions` is `Some` for a directory.
    pub fn attributes(&mut self, base: &Arc<Base>, permissions: Option<Permissions>) {
        self.change(base, |object| {
            object.attributes = true;
            object.permissions = object.permissions.or(permissions);
            object.pages = PagesRead::None;
        });
    }

    /// A file's permissions were checked, which says nothing of its times and its contents.
    pub fn access(&mut self, base: &Arc<Base>) {
        self.change(base, |object| object.access = true);
    }

    pub fn has_attributes(&self, base: &Base) -> bool {
        let object = self.objects.get(&base.serial);
        object.is_some_and(|object| object.attributes)
    }

    pub fn has_access(&self, base: &Base) -> bool {
        let object = self.objects.get(&base.serial);
        object.is_some_and(|object| object.access)
    }

    /// Adds the pages from `start` to before `end`, and whether the end of the
    /// contents was seen.
    pub fn contents(&mut self, base: &Arc<Base>, start: u64, end: u64, to_end: bool) {
        self.change(base, |object| {
            if !object.attributes {
                object.length |= to_end;
                object.pages.insert(start, end);
            }
        });
    }

    /// Adds what another transaction has read of the same snapshot.
    pub fn merge(&mut self, other: ReadSet) {
        for reads in other.objects.into_values() {
            let base = reads.base.clone();
            self.change(&base, |object| {
                object.length |= reads.length;
                for (start, end) in reads.pages.iter() {
                    object.pages.insert(start, end);
                }
                let known = std::mem::take(&mut object.entries);
                object.entries = known.merge(reads.entries);
                object.permissions = object.permissions.or(reads.permissions);
                object.attributes |= reads.attributes;
                object.access |= reads.access;
                if object.attributes {
                    object.pages = PagesRead::None;
                }
            });
        }
    }

    fn change(&mut self, base: &Arc<Base>, change: impl FnOnce(&mut ObjectReads)) {
        let before = self.objects.get(&base.serial).map_or(0, ObjectReads::size);
        let object = self
            .objects
            .entry(base.serial)
            .or_insert_with(|| ObjectReads {
                base: base.clone(),
                attributes: false,
                access: false,
                permissions: None,
                length: false,
                pages: PagesRead::None,
                entries: EntriesRead::None,
            });
        change(object);
        self.size = self.size - before + object.size();
    }
}

impl ObjectReads {
    fn size(&self) -> usize {
        let names = match &self.entries {
            EntriesRead::Names(names) => names.len(),
            _ => 0,
        };
        let runs = match &self.pages {
            PagesRead::Runs(runs) => runs.iter().count(),
            _ => 0,
        };
        1 + names + runs
    }
}

impl PagesRead {
    fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        match self {
            PagesRead::None => *self = PagesRead::Run(start, end),
            PagesRead::Run(from, to) if start <= *to && *from <= end => {
                (*from, *to) = (start.min(*from), end.max(*to));
            }
            PagesRead::Run(from, to) => {
                let mut runs = RangeSet::default();
                runs.insert(*from, *to);
                runs.insert(start, end);
                *self = PagesRead::Runs(Box::new(runs));
            }
            PagesRead::Runs(runs) => {
                runs.insert(start, end);
                if runs.iter().count() > RUNS_MAX {
                    let (first, last) = (runs.iter().next(), runs.iter().last());
                    if let (Some((from, _)), Some((_, to))) = (first, last) {
                        *self = PagesRead::Run(from, to);
                    }
                }
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let run = match self {
            PagesRead::Run(start, end) => Some((*start, *end)),
            _ => None,
        };
        let runs = match self {
            PagesRead::Runs(runs) => Some(runs.iter()),
            _ => None,
        };
        run.into_iter().chain(runs.into_iter().flatten())
    }
}

impl EntriesRead {
    fn merge(self, other: EntriesRead) -> EntriesRead {
        match (self, other) {
            (EntriesRead::None, entries) | (entries, EntriesRead::None) => entries,
            (EntriesRead::Listed(one), EntriesRead::Listed(two)) if one == two => {
                EntriesRead::Listed(one)
            }
            (EntriesRead::Names(mut names), EntriesRead::Names(others)) => {
                for (name, found) in others {
                    let known = names.entry(name).or_insert_with(|| found.clone());
                    if serial_of(known.as_ref()) != serial_of(found.as_ref()) {
                        return EntriesRead::Torn;
                    }
                }
                EntriesRead::Names(names)
            }
            (EntriesRead::Names(_), listed @ EntriesRead::Listed(_))
            | (listed @ EntriesRead::Listed(_), EntriesRead::Names(_)) => listed,
            _ => EntriesRead::Torn,
        }
    }
}

fn serial_of(base: Option<&Arc<Base>>) -> Option<u64> {
    base.map(|base| base.serial)
}

#[cfg(test)]
mod tests {
    use atomdir_disk::Identity;

    use super::*;
    use crate::base::Place;

    fn base(serial: u64, kind: Kind) -> Arc<Base> {
        let identity = Identity {
            inode: serial,
            birth: 0,
        };
        Base::new(serial, kind, identity, Place::Root)
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn runs(reads: &ReadSet) -> Vec<(u64, u64)> {
        reads.iter().flat_map(|one| one.pages.iter()).collect()
    }

    #[test]
    fn pages_stay_apart_until_there_are_too_many_runs() {
        let file = base(1, Kind::File);
        let mut reads = ReadSet::default();
        for (start, end) in [(4, 6), (10, 11), (6, 8), (5, 5)] {
            reads.contents(&file, start, end, false);
        }
        assert_eq!(runs(&reads), [(4, 8), (10, 11)]);
        for page in 0..2 * RUNS_MAX as u64 {
            reads.contents(&file, 100 + 2 * page, 101 + 2 * page, false);
        }
        assert!(runs(&reads).len() <= RUNS_MAX);
        for page in 0..2 * RUNS_MAX as u64 {
            let page = 100 + 2 * page;
            assert!(
                runs(&reads)
                    .iter()
                    .any(|run| (run.0..run.1).contains(&page))
            );
        }
    }

    #[test]
    fn merging_loses_no_read() {
        let (file, directory, found) = (
            base(1, Kind::File),
            base(2, Kind::Directory),
            base(3, Kind::File),
        );
        let mut reads = ReadSet::default();
        reads.contents(&file, 0, 1, false);
        reads.name(&directory, &name("there"), Some(&found));
        let mut other = ReadSet::default();
        other.contents(&file, 5, 6, true);
        other.name(&directory, &name("missing"), None);
        reads.merge(other);
        assert_eq!(runs(&reads), [(0, 1), (5, 6)]);
        let entries = |reads: &ReadSet| match &reads.objects[&2].entries {
            EntriesRead::Names(names) => names.len(),
            EntriesRead::Listed(_) => usize::MAX,
            _ => 0,
        };
        assert!(reads.objects[&1].length);
        assert_eq!(entries(&reads), 2);
        let mut listed = ReadSet::default();
        listed.listing(&directory, &[(name("there"), 3, Kind::File)]);
        listed.attributes(&file, None);
        reads.merge(listed);
        assert_eq!(entries(&reads), usize::MAX);
        assert!(reads.has_attributes(&file) && runs(&reads).is_empty());
    }

    /// An outside writer changed the base in between: no single state of it explains both reads.
    #[test]
    fn different_answers_to_one_read_are_torn() {
        let (directory, found, other) = (
            base(1, Kind::Directory),
            base(2, Kind::File),
            base(3, Kind::File),
        );
        let is_torn = |reads: &ReadSet| {
            let mut all = reads.iter();
            all.any(|one| matches!(one.entries, EntriesRead::Torn))
        };
        let listing = |inode| vec![(name("a"), inode, Kind::File)];
        let mut names = ReadSet::default();
        names.name(&directory, &name("a"), Some(&found));
        names.name(&directory, &name("a"), Some(&found));
        assert!(!is_torn(&names));
        names.name(&directory, &name("a"), Some(&other));
        assert!(is_torn(&names));
        let mut listings = ReadSet::default();
        listings.listing(&directory, &listing(2));
        listings.listing(&directory, &listing(2));
        assert!(!is_torn(&listings));
        listings.listing(&directory, &listing(3));
        assert!(is_torn(&listings));
        let mut both = ReadSet::default();
        both.name(&directory, &name("a"), None);
        both.listing(&directory, &listing(2));
        assert!(is_torn(&both));
    }
}
