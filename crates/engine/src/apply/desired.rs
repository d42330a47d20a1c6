//! The state that one commit record, or the composition of several, asks for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Identity, Kind, Name, Owner, Timestamp};
use atomdir_format::privileges::PrivilegesNote;
use atomdir_format::record::{AttributesChange, CommitRecord, ContentChange, Locator, Update};

use crate::base::credentials::Credentials;
use crate::ids::TransactionId;

const ENTER: u32 = 1;
const WRITE: u32 = 2;

#[derive(Default)]
pub(crate) struct Desired {
    pub entries: BTreeMap<(Identity, Name), Wanted>,
    /// Where each object may be found besides its homes and limbo.
    candidates: HashMap<Identity, Vec<Spot>>,
    /// The names that each object shall have, of those in `entries`.
    homes: HashMap<Identity, Vec<(Identity, Name)>>,
    kinds: HashMap<Identity, Kind>,
    /// Objects that a name in `entries` named before the records.
    befores: HashSet<Identity>,
    updated: HashSet<Identity>,
    /// New objects that were not flushed.
    made: HashSet<Identity>,
    /// Objects that lose their last name and are kept in limbo for the history.
    buried: BTreeSet<Identity>,
    pub updates: Vec<WantedUpdate>,
    /// The users with whose rights records are applied.
    users: HashSet<u32>,
}

/// The user with whose rights something is changed; `None`: with those of this process.
pub(crate) type Actor = Option<Arc<Credentials>>;

pub(crate) struct WantedUpdate {
    pub object: Identity,
    pub by: Actor,
    /// Earlier records are applied with other users' rights, which this update must not take away
    /// first.
    pub follows_others: bool,
    /// The owner that the object had when the record was written.
    pub owner: Option<Owner>,
    pub attributes: AttributesChange,
    /// Each is set to the value, or removed.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub content: Option<WantedContent>,
    /// The object has no extended attributes but those that the update sets.
    pub is_whole: bool,
    /// The modification time that the commit found, if the record says it.
    pub found_modified: Option<Timestamp>,
}

pub(crate) struct WantedContent {
    pub stage: TransactionId,
    /// The transaction's owner.
    pub user: u32,
    pub change: ContentChange,
}

#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// The user of the last of the records that change the name.
    pub by: Actor,
    /// The object that the name leads to before the last of the records that change it, and after
    /// it.
    pub before: Option<Identity>,
    pub after: Option<Identity>,
}

/// A place to look for an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spot {
    Root,
    Limbo,
    Entry(Identity, Name),
    Slot(TransactionId, u64),
}

