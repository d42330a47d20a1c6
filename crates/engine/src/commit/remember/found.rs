//! How the base differs from the snapshot that shows what was before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Extent, Kind, Name, Result, Stat};
use atomdir_format::record::{AttributesChange, Before, FormerPages, Run};
use atomdir_types::TreePath;

use super::differences::{attributes_change, contents, object_write, old_xattrs, xattrs_change};
use super::limbo::{as_they_were, into_removed_directories};
use super::lines;
use crate::base::core::Core;
use crate::base::snapshot::Snapshot;
use crate::base::{Base, OldAttributes, OldBody, Place, space_of, version_at};
use crate::commit::before::{extents_of_pages, former as former_of};
use crate::ids::{NodeId, Sequence};
use crate::log::record_builder::Present;
use crate::names;
use crate::options::OLD_BYTES_CARRIED_MAX;
use crate::ranges::RangeSet;
use crate::store::remembered::{Passing, Remembered};
use crate::write_set::{Created, CreatedPlace, EntryWrite, Object, ObjectWrite, WriteSet};

/// Everything from which the record is built.
pub(super) struct Found {
    pub set: WriteSet,
    pub present: Present,
    pub before: Before,
    /// The new contents of files are in the base, so the record has none, by serial.
    pub contents: HashMap<u64, Vec<Run>>,
    /// The objects of which only times have changed.
    pub passing: Passing,
    /// Everything in limbo that the record names.
    pub handed_over: Vec<Name>,
}

impl Found {
    /// Whether nothing has changed but times.
    pub fn is_passing(&self) -> bool {
        self.set.entries.is_empty() && self.set.objects.iter().all(|object| object.is_implied)
    }
}

/// An entry, and the objects that it led to and leads to.
pub(super) struct Entry {
    pub directory: Arc<Base>,
    pub name: Name,
    pub old: Option<Arc<Base>>,
    pub now: Option<Arc<Base>>,
}

pub(super) struct Finder<'a, D: Disk> {
    pub core: &'a Core<D>,
    pub at: Sequence,
    remembered: &'a Remembered,
    /// The entries that lead elsewhere now.
    pub entries: Vec<Entry>,
    /// The objects that have lost their last name, by serial.
    pub dead: BTreeMap<u64, Arc<Base>>,
    /// Objects that had one of the entries, by serial.
    old: BTreeSet<u64>,
    created: Vec<Created>,
    /// By serial: the places in `created`.
    numbers: HashMap<u64, usize>,
}

/// The caller has paused the gate. `passing`: what the records before this one do not mention.
pub(super) fn find<D: Disk>(
    core: &Core<D>,
    remembered: &Remembered,
    passing: &Passing,
    sequence: Sequence,
) -> Result<Found> {
    let mut finder = Finder {
        core,
        at: remembered.at,
        remembered,
        entries: Vec::new(),
        dead: BTreeMap::new(),
        old: BTreeSet::new(),
        created: Vec::new(),
        numbers: HashMap::new(),
    };
    finder.find_entries()?;
    as_they_were(&finder)?;
    let moved = into_removed_directories(&finder)?;
    let objects = finder.objects()?;
    let mut found = Found {
        set: WriteSet {
            summary: lines::of(&finder, objects.iter().map(|one| &one.write.base)),
            ..WriteSet::default()
        },
        present: Present::default(),
        before: Before::default(),
        contents: HashMap::new(),
        passing: Passing::new(),
        handed_over: moved,
    };
    let old = finder.entries.iter().filter_map(|entry| {
        let (parent, name) = (entry.directory.clone(), entry.name.clone());
        Some((entry.old.as_ref()?.serial, Place::Entry { parent, name }))
    });
    found.present.places = old.collect();
    finder.add_entries(&mut found);
    finder.add_objects(&mut found, objects, sequence)?;
    finder.add_times(&mut found, passing);
    found.set.created = finder.created;
    for base in finder.dead.values() {
        let (identity, place) = base.identity_and_place();
        let space = core
            .stat_place(&place, identity)
            .map(|stat| space_of(&stat));
        found.before.limbo_bytes += space.unwrap_or_default();
        if let Place::Limbo(name) = place {
            found.handed_over.push(name);
        }
    }
    found.set.dying = finder.dead;
    Ok(found)
}

