//! Turns a write set into a commit record. The record names objects by
//! identity, and their places as they are now. The caller holds the commit
//! lock.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Attributes, Extent, Identity, Kind, NewNode, Owner, Timestamp};
use atomdir_format::record::{
    AttributesChange, CommitRecord, ContentChange, DirectoryReference, EntryChange, Former,
    Locator, Made, ObjectReference, Run, Source, Succession, Update,
};

use crate::base::carried::CarriedObject;
use crate::base::snapshot::PAGE;
use crate::base::{Base, Place};
use crate::write_set::{
    Carried, ContentsWrite, Created, CreatedPlace, EntryWrite, Object, ObjectWrite, Overwrite,
    RemovedDirectory, WriteSet,
};

/// Facts about the present base that a record needs, by the serials of base objects.
#[derive(Default)]
pub(crate) struct Present {
    /// Files that are changed in place: their lengths and modification times.
    pub files: HashMap<u64, (u64, Timestamp)>,
    /// Modification times of directories in which a file gets a new inode
    /// while, as far as users can see, no entry changes.
    pub directory_times: HashMap<u64, Timestamp>,
    /// Modes of moved directories that keep out their own owner. The record
    /// keeps them.
    pub modes: HashMap<u64, u32>,
    /// The owners of objects whose attributes change.
    pub owners: HashMap<u64, Owner>,
    /// If the history is kept: the objects that the commit changes, as they are now. Their
    /// indices are not known yet.
    pub former: Vec<(Arc<Base>, Former)>,
    /// Where objects were, if they are elsewhere by now: the base has the commit's changes already.
    pub places: HashMap<u64, Place>,
}

pub(crate) struct RecordBuilder<'a> {
    set: &'a WriteSet,
    carried: &'a Carried,
    places: &'a HashMap<u64, Place>,
    record: CommitRecord,
    directories: HashMap<Identity, u32>,
    objects: HashMap<Identity, u32>,
    /// The objects of `set.created` that an entry will name.
    named: HashSet<usize>,
    /// The first update of each object in the record.
    updates: HashMap<u32, usize>,
    /// Base objects that get a new inode, by serial.
    replaced: HashSet<u64>,
}

/// Adds the record's entries and updates to `head`, which has none yet. `present` has the facts
/// about the base that the record needs to change it in place.
pub(crate) fn build(
    set: &WriteSet,
    carried: &Carried,
    head: CommitRecord,
    present: &Present,
) -> CommitRecord {
    let mut builder = RecordBuilder {
        set,
        carried,
        places: &present.places,
        record: head,
        directories: HashMap::new(),
        objects: HashMap::new(),
        named: set.entries.iter().filter_map(created_index).collect(),
        updates: HashMap::new(),
        replaced: set.replaced().map(|base| base.serial).collect(),
    };
    builder.add_entries();
    for removed in &set.removed_directories {
        builder.add_removed_names(removed);
    }
    for object in &set.objects {
        builder.add_object(object, present);
    }
    for (index, created) in set.created.iter().enumerate() {
        builder.add_created(created, carried.created.get(index).map(AsRef::as_ref));
    }
    for entry in &set.entries {
        if let Some(Object::Base(moved)) = &entry.after
            && let Some(mode) = present.modes.get(&moved.serial)
        {
            let mode = AttributesChange {
                mode: Some(*mode),
                ..Default::default()
            };
            builder.keep(moved, mode);
        }
    }
    builder.add_before(&present.former);
    builder.record
}

