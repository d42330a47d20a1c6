//! Base objects that somebody has looked at.
//!
//! A [`Base`] is one logical object. It stays the same object when a commit moves it or replaces
//! its inode. Its [`History`] keeps the versions that older snapshots still need after a commit,
//! and tells validation which commit changed which part.
//!
//! `core` is what everything in the engine shares: the disk, the control directory, and the base
//! objects that are known. A `snapshot` is the base as it was at one point of the commit order.
//! `landed` holds the changes that an open transaction has already committed. `handles` keeps files
//! open, `inode_numbers` are the numbers that views show, `present` and `acl` say what a user may do
//! to an object, `privileges` says what a file loses when a user writes it, `mount_point` keeps the
//! engine off what is mounted inside the store, `gone` stands in for objects that cannot be found any
//! more, `older` finds objects for transactions that have
//! survived, `survey` those that an ordinary user's overlay cannot copy up, `on_the_way` knows what
//! commits change that are not yet in the base, `ahead` where published ones differ from it, `carried` are the new
//! objects of these, `stages` makes and drops staging directories,
//! `users` asks whether other programs use a file, and `rights` opens staged objects that are closed
//! to their owner.
//!
//! Invariants
//! 1. A version "until N" is installed before commit N changes the base, and
//!    stays as long as a snapshot older than N is open. So a reader that first
//!    looks at the base and then at the history never mixes two commits.
//! 2. `place` and `identity` are those of the newest published commit.
//! 3. A base object keeps its parent alive, never its children.

pub(crate) mod acl;
pub(crate) mod ahead;
pub(crate) mod carried;
pub(crate) mod core;
pub(crate) mod credentials;
pub(crate) mod entry_place;
pub(crate) mod gone;
pub(crate) mod handles;
pub(crate) mod inode_numbers;
pub(crate) mod landed;
pub(crate) mod mount_point;
pub(crate) mod moving;
pub(crate) mod obstacles;
pub(crate) mod older;
pub(crate) mod on_the_way;
mod opening;
pub(crate) mod past_sizes;
pub(crate) mod present;
pub(crate) mod privileges;
pub(crate) mod rights;
pub(crate) mod snapshot;
pub(crate) mod stages;
pub(crate) mod survey;
mod users;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use atomdir_disk::{Identity, Kind, Name, Stat, Timestamp};
use atomdir_format::view::ViewStamp;

use crate::ids::Sequence;
use crate::lock;
use crate::ranges::RangeSet;

pub(crate) struct Base {
    pub serial: u64,
    pub kind: Kind,
    state: Mutex<BaseState>,
}

pub(crate) struct BaseState {
    pub identity: Identity,
    pub place: Place,
    pub history: Option<Box<History>>,
}

/// Where an object can be found.
#[derive(Clone)]
pub(crate) enum Place {
    Root,
    Entry {
        parent: Arc<Base>,
        name: Name,
    },
    /// Moved aside for older snapshots.
    Limbo(Name),
    /// A file that has lost the name it was known by, and has others: older
    /// snapshots reach it by a handle that is kept open.
    Held,
}

/// Extended attributes, by name.
pub(crate) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Default)]
pub(crate) struct History {
    /// Versions are in ascending order of the sequence they end at.
    pub attributes: Vec<(Sequence, Arc<OldAttributes>)>,
    pub bodies: Vec<(Sequence, Arc<OldBody>)>,
    pub names: HashMap<Name, NameVersions>,
    pub changed: Changed,
}

/// The objects that an entry named, each until the given commit.
pub(crate) type NameVersions = Vec<(Sequence, Option<Arc<Base>>)>;

pub(crate) struct OldAttributes {
    pub stat: Stat,
    pub xattrs: Xattrs,
}

/// The contents that an older snapshot reads in place of the file's present contents.
pub(crate) enum OldBody {
    /// The whole file, moved to this name in limbo.
    Moved { identity: Identity, limbo: Name },
    /// The whole file, which was in limbo and which a later commit has brought back into the
    /// base as another object.
    Restored(Arc<Base>),
    /// Pages saved in this limbo file at their own offsets, over whatever the
    /// next version has.
    Pages {
        saved: Name,
        pages: RangeSet,
        length: u64,
    },
}

/// The newest commit that changed each part, for validation.
#[derive(Clone, Default)]
pub(crate) struct Changed {
    pub names: HashMap<Name, Sequence>,
    pub attributes: Option<Sequence>,
    pub length: Option<Sequence>,
    /// Page numbers; later sequences last.
    pub pages: Vec<(Sequence, RangeSet)>,
    pub removed: Option<Sequence>,
    /// When the object lost the name by which it was known.
    pub unnamed: Option<Sequence>,
    /// When the object got a name or lost one, which shows in a file's link count.
    pub links: Option<Sequence>,
    /// The change time of the last change that no commit of ours made.
    pub outside: Option<Timestamp>,
    /// The newest commit after which outside writers may have changed the object, and until when.
    pub doubt: Option<(Timestamp, Sequence)>,
    /// What the store's own last change of the object left behind.
    pub own_stamp: Option<OwnStamp>,
    /// The last epoch in which a call through a guard has changed attributes of a directory.
    pub guarded: Option<Sequence>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnStamp {
    pub stamp: Stamp,
    pub left_by: Sequence,
}

/// The attributes by which a change of a file is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: Identity,
    length: u64,
    modified: Timestamp,
    changed: Timestamp,
}

