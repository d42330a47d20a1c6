//! The effects of calls on a disk, and which of them a crash may keep.
//!
//! Programs see every effect at once. On the disk it is pending until a sync
//! covers it. A crash keeps any set of pending effects, in the order of the
//! calls, that the contract of [`atomdir_disk::Disk`] allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomdir_disk::{Name, Owner, Times, Timestamp};

use crate::contents::Sector;
use crate::image::{Body, Device, Image, Inode, Number};

#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub at: Timestamp,
    /// The file system.
    pub device: Device,
    pub what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    /// The sectors after the call; `None` is a hole.
    Data(Number, Vec<(u64, Option<Sector>)>),
    Length(Number, u64),
    Mode(Number, u32),
    Owner(Number, Owner, u32),
    Times(Number, Times),
    Xattr(Number, Vec<u8>, Option<Vec<u8>>),
    Entries(EntryChange),
}

/// How one call changes names, as a whole or not at all.
#[derive(Debug, Clone)]
pub(crate) struct EntryChange {
    pub set: Vec<(Number, Name, Option<Number>)>,
    /// The old name of an object that gets another name.
    pub found_at: Option<(Number, Name)>,
    /// File systems keep moves of directories in order, so that a tree stays a
    /// tree.
    pub moves_directory: bool,
}

/// How much of an effect a crash keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Nothing,
    All,
    /// Sector `n` of a write is kept if bit `n` modulo 64 is set.
    Torn(u64),
}

/// The order in which effects that no sync has covered reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordering {
    /// The least that the contract of [`atomdir_disk::Disk`] promises.
    #[default]
    Least,
    /// Like ext4 with `data=ordered`: any sync keeps all earlier names,
    /// attributes and lengths, in order, and a file's length never comes before
    /// its contents.
    Journal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Object(Number),
    Data(Number),
    Directory(Number),
    /// Everything in one file system.
    Everything,
}

impl What {
    /// An object whose file system this changes.
    pub fn object(&self) -> Number {
        match self {
            What::Data(number, _)
            | What::Length(number, _)
            | What::Mode(number, _)
            | What::Owner(number, ..)
            | What::Times(number, _)
            | What::Xattr(number, ..) => *number,
            What::Entries(change) => change.set[0].0,
        }
    }
}

impl Effect {
    fn is_metadata(&self) -> bool {
        !matches!(self.what, What::Data(..))
    }

    /// The object whose contents or attributes change.
    pub fn object(&self) -> Option<Number> {
        match &self.what {
            What::Entries(_) => None,
            what => Some(what.object()),
        }
    }

    fn is_contents(&self) -> bool {
        matches!(self.what, What::Data(..) | What::Length(..))
    }

    fn touches(&self, directory: Number) -> bool {
        match &self.what {
            What::Entries(change) => change.set.iter().any(|(parent, ..)| *parent == directory),
            _ => false,
        }
    }

    /// Whether a crash never keeps this effect without the earlier one.
    pub fn depends_on(&self, earlier: &Effect, ordering: Ordering) -> bool {
        if self.device != earlier.device {
            return false;
        }
        if ordering == Ordering::Journal && self.is_metadata() {
            let own_contents = matches!((&self.what, &earlier.what),
                (What::Length(length_of, _), What::Data(data_of, _)) if length_of == data_of);
            return earlier.is_metadata() || own_contents;
        }
        let (What::Entries(later), What::Entries(earlier)) = (&self.what, &earlier.what) else {
            return false;
        };
        if later.moves_directory && earlier.moves_directory {
            return true;
        }
        let mut keys = later.set.iter().map(|(parent, name, _)| (parent, name));
        let found_at = later.found_at.as_ref().map(|(parent, name)| (parent, name));
        let is_set = |key: (&Number, &Name)| {
            let mut set = earlier.set.iter();
            set.any(|(parent, name, _)| (parent, name) == key)
        };
        keys.any(is_set) || found_at.is_some_and(is_set)
    }

    fn is_covered(&self, (scope, device): (Scope, Device), ordering: Ordering) -> bool {
        if self.device != device {
            return false;
        }
        let journaled = ordering == Ordering::Journal && self.is_metadata();
        match scope {
            Scope::Everything => true,
            Scope::Object(number) => self.object() == Some(number) || journaled,
            Scope::Data(number) => self.object() == Some(number) && self.is_contents(),
            Scope::Directory(number) => {
                self.touches(number) || self.object() == Some(number) || journaled
            }
        }
    }

    pub fn apply(&self, image: &mut Image, keep: Keep) {
        if keep == Keep::Nothing {
            return;
        }
        if let What::Entries(change) = &self.what {
            change.apply(image, self.at);
        } else if let Some(inode) = self.object().and_then(|number| image.get_mut(number)) {
            self.apply_to(inode, keep);
        }
    }

