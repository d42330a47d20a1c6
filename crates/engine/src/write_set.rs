//! The changes that a transaction wants, as a value, whatever made them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Owner};
use atomdir_format::record::{AttributesChange, Run};
use atomdir_types::{ChangeLine, TreePath};

use crate::base::carried::CarriedObject;
use crate::base::core::Core;
use crate::base::snapshot::{PAGE, Snapshot};
use crate::base::{Base, Place, Stamp, Xattrs, above};
use crate::ids::{NodeId, Sequence};
use crate::ranges::RangeSet;

#[derive(Default)]
pub(crate) struct WriteSet {
    pub entries: Vec<EntryWrite>,
    pub objects: Vec<ObjectWrite>,
    pub removed_directories: Vec<RemovedDirectory>,
    /// Base objects that lose their last name, by serial.
    pub dying: BTreeMap<u64, Arc<Base>>,
    /// New objects, complete in the staging directory.
    pub created: Vec<Created>,
    pub summary: Vec<ChangeLine<TreePath>>,
    /// Objects that come back from limbo, where the history has kept them, by serial.
    pub restored: HashSet<u64>,
    /// Files that get another inode from limbo: the last one, which is in limbo or loses its last
    /// name, and the one that takes its place.
    pub successions: Vec<(Arc<Base>, Arc<Base>)>,
    /// The space of everything that loses its last name.
    pub dying_bytes: u64,
}

/// How the staged objects and contents of a write set survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Staging {
    /// They are durable in the staging directory before the record is logged, except the contents
    /// that are [`ContentsWrite::is_carried`].
    Flushed,
    /// The record holds a copy of all of them.
    Carried,
}

/// The data that a record carries. It contains no new objects if the staged ones were flushed.
#[derive(Default)]
pub(crate) struct Carried {
    /// In the order of [`WriteSet::created`].
    pub created: Vec<Arc<CarriedObject>>,
    /// The new contents of pages changed in place, by the serial of the base
    /// object.
    pub pages: HashMap<u64, Vec<Run>>,
}

#[derive(Clone)]
pub(crate) enum Object {
    Base(Arc<Base>),
    /// An index into `created`.
    Created(usize),
}

pub(crate) struct EntryWrite {
    pub directory: Object,
    pub name: Name,
    pub before: Option<Arc<Base>>,
    pub after: Option<Object>,
    /// The path in the view, for messages.
    pub path: TreePath,
}

pub(crate) struct Created {
    pub node: NodeId,
    pub identity: Identity,
    pub kind: Kind,
    pub place: CreatedPlace,
    /// The attributes that recovery must set again, for objects that cannot be
    /// flushed by themselves.
    pub attributes: AttributesChange,
}

pub(crate) enum CreatedPlace {
    Slot(u64),
    /// In the new directory at this index of `created`.
    Entry {
        directory: usize,
        name: Name,
    },
}

pub(crate) struct ObjectWrite {
    pub node: NodeId,
    pub base: Arc<Base>,
    /// What the object looked like when the transaction first changed it.
    pub stamp: Option<Stamp>,
    /// The mode and owner that the kernel used for its permission checks.
    pub reported: Option<(u32, Owner)>,
    pub path: TreePath,
    /// The name of a file in the base by which the transaction knows it, unless it has changed that.
    pub home: Option<(Arc<Base>, Name)>,
    pub attributes: AttributesChange,
    /// Only times change, because entries changed. Such a write never
    /// conflicts.
    pub is_implied: bool,
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    pub contents: Option<ContentsWrite>,
}

pub(crate) struct ContentsWrite {
    /// The staged file.
    pub slot: u64,
    /// Pages written by the transaction.
    pub pages: RangeSet,
    /// The length, if the transaction changed it.
    pub length: Option<u64>,
    /// How many bytes of the old contents remain where no staged page covers
    /// them.
    pub keep: u64,
    /// An index into `created` when the whole file is replaced by a new inode.
    pub replacement: Option<usize>,
    /// The record carries the pages although new objects were flushed, so the staged file was not.
    pub is_carried: bool,
    /// For a file that was written whole and is changed in place: what differs from the base.
    pub differing: Option<Overwrite>,
    /// Other programs have it open for writing, or have locked it.
    pub is_used: bool,
}

/// What a change of contents in place does to the file in the base.
#[derive(Clone)]
pub(crate) struct Overwrite {
    /// To how many bytes the file is cut first; `None`: not at all.
    pub keep: Option<u64>,
    pub length: u64,
    pub pages: RangeSet,
}

pub(crate) struct RemovedDirectory {
    pub base: Arc<Base>,
    /// The names that the transaction removed from it.
    pub names: BTreeMap<Name, Arc<Base>>,
    pub path: TreePath,
    /// Its mode and owner as the view first showed them.
    pub reported: Option<(u32, Owner)>,
}

impl WriteSet {
    pub fn is_dying(&self, base: &Base) -> bool {
        self.dying.contains_key(&base.serial)
    }