impl Stamp {
    pub fn of(stat: &Stat) -> Stamp {
        Stamp {
            identity: stat.identity,
            length: stat.length,
            modified: stat.attributes.times.modified,
            changed: stat.changed,
        }
    }

    pub fn to_log(self) -> ViewStamp {
        ViewStamp {
            identity: self.identity,
            length: self.length,
            modified: self.modified,
            changed: self.changed,
        }
    }

    pub fn from_log(logged: ViewStamp) -> Stamp {
        Stamp {
            identity: logged.identity,
            length: logged.length,
            modified: logged.modified,
            changed: logged.changed,
        }
    }

    pub fn changed(&self) -> Timestamp {
        self.changed
    }

    pub fn modified(&self) -> Timestamp {
        self.modified
    }
}

impl Base {
    pub fn new(serial: u64, kind: Kind, identity: Identity, place: Place) -> Arc<Base> {
        let state = BaseState {
            identity,
            place,
            history: None,
        };
        Arc::new(Base {
            serial,
            kind,
            state: Mutex::new(state),
        })
    }

    pub fn state(&self) -> MutexGuard<'_, BaseState> {
        lock(&self.state)
    }

    pub fn identity(&self) -> Identity {
        self.state().identity
    }

    /// Which inode it is now, and where that is.
    pub fn identity_and_place(&self) -> (Identity, Place) {
        let state = self.state();
        (state.identity, state.place.clone())
    }

    /// The identity that the object has in a snapshot.
    pub fn identity_at(&self, at: Sequence) -> Identity {
        let state = self.state();
        let replaced = state
            .bodies_after(at)
            .iter()
            .find_map(|(_, body)| match &**body {
                OldBody::Moved { identity, .. } => Some(Ok(*identity)),
                OldBody::Restored(restored) => Some(Err(restored.clone())),
                OldBody::Pages { .. } => None,
            });
        let identity = state.identity;
        drop(state);
        match replaced {
            None => identity,
            Some(Ok(identity)) => identity,
            Some(Err(restored)) => restored.identity_at(at),
        }
    }

    /// Whether a call through a guard has changed attributes of this directory after `at`.
    pub fn is_guarded_after(&self, at: Sequence) -> bool {
        let state = self.state();
        let guarded = state.changed().and_then(|changed| changed.guarded);
        guarded.is_some_and(|guarded| guarded > at)
    }

    /// The object's present path in the base, relative to the root; `None` if the object or a
    /// directory above it is no longer there.
    pub fn path(&self) -> Option<Vec<u8>> {
        let mut names: Vec<Name> = Vec::new();
        let mut place = self.state().place.clone();
        loop {
            let (parent, name) = match place {
                Place::Root => break,
                Place::Limbo(_) | Place::Held => return None,
                Place::Entry { parent, name } => (parent, name),
            };
            names.push(name);
            place = parent.state().place.clone();
        }
        let parts: Vec<&[u8]> = names.iter().rev().map(Name::as_bytes).collect();
        Some(parts.join(&b'/'))
    }
}

/// The directories above an object, nearest first.
pub(crate) fn above(base: &Arc<Base>) -> impl Iterator<Item = Arc<Base>> + use<> {
    let parent = |base: &Arc<Base>| match &base.state().place {
        Place::Entry { parent, .. } => Some(parent.clone()),
        Place::Root | Place::Limbo(_) | Place::Held => None,
    };
    std::iter::successors(parent(base), parent)
}

/// About how much space an object takes.
pub(crate) fn space_of(stat: &Stat) -> u64 {
    const INODE_BYTES: u64 = 256;
    INODE_BYTES + stat.blocks * 512
}

impl Place {
    pub fn is_same(&self, other: &Place) -> bool {
        match (self, other) {
            (Place::Entry { parent, name }, other) => other.is_entry(parent, name),
            (Place::Limbo(one), Place::Limbo(other)) => one == other,
            (Place::Root, Place::Root) | (Place::Held, Place::Held) => true,
            _ => false,
        }
    }

    pub fn is_entry(&self, directory: &Arc<Base>, of: &Name) -> bool {
        matches!(self, Place::Entry { parent, name } if Arc::ptr_eq(parent, directory) && name == of)
    }
}

impl BaseState {
    pub fn history_mut(&mut self) -> &mut History {
        self.history.get_or_insert_default()
    }

    pub fn changed(&self) -> Option<&Changed> {
        self.history.as_ref().map(|history| &history.changed)
    }