    fn apply_to(&self, inode: &mut Inode, keep: Keep) {
        if matches!(self.what, What::Data(..) | What::Length(..)) && inode.changed <= self.at {
            // If a later change of attributes has reached the disk, its time stays.
            inode.times.modified = self.at;
        }
        inode.changed = inode.changed.max(self.at);
        match &self.what {
            What::Data(_, sectors) => {
                let Body::File(contents) = &mut inode.body else {
                    return;
                };
                for (index, (number, sector)) in sectors.iter().enumerate() {
                    let is_kept = match keep {
                        Keep::Torn(mask) => mask >> (index % 64) & 1 == 1,
                        _ => true,
                    };
                    if is_kept {
                        contents.put(*number, sector.clone());
                    }
                }
            }
            What::Length(_, length) => {
                if let Body::File(contents) = &mut inode.body {
                    contents.set_length(*length);
                }
            }
            What::Mode(_, mode) => inode.mode = *mode,
            What::Owner(_, owner, mode) => (inode.owner, inode.mode) = (*owner, *mode),
            What::Times(_, times) => inode.times = *times,
            What::Xattr(_, name, Some(value)) => {
                inode.xattrs.insert(name.clone(), value.clone());
            }
            What::Xattr(_, name, None) => _ = inode.xattrs.remove(name),
            What::Entries(_) => {}
        }
    }
}

impl EntryChange {
    fn apply(&self, image: &mut Image, at: Timestamp) {
        for (parent, name, child) in &self.set {
            let Some(directory) = image.get_mut(*parent) else {
                continue;
            };
            (directory.times.modified, directory.changed) = (at, at);
            let Body::Directory(entries) = &mut directory.body else {
                continue;
            };
            let old = match child {
                Some(child) => entries.insert(name.clone(), *child),
                None => entries.remove(name),
            };
            for object in [*child, old].into_iter().flatten() {
                if let Some(inode) = image.get_mut(object) {
                    inode.changed = at;
                }
            }
        }
    }
}

/// A disk with the effects that have not reached it yet.
#[derive(Debug, Clone)]
pub(crate) struct Volatile {
    /// Also holds objects that have no name on the disk yet.
    pub durable: Image,
    pub pending: Vec<Arc<Effect>>,
    pub ordering: Ordering,
}

impl Volatile {
    pub fn sync(&mut self, scope: Scope, device: Device) {
        let has_length = |number| {
            let mut pending = self.pending.iter();
            pending.any(|effect| matches!(effect.what, What::Length(of, _) if of == number))
        };
        // A new length is in the journal, with everything that came before it.
        let scope = match scope {
            Scope::Data(number) if self.ordering == Ordering::Journal && has_length(number) => {
                Scope::Object(number)
            }
            scope => scope,
        };
        let mut kept: Vec<bool> = self
            .pending
            .iter()
            .map(|effect| effect.is_covered((scope, device), self.ordering))
            .collect();
        self.add_dependencies(&mut kept);
        let mut index = 0;
        let durable = &mut self.durable;
        self.pending.retain(|effect| {
            let is_kept = kept[index];
            index += 1;
            if is_kept {
                effect.apply(durable, Keep::All);
            }
            !is_kept
        });
    }

    /// Turns the choice into one that the contract allows, by keeping more.
    pub fn add_dependencies(&self, kept: &mut [bool]) {
        for later in (0..kept.len()).rev() {
            if !kept[later] {
                continue;
            }
            for (kept, earlier) in kept[..later].iter_mut().zip(&self.pending) {
                *kept = *kept || self.pending[later].depends_on(earlier, self.ordering);
            }
        }
    }

    /// Turns the choice into one that the contract allows, by keeping less.
    pub fn drop_dependents(&self, kept: &mut [bool]) {
        for later in 0..kept.len() {
            let mut earlier = 0..later;
            let is_lost = kept[later]
                && earlier.any(|earlier| {
                    !kept[earlier]
                        && self.pending[later].depends_on(&self.pending[earlier], self.ordering)
                });
            kept[later] = kept[later] && !is_lost;
        }
    }

    /// The disk after a crash that keeps this much of each pending effect.
    pub fn crash(&self, keep: &[Keep]) -> Image {
        let mut image = self.durable.clone();
        for (effect, keep) in self.pending.iter().zip(keep) {
            effect.apply(&mut image, *keep);
        }
        image.repair();
        image
    }

    /// A sync of the object failed, and the kernel still marks its pages clean.
    pub fn lose_contents(&mut self, number: Number) {
        self.pending
            .retain(|effect| effect.object() != Some(number) || effect.is_metadata());
    }

    /// The objects with contents that the disk does not have yet.
    pub fn unwritten(&self) -> BTreeSet<Number> {
        let pending = self.pending.iter();
        let contents = pending.filter(|effect| matches!(effect.what, What::Data(..)));
        contents.filter_map(|effect| effect.object()).collect()
    }

    /// From now on programs read the contents that the disk has.
    pub fn evict(&self, live: &mut Image, number: Number) {
        let Some(Body::File(on_disk)) = self.durable.get(number).map(|inode| &inode.body) else {
            return;
        };
        let on_disk = on_disk.clone();
        if let Some(Inode {
            body: Body::File(contents),
            ..
        }) = live.get_mut(number)
        {
            let length = contents.length;
            *contents = on_disk;
            contents.set_length(length);
        }
    }

    /// Whether neither the disk nor a pending effect knows the object.
    pub fn is_unknown(&self, number: Number) -> bool {
        let names = |effect: &Effect| match &effect.what {
            What::Entries(change) => change
                .set
                .iter()
                .any(|(parent, _, child)| *parent == number || *child == Some(number)),
            _ => effect.object() == Some(number),
        };
        self.durable.get(number).is_none() && !self.pending.iter().any(|effect| names(effect))
    }
}