/// An object that has changed in place.
struct ObjectFound {
    write: ObjectWrite,
    old: Arc<OldAttributes>,
    /// The pages of which the old contents are kept.
    kept: RangeSet,
}

impl<D: Disk> Finder<'_, D> {
    pub fn old_attributes(&self, base: &Base) -> Option<Arc<OldAttributes>> {
        let state = base.state();
        let history = state.history.as_ref()?;
        version_at(&history.attributes, self.at).cloned()
    }

    /// Whether it has come since.
    pub fn is_new(&self, base: &Base) -> bool {
        let is_known = || self.old.contains(&base.serial) || self.old_attributes(base).is_some();
        self.remembered.made.contains_key(&base.identity()) || !is_known()
    }

    fn find_entries(&mut self) -> Result<()> {
        for ((_, name), directory) in &self.remembered.names {
            let is_made = self.remembered.made.contains_key(&directory.identity());
            let old = {
                let state = directory.state();
                let names = state.history.as_ref().map(|history| &history.names);
                let versions = names.and_then(|names| names.get(name));
                versions.and_then(|versions| version_at(versions, self.at).cloned())
            };
            let old = match old {
                _ if is_made => None,
                Some(old) => old,
                None => continue,
            };
            self.old.extend(old.iter().map(|base| base.serial));
            let Some(now) = self.present(directory, name)? else {
                continue;
            };
            let (before, after) = (old.as_ref(), now.as_ref());
            if before.map(|base| base.serial) != after.map(|base| base.serial) {
                self.entries.push(Entry {
                    directory: directory.clone(),
                    name: name.clone(),
                    old,
                    now,
                });
            }
        }
        let old = self.entries.iter().filter_map(|entry| entry.old.as_ref());
        let dead = old.filter(|base| self.is_dead(base)).cloned();
        self.dead = dead.map(|base| (base.serial, base)).collect();
        Ok(())
    }

    /// The object, if any, that an entry leads to now. `None`: a file system is mounted there.
    fn present(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Option<Arc<Base>>>> {
        if matches!(directory.state().place, Place::Limbo(_)) {
            return Ok(Some(None));
        }
        let stat = self.core.directory(directory);
        let stat = stat.and_then(|handle| self.core.stat_entry(&handle, name));
        match stat {
            Ok(stat) if stat.mount_point => Ok(None),
            Ok(stat) => Ok(Some(Some(self.core.intern(&stat, directory, name)))),
            Err(Errno::NOENT | Errno::STALE | Errno::NOTDIR) => Ok(Some(None)),
            Err(errno) => Err(errno),
        }
    }

    fn is_dead(&self, base: &Arc<Base>) -> bool {
        let (identity, place) = base.identity_and_place();
        let is_last = |stat: Stat| stat.kind == Kind::Directory || stat.links == 1;
        matches!(place, Place::Limbo(_))
            && self.core.stat_place(&place, identity).is_ok_and(is_last)
    }

    /// Entries of new directories are part of these, unless an old object has moved there. Those of
    /// removed directories are part of those, unless their objects live on.
    fn add_entries(&mut self, found: &mut Found) {
        for entry in std::mem::take(&mut self.entries) {
            let is_in_new = self.is_new(&entry.directory);
            let after = match &entry.now {
                None => None,
                Some(now) if !self.is_new(now) => Some(Object::Base(now.clone())),
                Some(_) if is_in_new => continue,
                Some(now) => Some(Object::Created(self.created(now))),
            };
            let is_within_removed = self.dead.contains_key(&entry.directory.serial);
            let is_dead = |base: &Arc<Base>| self.dead.contains_key(&base.serial);
            if is_within_removed && entry.old.as_ref().is_none_or(is_dead) {
                continue;
            }
            let directory = match is_in_new {
                true => Object::Created(self.created(&entry.directory)),
                false => Object::Base(entry.directory.clone()),
            };
            found.set.entries.push(EntryWrite {
                directory,
                name: entry.name,
                before: entry.old,
                after,
                path: TreePath::default(),
            });
        }
    }

    fn created(&mut self, base: &Arc<Base>) -> usize {
        if let Some(number) = self.numbers.get(&base.serial) {
            return *number;
        }
        let (identity, place) = base.identity_and_place();
        let place = match place {
            Place::Entry { parent, name } if self.is_new(&parent) => CreatedPlace::Entry {
                directory: self.created(&parent),
                name,
            },
            _ => CreatedPlace::Slot(0),
        };
        let number = self.created.len();
        self.created.push(Created {
            node: NodeId::ROOT,
            identity,
            kind: base.kind,
            place,
            attributes: AttributesChange::default(),
        });
        self.numbers.insert(base.serial, number);
        number
    }

    fn objects(&self) -> Result<Vec<ObjectFound>> {
        let mut objects = Vec::new();
        for base in self.remembered.objects.values() {
            let (identity, place) = base.identity_and_place();
            if self.dead.contains_key(&base.serial) || self.is_new(base) {
                continue;
            }
            let Some(old) = self.old_attributes(base) else {
                continue;
            };
            let Ok(now) = self.core.stat_place(&place, identity) else {
                // Somebody has removed it beneath the guard.
                continue;
            };
            let xattrs = self.core.xattrs_at(&place, identity)?;
            let attributes = attributes_change(&old.stat, &now);
            let xattrs = xattrs_change(&old.xattrs, &xattrs);
            let kept = self.kept_pages(base);
            let contents = (base.kind == Kind::File).then(|| contents(&old.stat, &now, &kept));
            let contents = contents.flatten();
            let is_same = attributes == AttributesChange::default();
            if is_same && xattrs.is_empty() && contents.is_none() {
                continue;
            }
            let write = ObjectWrite {
                xattrs,
                contents,
                ..object_write(base, attributes)
            };
            objects.push(ObjectFound { write, old, kept });
        }
        Ok(objects)
    }

    pub fn kept_pages(&self, base: &Base) -> RangeSet {
        let state = base.state();
        let mut kept = RangeSet::default();
        for (_, body) in state.bodies_after(self.at) {
            if let OldBody::Pages { pages, .. } = &**body {
                pages
                    .iter()
                    .for_each(|(start, end)| kept.insert(start, end));
            }
        }
        kept
    }

    fn add_objects(
        &self,
        found: &mut Found,
        objects: Vec<ObjectFound>,
        sequence: Sequence,
    ) -> Result<()> {
        let extents = |one: &ObjectFound| match one.write.contents {
            Some(_) => extents_of_pages(one.kept.iter(), one.old.stat.length),
            None => Vec::new(),
        };
        let lengths = objects.iter().flat_map(extents);
        let carries = lengths.map(|extent| extent.length).sum::<u64>() <= OLD_BYTES_CARRIED_MAX;
        for object in objects {
            let base = &object.write.base;
            let old = &object.old.stat;
            let mut former = former_of(old);
            former.xattrs = old_xattrs(&object.old.xattrs, &object.write.xattrs);
            former.extents = extents(&object);
            former.pages = match (former.extents.is_empty(), carries) {
                (false, false) => self.save(found, base, (&former.extents, sequence))?,
                _ => self.carry(base, &former.extents)?,
            };
            let serial = base.serial;
            found.present.former.push((base.clone(), former));
            found.present.owners.insert(serial, old.attributes.owner);
            let known = (old.length, old.attributes.times.modified);
            found.present.files.insert(serial, known);
            found.contents.insert(serial, Vec::new());
            found.set.objects.push(object.write);
        }
        Ok(())
    }

    fn carry(&self, base: &Arc<Base>, extents: &[Extent]) -> Result<FormerPages> {
        let snapshot = Snapshot::new(self.core, self.at);
        let runs = extents.iter().map(|extent| {
            let mut bytes = vec![0; extent.length as usize];
            snapshot.read(base, extent.offset, &mut bytes)?;
            let offset = extent.offset;
            Ok(Run { offset, bytes })
        });
        let runs = runs.collect::<Result<Vec<Run>>>()?;
        Ok(FormerPages::Carried { runs })
    }

    /// Writes the old contents of a file to another one, at the same offsets.
    pub fn write_old(&self, base: &Arc<Base>, extents: &[Extent], to: &D::Handle) -> Result<()> {
        const CHUNK: u64 = 1 << 20;
        let snapshot = Snapshot::new(self.core, self.at);
        for Extent { offset, length } in extents {
            let (mut at, end) = (*offset, offset + length);
            while at < end {
                let mut bytes = vec![0; (end - at).min(CHUNK) as usize];
                snapshot.read(base, at, &mut bytes)?;
                self.core.disk.write_at(to, &bytes, at)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Has old pages in a file in limbo, as the record wants them.
    fn save(
        &self,
        found: &mut Found,
        base: &Arc<Base>,
        (extents, sequence): (&[Extent], Sequence),
    ) -> Result<FormerPages> {
        let (disk, limbo) = (&self.core.disk, &*self.core.control.limbo);
        let wanted = names::saved_pages(base.identity(), sequence);
        let is_there = {
            let state = base.state();
            let bodies = state.bodies_after(self.at);
            let is_it =
                |body: &OldBody| matches!(body, OldBody::Pages { saved, .. } if *saved == wanted);
            bodies.len() == 1 && is_it(&bodies[0].1)
        };
        if !is_there {
            let file = match disk.create(limbo, &wanted, 0o600) {
                Err(Errno::EXIST) => disk.open(limbo, &wanted, Access::ReadWrite)?,
                created => created?,
            };
            self.write_old(base, extents, &file)?;
        }
        found.before.limbo_bytes += space_of(&disk.stat_at(limbo, &wanted)?);
        found.handed_over.push(wanted);
        Ok(FormerPages::Limbo)
    }

    /// Says of objects that are as they were that their times have changed. Otherwise an undo would
    /// take these for an outside writer's. An object that gets a name, or loses one, has another change
    /// time; a directory gets another modification time with its entries.
    fn add_times(&self, found: &mut Found, passing: &Passing) {
        for (base, former) in &mut found.present.former {
            if let Some((_, old)) = passing.get(&base.serial) {
                former.changed = old.stat.changed;
            }
        }
        let former = found.present.former.iter();
        let mut noted: BTreeSet<u64> = former.map(|(base, _)| base.serial).collect();
        for entry in &found.set.entries {
            if let Object::Base(directory) = &entry.directory {
                noted.insert(directory.serial);
            }
        }
        let touched = self.remembered.objects.values();
        let touched = touched.filter(|base| !self.is_new(base));
        let touched = touched.filter_map(|base| Some((base, self.old_attributes(base)?)));
        let passing = passing.values();
        let passing = passing.map(|(base, old)| (base, old.clone()));
        for (base, old) in passing.chain(touched) {
            if self.dead.contains_key(&base.serial) || !noted.insert(base.serial) {
                continue;
            }
            let (identity, place) = base.identity_and_place();
            let Ok(now) = self.core.stat_place(&place, identity) else {
                continue;
            };
            if now.changed == old.stat.changed {
                continue;
            }
            if base.kind == Kind::Directory {
                let attributes = AttributesChange {
                    modified: Some(now.attributes.times.modified),
                    ..AttributesChange::default()
                };
                found.set.objects.push(ObjectWrite {
                    is_implied: true,
                    ..object_write(base, attributes)
                });
            } else {
                found
                    .present
                    .former
                    .push((base.clone(), former_of(&old.stat)));
            }
            found.passing.insert(base.serial, (base.clone(), old));
        }
    }
}