    /// The older contents that a snapshot at `at` may see, the oldest first.
    pub fn bodies_after(&self, at: Sequence) -> &[(Sequence, Arc<OldBody>)] {
        let bodies = self.history.as_ref().map(|history| &history.bodies[..]);
        versions_after(bodies.unwrap_or_default(), at)
    }
}

/// The versions that are newer than what a snapshot at `at` sees, the oldest first. A loop of lazy
/// commits leaves hundreds of them.
pub(crate) fn versions_after<T>(versions: &[(Sequence, T)], at: Sequence) -> &[(Sequence, T)] {
    &versions[versions.partition_point(|(until, _)| *until <= at)..]
}

/// The version that a snapshot at `at` sees, if the present one is too new.
pub(crate) fn version_at<T>(versions: &[(Sequence, T)], at: Sequence) -> Option<&T> {
    let (_, version) = versions_after(versions, at).first()?;
    Some(version)
}

/// Adds the version that ends at this commit.
pub(crate) fn push_version<T>(versions: &mut Vec<(Sequence, T)>, until: Sequence, version: T) {
    assert!(
        versions.last().is_none_or(|(last, _)| *last < until),
        "versions of an object are not in the commit order"
    );
    versions.push((until, version));
}

impl History {
    /// Drops what a commit has kept that was cancelled.
    pub fn forget_versions(&mut self, until: Sequence) {
        self.attributes.retain(|(of, _)| *of != until);
        self.bodies.retain(|(of, _)| *of != until);
        for versions in self.names.values_mut() {
            versions.retain(|(of, _)| *of != until);
        }
        self.names.retain(|_, versions| !versions.is_empty());
    }

    /// Drops what no snapshot at or after `oldest` needs; true if nothing is left.
    pub fn prune(&mut self, oldest: Sequence, oldest_begin: Option<Timestamp>) -> bool {
        self.attributes.retain(|(until, _)| *until > oldest);
        self.bodies.retain(|(until, _)| *until > oldest);
        self.names.retain(|_, versions| {
            versions.retain(|(until, _)| *until > oldest);
            !versions.is_empty()
        });
        self.changed.prune(oldest, oldest_begin);
        self.attributes.is_empty()
            && self.bodies.is_empty()
            && self.names.is_empty()
            && self.changed.is_empty()
    }
}

impl Changed {
    fn prune(&mut self, oldest: Sequence, oldest_begin: Option<Timestamp>) {
        self.names.retain(|_, changed| *changed > oldest);
        self.attributes = self.attributes.filter(|changed| *changed > oldest);
        self.length = self.length.filter(|changed| *changed > oldest);
        self.removed = self.removed.filter(|changed| *changed > oldest);
        self.unnamed = self.unnamed.filter(|changed| *changed > oldest);
        self.links = self.links.filter(|changed| *changed > oldest);
        self.guarded = self.guarded.filter(|changed| *changed > oldest);
        self.pages.retain(|(changed, _)| *changed > oldest);
        self.outside = self
            .outside
            .filter(|at| oldest_begin.is_some_and(|begin| *at >= begin));
        self.doubt = self
            .doubt
            .filter(|(at, _)| oldest_begin.is_some_and(|begin| *at >= begin));
        let of_interest =
            |own: &OwnStamp| oldest_begin.is_some_and(|begin| own.stamp.changed() >= begin);
        self.own_stamp = self.own_stamp.filter(of_interest);
    }

    fn is_empty(&self) -> bool {
        self.names.is_empty()
            && self.attributes.is_none()
            && self.length.is_none()
            && self.removed.is_none()
            && self.unnamed.is_none()
            && self.links.is_none()
            && self.pages.is_empty()
            && self.outside.is_none()
            && self.doubt.is_none()
            && self.own_stamp.is_none()
            && self.guarded.is_none()
    }

    pub fn note_outside(&mut self, at: Timestamp) {
        self.outside = self.outside.max(Some(at));
    }

    /// The newest commit that wrote any of the pages.
    pub fn pages_changed(&self, start: u64, end: u64) -> Option<Sequence> {
        let hit = |(_, pages): &&(Sequence, RangeSet)| pages.overlaps(start, end);
        self.pages
            .iter()
            .rev()
            .find(hit)
            .map(|(changed, _)| *changed)
    }

    /// The newest of the commits that changed the object or its number of names, except
    /// those that are left out. A part that several commits have changed counts for the
    /// newest of them.
    pub fn newest_but(&self, is_left_out: impl Fn(Sequence) -> bool) -> Option<Sequence> {
        let pages = self.pages.iter().map(|(changed, _)| *changed);
        let others = [
            self.attributes,
            self.length,
            self.removed,
            self.unnamed,
            self.links,
        ];
        let all = pages.chain(others.into_iter().flatten());
        all.filter(|sequence| !is_left_out(*sequence)).max()
    }

    /// The newest commit that wrote anything of the object itself.
    pub fn anything(&self) -> Option<Sequence> {
        let pages = self.pages.last().map(|(changed, _)| *changed);
        self.attributes
            .max(self.length)
            .max(self.removed)
            .max(pages)
    }
}