    /// About how many pages of space the commit needs when it is applied.
    pub fn pages_in_place(&self) -> u64 {
        let in_place = self.objects.iter().filter_map(|object| {
            let contents = object.contents.as_ref()?;
            let is_in_place = contents.replacement.is_none();
            is_in_place.then(|| contents.pages_to_write().total())
        });
        in_place.sum::<u64>() + self.entries.len() as u64 / 8
    }

    /// The objects that had a name in a removed directory and live on
    /// elsewhere.
    pub fn survivors<'a>(
        &'a self,
        removed: &'a RemovedDirectory,
    ) -> impl Iterator<Item = (&'a Name, &'a Arc<Base>)> {
        let names = removed.names.iter();
        names.filter(|(_, base)| !self.is_dying(base))
    }

    /// The files that a new inode replaces.
    pub fn replaced(&self) -> impl Iterator<Item = &Arc<Base>> {
        let replaced = self.objects.iter().filter(|object| {
            let contents = object.contents.as_ref();
            contents.is_some_and(|contents| contents.replacement.is_some())
        });
        replaced.map(|object| &object.base)
    }

    /// Adds those whose older inode is not in the tree any more and whose newer one is.
    pub fn add_successions(&mut self, of_view: &[(Arc<Base>, Arc<Base>)]) {
        if of_view.is_empty() {
            return;
        }
        let named = self.entries.iter().filter_map(|entry| match &entry.after {
            Some(Object::Base(base)) => Some(base.serial),
            _ => None,
        });
        let named: HashSet<u64> = named.collect();
        for (before, after) in of_view {
            let mut at_or_above = std::iter::once(before.clone()).chain(above(before));
            let is_in_limbo =
                at_or_above.any(|object| matches!(object.state().place, Place::Limbo(_)));
            // It may come back within a directory.
            let returns = named.contains(&after.serial)
                || above(after).any(|directory| named.contains(&directory.serial));
            if (is_in_limbo || self.is_dying(before)) && returns {
                self.successions.push((before.clone(), after.clone()));
            }
        }
    }

    /// Changes a file in place that would have been replaced by a new inode.
    pub fn change_in_place(&mut self, object: usize) {
        let object = &mut self.objects[object];
        let contents = object.contents.as_mut();
        let Some(index) = contents.and_then(|contents| contents.replacement.take()) else {
            return;
        };
        let base = object.base.clone();
        self.created.remove(index);
        let moved_up = |of: &mut usize| *of -= usize::from(*of > index);
        for object in &mut self.objects {
            let contents = object.contents.as_mut();
            if let Some(of) = contents.and_then(|contents| contents.replacement.as_mut()) {
                moved_up(of);
            }
        }
        for created in &mut self.created {
            if let CreatedPlace::Entry { directory, .. } = &mut created.place {
                moved_up(directory);
            }
        }
        for entry in &mut self.entries {
            if let Object::Created(of) = &mut entry.directory {
                moved_up(of);
            }
            match &mut entry.after {
                Some(Object::Created(of)) if *of == index => {
                    entry.after = Some(Object::Base(base.clone()));
                }
                Some(Object::Created(of)) => moved_up(of),
                _ => {}
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.objects.is_empty()
    }
}

impl ContentsWrite {
    /// The pages that a change in place writes.
    pub fn pages_to_write(&self) -> &RangeSet {
        match &self.differing {
            Some(differing) => &differing.pages,
            None => &self.pages,
        }
    }

    /// `present`: the file's length now.
    pub fn overwrite(&self, present: u64) -> Overwrite {
        if let Some(differing) = &self.differing {
            return differing.clone();
        }
        let (keep, length) = match self.length {
            Some(length) => (self.keep.min(present), length),
            None => (present, present),
        };
        let is_cut = keep.min(length) < present;
        Overwrite {
            keep: is_cut.then_some(keep),
            length,
            pages: self.pages.clone(),
        }
    }

    /// The pages, as page numbers, whose old contents a change in place overwrites or cuts off.
    pub fn overwritten(&self) -> Vec<(u64, u64)> {
        let Some(Overwrite { keep, pages, .. }) = &self.differing else {
            return self.written();
        };
        let cut = keep.map(|keep| (keep / PAGE, u64::MAX));
        pages.iter().chain(cut).collect()
    }
}

impl ObjectWrite {
    /// All extended attributes that the object will have: those now in the base
    /// with the transaction's changes.
    pub fn xattrs_to_be<D: Disk>(&self, core: &Core<D>) -> Result<Xattrs, Errno> {
        let at = Sequence::AFTER_ALL;
        let mut xattrs = Snapshot::new(core, at).xattrs(&self.base)?;
        for (name, value) in &self.xattrs {
            xattrs.retain(|(of, _)| of != name);
            xattrs.extend(value.clone().map(|value| (name.clone(), value)));
        }
        Ok(xattrs)
    }
}