impl RecordBuilder<'_> {
    fn add_before(&mut self, former: &[(Arc<Base>, Former)]) {
        let Some(mut before) = self.record.before.take() else {
            return;
        };
        for (base, former) in former {
            if let Some(object) = self.object(&Object::Base(base.clone())) {
                let former = former.clone();
                before.objects.push(Former { object, ..former });
            }
        }
        let set = self.set;
        let written = set.objects.iter().filter_map(|object| {
            let index = object.contents.as_ref()?.replacement?;
            Some((&object.base, Object::Created(index)))
        });
        let returning = set.successions.iter();
        let returning = returning.map(|(before, after)| (before, Object::Base(after.clone())));
        for (base, after) in written.chain(returning) {
            before
                .successions
                .extend(self.object(&after).map(|after| Succession {
                    before: base.identity(),
                    after,
                }));
        }
        if !before.takes_back.is_empty() {
            let mut removed = self.set.removed_directories.iter();
            before.leaves_traces |= self.set.replaced().next().is_some()
                || removed.any(|removed| self.set.survivors(removed).next().is_some());
        }
        self.record.before = Some(before);
    }

    /// Whether the entry's object is kept in limbo: it loses its last name, or a new inode
    /// replaces it.
    fn buries(&self, before: &Base) -> bool {
        let loses_inode = self.set.is_dying(before) || self.replaced.contains(&before.serial);
        self.record.before.is_some() && loses_inode
    }

    fn add_entries(&mut self) {
        for entry in &self.set.entries {
            let Some(directory) = self.directory(&entry.directory) else {
                continue;
            };
            let before = entry.before.as_ref().map(|base| base.identity());
            let after = entry.after.as_ref().and_then(|object| self.object(object));
            let name = entry.name.clone();
            let buries = entry.before.as_ref().is_some_and(|base| self.buries(base));
            self.record.entries.push(EntryChange {
                directory,
                name,
                before,
                after,
                buries,
            });
        }
    }

    /// A directory goes as a whole. An object that had a name in it and has
    /// others elsewhere loses that name.
    fn add_removed_names(&mut self, removed: &RemovedDirectory) {
        let set = self.set;
        for (name, base) in set.survivors(removed) {
            let Some(directory) = self.directory(&Object::Base(removed.base.clone())) else {
                return;
            };
            self.record.entries.push(EntryChange {
                directory,
                name: name.clone(),
                before: Some(base.identity()),
                after: None,
                buries: self.buries(base),
            });
        }
    }

    fn add_object(&mut self, object: &ObjectWrite, present: &Present) {
        let base = &object.base;
        if let Some(index) = object
            .contents
            .as_ref()
            .and_then(|contents| contents.replacement)
        {
            self.replace(base, index, present);
            return;
        }
        let Some(reference) = self.object(&Object::Base(base.clone())) else {
            return;
        };
        let content = object.contents.as_ref().map(|contents| {
            content_change(
                contents,
                self.carried.pages.get(&base.serial),
                present.files.get(&base.serial).copied(),
            )
        });
        self.add_update(Update {
            object: reference,
            attributes: object.attributes,
            owner: present.owners.get(&base.serial).copied(),
            xattrs: object.xattrs.clone(),
            content,
        });
    }

    /// Gives a file that stays in its place a new inode.
    fn replace(&mut self, base: &Arc<Base>, index: usize, present: &Present) {
        if self.named.contains(&index) {
            return;
        }
        let place = base.state().place.clone();
        let Place::Entry { parent, name } = place else {
            return;
        };
        let times = present.directory_times.get(&parent.serial).copied();
        let Some(directory) = self.directory(&Object::Base(parent.clone())) else {
            return;
        };
        let before = Some(base.identity());
        let after = self.object(&Object::Created(index));
        let buries = self.buries(base);
        self.record.entries.push(EntryChange {
            directory,
            name,
            before,
            after,
            buries,
        });
        if times.is_some() {
            let times = AttributesChange {
                modified: times,
                ..Default::default()
            };
            self.keep(&parent, times);
        }
    }

    fn add_update(&mut self, update: Update) {
        let place = self.record.updates.len();
        self.updates.entry(update.object).or_insert(place);
        self.record.updates.push(update);
    }

    /// Adds attributes that a directory must keep, unless the record sets them
    /// anyway.
    fn keep(&mut self, directory: &Arc<Base>, kept: AttributesChange) {
        let Some(object) = self.object(&Object::Base(directory.clone())) else {
            return;
        };
        if let Some(known) = self.updates.get(&object) {
            let attributes = &mut self.record.updates[*known].attributes;
            attributes.modified = attributes.modified.or(kept.modified);
            attributes.mode = attributes.mode.or(kept.mode);
            return;
        }
        self.add_update(Update {
            object,
            attributes: kept,
            owner: None,
            xattrs: Vec::new(),
            content: None,
        });
    }

    fn add_created(&mut self, created: &Created, carried: Option<&CarriedObject>) {
        if created.attributes == Default::default() && carried.is_none() {
            return;
        }
        let Some(locator) = self.created_locator(created) else {
            return;
        };
        let Created { identity, kind, .. } = *created;
        let object = self.add_reference(ObjectReference {
            identity,
            kind,
            locator,
        });
        if let Some(carried) = carried {
            self.record.made.push(made(object, carried));
            return;
        }
        self.add_update(Update {
            object,
            attributes: created.attributes,
            owner: None,
            xattrs: Vec::new(),
            content: None,
        });
    }

    fn created_locator(&mut self, created: &Created) -> Option<Locator> {
        match &created.place {
            CreatedPlace::Slot(slot) => Some(Locator::Staged { slot: *slot }),
            CreatedPlace::Entry { directory, name } => {
                let directory = self.directory(&Object::Created(*directory))?;
                Some(Locator::Entry {
                    directory,
                    name: name.clone(),
                })
            }
        }
    }

    fn base_locator(&mut self, base: &Arc<Base>) -> Option<Locator> {
        let former = self.places.get(&base.serial).cloned();
        let place = former.unwrap_or_else(|| base.state().place.clone());
        match place {
            Place::Root => Some(Locator::Root),
            Place::Limbo(_) | Place::Held => Some(Locator::Limbo),
            Place::Entry { parent, name } => {
                let directory = self.directory(&Object::Base(parent))?;
                Some(Locator::Entry { directory, name })
            }
        }
    }

    fn identify(&self, object: &Object) -> (Identity, Kind) {
        match object {
            Object::Base(base) => (base.identity(), base.kind),
            Object::Created(index) => {
                let created = &self.set.created[*index];
                (created.identity, created.kind)
            }
        }
    }

    fn locate(&mut self, object: &Object) -> Option<Locator> {
        match object {
            Object::Base(base) => self.base_locator(base),
            Object::Created(index) => {
                let set = self.set;
                self.created_locator(&set.created[*index])
            }
        }
    }

    /// Returns the index of a directory, which comes after those that lead to
    /// it.
    fn directory(&mut self, object: &Object) -> Option<u32> {
        let (identity, _) = self.identify(object);
        if let Some(index) = self.directories.get(&identity) {
            return Some(*index);
        }
        let locator = self.locate(object)?;
        let index = self.record.directories.len() as u32;
        self.record
            .directories
            .push(DirectoryReference { identity, locator });
        self.directories.insert(identity, index);
        Some(index)
    }

    fn object(&mut self, object: &Object) -> Option<u32> {
        let (identity, kind) = self.identify(object);
        if let Some(index) = self.objects.get(&identity) {
            return Some(*index);
        }
        let locator = self.locate(object)?;
        Some(self.add_reference(ObjectReference {
            identity,
            kind,
            locator,
        }))
    }

    fn add_reference(&mut self, reference: ObjectReference) -> u32 {
        if let Some(index) = self.objects.get(&reference.identity) {
            return *index;
        }
        let index = self.record.objects.len() as u32;
        self.objects.insert(reference.identity, index);
        self.record.objects.push(reference);
        index
    }
}