impl Desired {
    /// The state that consecutive records ask for together. `remakes`: a crash
    /// may have lost objects whose contents the records carry.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a CommitRecord>, remakes: bool) -> Desired {
        let mut desired = Desired::default();
        let records = records.into_iter();
        records.for_each(|record| desired.add(record, remakes));
        desired
    }

    /// The same, and files get the privileges back that an earlier recovery took from them.
    pub fn with_privileges(mut self, note: Option<&PrivilegesNote>) -> Desired {
        for privileges in note.into_iter().flat_map(|note| &note.files) {
            let object = privileges.file;
            self.add_candidate(object, Spot::Limbo);
            self.kinds.insert(object, Kind::File);
            self.updated.insert(object);
            self.updates.push(WantedUpdate {
                object,
                by: None,
                follows_others: false,
                owner: Some(privileges.owner),
                attributes: privileges.attributes,
                xattrs: privileges.xattrs.clone(),
                content: None,
                is_whole: false,
                found_modified: None,
            });
        }
        self
    }

    fn add(&mut self, record: &CommitRecord, remakes: bool) {
        let stage = TransactionId(record.stage);
        let by: Actor = record.groups.clone().map(|groups| {
            let user = record.user;
            Arc::new(Credentials { user, groups })
        });
        let is_other = |user: &u32| by.as_ref().is_none_or(|by| by.user != *user);
        let follows_others = self.users.iter().any(is_other);
        self.users.extend(by.as_ref().map(|by| by.user));
        let former = record.before.iter().flat_map(|before| &before.objects);
        let found: HashMap<u32, Timestamp> = former
            .map(|former| (former.object, former.attributes.times.modified))
            .collect();
        let add_update = |desired: &mut Desired, update: &Update, is_whole| {
            let object = record.objects[update.object as usize].identity;
            desired.updated.insert(object);
            desired.updates.push(WantedUpdate {
                object,
                by: by.clone(),
                follows_others,
                owner: update.owner,
                attributes: update.attributes,
                xattrs: update.xattrs.clone(),
                content: update.content.clone().map(|change| WantedContent {
                    stage,
                    user: record.user,
                    change,
                }),
                is_whole,
                found_modified: found.get(&update.object).copied().or_else(|| {
                    let content = update.content.as_ref();
                    content.and_then(|content| content.found_modified)
                }),
            });
        };
        let directory = |index: u32| record.directories[index as usize].identity;
        let spot = |locator: &Locator| match locator {
            Locator::Root => Spot::Root,
            Locator::Limbo => Spot::Limbo,
            Locator::Entry {
                directory: index,
                name,
            } => Spot::Entry(directory(*index), name.clone()),
            Locator::Staged { slot } => Spot::Slot(stage, *slot),
        };
        for reference in &record.directories {
            self.add_candidate(reference.identity, spot(&reference.locator));
            self.kinds.insert(reference.identity, Kind::Directory);
        }
        for reference in &record.objects {
            self.add_candidate(reference.identity, spot(&reference.locator));
            self.kinds.insert(reference.identity, reference.kind);
        }
        for entry in &record.entries {
            let key = (directory(entry.directory), entry.name.clone());
            if let Some(before) = entry.before {
                self.befores.insert(before);
                self.add_candidate(before, Spot::Entry(key.0, key.1.clone()));
            }
            let after = entry
                .after
                .map(|index| record.objects[index as usize].identity);
            if let Some(after) = &after {
                self.buried.remove(after);
            }
            self.want(key, (entry.before, after), &by);
        }
        let buried = record.entries.iter().filter(|entry| entry.buries);
        self.buried.extend(buried.filter_map(|entry| entry.before));
        for made in &record.made {
            let identity = record.objects[made.update.object as usize].identity;
            self.made.insert(identity);
            if remakes {
                add_update(self, &made.update, true);
            }
        }
        for update in &record.updates {
            add_update(self, update, false);
        }
    }

    fn want(
        &mut self,
        key: (Identity, Name),
        (before, after): (Option<Identity>, Option<Identity>),
        by: &Actor,
    ) {
        let by = by.clone();
        let old = self
            .entries
            .insert(key.clone(), Wanted { by, before, after });
        if let Some(Wanted {
            after: Some(old), ..
        }) = old
            && let Some(homes) = self.homes.get_mut(&old)
        {
            homes.retain(|home| *home != key);
            // A later record of the tail took the name away again.
            self.befores.insert(old);
        }
        if let Some(after) = after {
            let homes = self.homes.entry(after).or_default();
            if !homes.contains(&key) {
                homes.push(key);
            }
        }
    }

    fn add_candidate(&mut self, identity: Identity, spot: Spot) {
        let spots = self.candidates.entry(identity).or_default();
        if !spots.contains(&spot) {
            spots.push(spot);
        }
    }

    /// Whether this is a file that loses a name without getting another. It may
    /// live on under names that no record mentions.
    pub fn is_leaving(&self, identity: Identity) -> bool {
        self.may_be_gone(identity) && self.kind(identity) != Some(Kind::Directory)
    }

    pub fn is_updated(&self, identity: Identity) -> bool {
        self.updated.contains(&identity)
    }

    pub fn updated(&self) -> impl Iterator<Item = Identity> + '_ {
        self.updated.iter().copied()
    }

    /// The files that recovery would have to find if it were to start over.
    pub fn files(&self) -> impl Iterator<Item = Identity> + '_ {
        // Recovery need not find a new, flushed file with one name: without
        // that name the file is gone.
        let is_safe = |identity| self.is_staged(identity) && !self.made.contains(&identity);
        let named = self.homes.iter();
        named
            .filter(move |(identity, homes)| homes.len() > 1 || !is_safe(**identity))
            .map(|(identity, _)| identity)
            .chain(&self.updated)
            .copied()
            .filter(|identity| self.kind(*identity) != Some(Kind::Directory))
    }

    /// Whether the object is new: the only place known for it is in the staging
    /// directory.
    pub fn is_staged(&self, identity: Identity) -> bool {
        matches!(self.spots(identity), [Spot::Slot(..)])
    }

    /// Whether the object is new, and neither it nor the staging directory was flushed.
    pub fn is_made(&self, identity: Identity) -> bool {
        self.made.contains(&identity)
    }

    pub fn homes(&self, identity: Identity) -> &[(Identity, Name)] {
        self.homes.get(&identity).map_or(&[], Vec::as_slice)
    }

    pub fn spots(&self, identity: Identity) -> &[Spot] {
        self.candidates.get(&identity).map_or(&[], Vec::as_slice)
    }

    pub fn staged_directories(&self) -> impl Iterator<Item = (Identity, TransactionId, u64)> + '_ {
        let is_directory = |object| self.kinds.get(object) == Some(&Kind::Directory);
        let directories = self.candidates.iter();
        let directories = directories.filter(move |(object, _)| is_directory(object));
        directories.flat_map(|(object, spots)| {
            spots.iter().filter_map(|spot| match spot {
                Spot::Slot(stage, slot) => Some((*object, *stage, *slot)),
                _ => None,
            })
        })
    }

    /// The rights that apply needs to each object of the records if that is a directory, as for
    /// [`Disk::may_access`](atomdir_disk::Disk::may_access).
    pub fn rights_to_directories(&self) -> HashMap<Identity, u32> {
        let kinds = self.kinds.iter();
        let directories = kinds.filter(|(_, kind)| **kind == Kind::Directory);
        let mut rights: HashMap<_, _> = directories.map(|(object, _)| (*object, ENTER)).collect();
        for ((directory, _), wanted) in &self.entries {
            *rights.entry(*directory).or_default() |= WRITE | ENTER;
            // A directory's entry `..` changes when it moves to another directory, or to limbo.
            if let Some(before) = wanted.before
                && !self.homes(before).iter().any(|(home, _)| home == directory)
            {
                *rights.entry(before).or_default() |= WRITE;
            }
        }
        rights
    }

    pub fn slots(&self) -> impl Iterator<Item = (TransactionId, u64)> + '_ {
        self.candidates
            .values()
            .flatten()
            .filter_map(|spot| match spot {
                Spot::Slot(stage, slot) => Some((*stage, *slot)),
                _ => None,
            })
    }

    /// Whether the records refer to an object in limbo, which then must stay as
    /// it is until the next checkpoint.
    pub fn has_limbo_spots(&self) -> bool {
        self.candidates
            .values()
            .flatten()
            .any(|spot| *spot == Spot::Limbo)
    }

    pub fn kind(&self, identity: Identity) -> Option<Kind> {
        self.kinds.get(&identity).copied()
    }

    /// Whether the records mention the object. If not, an outside writer made
    /// it.
    pub fn knows(&self, identity: Identity) -> bool {
        self.candidates.contains_key(&identity)
    }

    /// Whether the object has lost its last name and is kept in limbo for the history.
    pub fn is_buried(&self, identity: Identity) -> bool {
        self.buried.contains(&identity) && self.homes(identity).is_empty()
    }

    pub fn buried(&self) -> impl Iterator<Item = Identity> + '_ {
        let buried = self.buried.iter().copied();
        buried.filter(|identity| self.homes(*identity).is_empty())
    }

    /// New objects that one of the records makes and a later one removes, and their kinds.
    pub fn passing(&self) -> impl Iterator<Item = (Identity, Kind)> + '_ {
        let befores = self.befores.iter().copied();
        let passing = befores.filter(|object| {
            self.homes(*object).is_empty() && self.spots(*object).iter().any(is_slot)
        });
        passing.filter_map(|object| Some((object, self.kind(object)?)))
    }

    /// Whether the object had a name and shall have no name that is known.
    pub fn may_be_gone(&self, identity: Identity) -> bool {
        self.befores.contains(&identity) && self.homes(identity).is_empty()
    }
}

fn is_slot(spot: &Spot) -> bool {
    matches!(spot, Spot::Slot(..))
}