fn created_index(entry: &EntryWrite) -> Option<usize> {
    match entry.after {
        Some(Object::Created(index)) => Some(index),
        _ => None,
    }
}

fn made(object: u32, carried: &CarriedObject) -> Made {
    let Attributes { mode, owner, times } = carried.stat.attributes;
    let is_symlink = carried.stat.kind == Kind::Symlink;
    let xattrs = carried.xattrs.iter().cloned();
    let is_file = carried.node == NewNode::File;
    let content = is_file.then(|| ContentChange {
        keep: Some(0),
        length: carried.stat.length,
        extents: vec![Extent {
            offset: 0,
            length: carried.stat.length,
        }],
        is_whole: true,
        found_modified: None,
        source: Source::Carried {
            runs: carried.runs.clone(),
        },
    });
    Made {
        node: carried.node.clone(),
        update: Update {
            object,
            attributes: AttributesChange {
                mode: (!is_symlink).then_some(mode),
                user: Some(owner.user),
                group: Some(owner.group),
                accessed: Some(times.accessed),
                modified: Some(times.modified),
            },
            owner: Some(owner),
            xattrs: xattrs.map(|(name, value)| (name, Some(value))).collect(),
            content,
        },
    }
}

/// The change of a file in place, given its present length and modification time.
fn content_change(
    contents: &ContentsWrite,
    carried: Option<&Vec<Run>>,
    present: Option<(u64, Timestamp)>,
) -> ContentChange {
    let Overwrite {
        keep,
        length,
        pages,
    } = contents.overwrite(present.map_or(0, |(length, _)| length));
    let extents = pages.iter().filter_map(|(start, end)| {
        let offset = start * PAGE;
        let end = end.saturating_mul(PAGE).min(length);
        (offset < end).then(|| Extent {
            offset,
            length: end - offset,
        })
    });
    let source = match carried {
        Some(runs) => Source::Carried { runs: runs.clone() },
        None => Source::Staged {
            slot: contents.slot,
        },
    };
    ContentChange {
        keep,
        length,
        extents: extents.collect(),
        is_whole: contents.differing.is_some(),
        found_modified: present.map(|(_, modified)| modified),
        source,
    }
}
