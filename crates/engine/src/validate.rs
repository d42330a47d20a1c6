//! First committer wins: does the base still have what the transaction
//! overwrites?
//!
//! Commits since the snapshot are known part by part from the history of each
//! object. Outside writers are found by what they leave: a name that is not
//! what it should be, or a change time that no commit of ours explains and
//! that is not before the transaction's begin (both read from the file
//! system's own clock).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result, Timestamp};

use crate::base::{Base, Changed, Place, Stamp};
use crate::core::Core;
use crate::error::{ChangedBy, Conflict, ConflictKind};
use crate::ids::Sequence;
use crate::snapshot::{PAGE, Snapshot};
use crate::write_set::{
    ContentsWrite, CreatedPlace, EntryWrite, Object, ObjectWrite, RemovedDirectory, WriteSet,
};

pub(crate) struct Validation<'a, D: Disk> {
    pub core: &'a Core<D>,
    pub at: Sequence,
    pub began: Timestamp,
    /// The owner has fewer rights than this process.
    checks_rights: bool,
    reachable: HashSet<u64>,
    pub conflicts: Vec<Conflict>,
}

impl<'a, D: Disk> Validation<'a, D> {
    pub fn new(core: &'a Core<D>, at: Sequence, began: Timestamp, owner: u32) -> Self {
        let reachable = HashSet::new();
        let checks_rights = core.options.privileges.all && owner != 0;
        Validation {
            checks_rights,
            core,
            at,
            began,
            reachable,
            conflicts: Vec::new(),
        }
    }

    /// An error comes with the path that could not be looked at.
    pub fn run(&mut self, set: &WriteSet) -> std::result::Result<(), (Vec<u8>, Errno)> {
        for entry in &set.entries {
            let checked = self.check_entry(entry);
            checked.map_err(|errno| (entry.path.clone(), errno))?;
        }
        if self.checks_rights {
            set.objects
                .iter()
                .for_each(|object| self.check_rights(object));
        }
        for directory in &set.removed_directories {
            let checked = self.check_removed_directory(directory);
            checked.map_err(|errno| (directory.path.clone(), errno))?;
        }
        for object in set.objects.iter().filter(|object| !object.is_implied) {
            let checked = self.check_object(object);
            checked.map_err(|errno| (object.path.clone(), errno))?;
        }
        for base in set.dying.values() {
            let checked = self.check_dying(base);
            checked.map_err(|errno| (base.path().unwrap_or_default(), errno))?;
        }
        self.check_loops(set);
        self.conflicts.sort_by(|a, b| a.path.cmp(&b.path));
        self.conflicts.dedup();
        Ok(())
    }

    pub fn conflict(&mut self, path: &[u8], what: ConflictKind, by: Option<Sequence>) {
        let by = by.map_or(ChangedBy::Outside, ChangedBy::commit);
        // The root's own path is empty.
        let path = if path.is_empty() { b"." } else { path };
        self.conflicts.push(Conflict {
            path: path.to_vec(),
            what,
            by,
        });
    }

    /// The newest commit since the snapshot, if there is one.
    pub fn since(
        &self,
        base: &Base,
        part: impl Fn(&Changed) -> Option<Sequence>,
    ) -> Option<Sequence> {
        let state = base.state();
        state
            .changed()
            .and_then(part)
            .filter(|changed| *changed > self.at)
    }

    fn check_entry(&mut self, entry: &EntryWrite) -> Result<()> {
        let Object::Base(directory) = &entry.directory else {
            return Ok(());
        };
        if let Some(by) = self.since(directory, |changed| changed.removed) {
            self.conflict(&entry.path, ConflictKind::Removed, Some(by));
            return Ok(());
        }
        if let Some(by) = self.since(directory, |changed| changed.names.get(&entry.name).copied()) {
            self.conflict(&entry.path, ConflictKind::Entry, Some(by));
            return Ok(());
        }
        if !self.is_reachable(directory)? {
            self.conflict(&entry.path, ConflictKind::Removed, None);
            return Ok(());
        }
        let handle = self.core.directory(directory)?;
        let present = match self.core.stat_entry(&handle, &entry.name) {
            Ok(stat) => Some(stat.identity),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        if present != entry.before.as_ref().map(|base| base.identity()) {
            self.conflict(&entry.path, ConflictKind::Entry, None);
        }
        Ok(())
    }

    /// The kernel let the owner write by what the view said of the object, also
    /// of a directory in which only entries change. If that right was taken
    /// back since, a service with more rights must not write for them.
    fn check_rights(&mut self, object: &ObjectWrite) {
        let (Some(told), Ok(present)) = (object.told, self.core.stat_now(&object.base)) else {
            return;
        };
        if (present.attributes.mode, present.attributes.owner) != told {
            let by = self.since(&object.base, |changed| changed.attributes);
            self.conflict(&object.path, ConflictKind::Attributes, by);
        }
    }

    /// Whether the object and every directory above it are where they were
    /// last known to be.
    fn is_reachable(&mut self, base: &Arc<Base>) -> Result<bool> {
        let mut at = base.clone();
        let mut walked = Vec::new();
        while !self.reachable.contains(&at.serial) {
            walked.push(at.serial);
            let (place, identity) = {
                let state = at.state();
                (state.place.clone(), state.identity)
            };
            match self.core.stat_place(&place, identity) {
                Ok(_) => {}
                Err(Errno::STALE) => return Ok(false),
                Err(error) => return Err(error),
            }
            match place {
                Place::Entry { parent, .. } => at = parent,
                Place::Root => break,
                Place::Limbo(_) | Place::Held => return Ok(false),
            }
        }
        self.reachable.extend(walked);
        Ok(true)
    }

    fn check_removed_directory(&mut self, removed: &RemovedDirectory) -> Result<()> {
        let RemovedDirectory { base, names, path } = removed;
        let Ok(handle) = self.core.directory(base) else {
            // Its entry above shows the conflict.
            return Ok(());
        };
        for entry in self.core.disk.list(&handle)? {
            let changed = self.since(base, |changed| changed.names.get(&entry.name).copied());
            let expected = names.get(&entry.name).map(|base| base.identity().inode);
            if changed.is_some() || expected != Some(entry.inode) {
                let path = [path, &b"/"[..], entry.name.as_bytes()].concat();
                self.conflict(&path, ConflictKind::EntryInRemovedDirectory, changed);
            }
        }
        Ok(())
    }

    fn check_object(&mut self, object: &ObjectWrite) -> Result<()> {
        let base = &object.base;
        if let Some(by) = self.since(base, |changed| changed.removed) {
            self.conflict(&object.path, ConflictKind::Removed, Some(by));
            return Ok(());
        }
        if let Place::Held = base.state().place {
            // The one name by which the transaction knew it is gone.
            let by = self.since(base, |changed| changed.unnamed);
            self.conflict(&object.path, ConflictKind::Removed, by);
            return Ok(());
        }
        let writes_attributes = object.writes_attributes();
        if writes_attributes && let Some(by) = self.since(base, |changed| changed.attributes) {
            self.conflict(&object.path, ConflictKind::Attributes, Some(by));
        }
        if let Some(contents) = &object.contents
            && let Some(by) = self.since(base, |changed| contents_changed(changed, contents))
        {
            self.conflict(&object.path, ConflictKind::Contents, Some(by));
        }
        let stat = match self.core.stat_now(base) {
            Ok(stat) => stat,
            Err(Errno::STALE) => {
                self.conflict(&object.path, ConflictKind::Removed, None);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if base.kind == Kind::Directory {
            return self.check_directory_attributes(object, &stat);
        }
        if self.is_changed_outside(base, Stamp::of(&stat), object.stamp) {
            self.conflict(&object.path, ConflictKind::Contents, None);
        }
        Ok(())
    }

    /// A directory's times change with its entries and tell nothing.
    fn check_directory_attributes(
        &mut self,
        object: &ObjectWrite,
        present: &atomdir_disk::Stat,
    ) -> Result<()> {
        if self
            .since(&object.base, |changed| changed.attributes)
            .is_some()
        {
            return Ok(());
        }
        let before = Snapshot {
            core: self.core,
            at: self.at,
        }
        .stat(&object.base)?
        .attributes;
        if (present.attributes.mode, present.attributes.owner) != (before.mode, before.owner) {
            self.conflict(&object.path, ConflictKind::Attributes, None);
        }
        Ok(())
    }

    fn check_dying(&mut self, base: &Arc<Base>) -> Result<()> {
        if base.kind == Kind::Directory {
            if let Some(by) = self.since(base, |changed| changed.attributes.max(changed.removed)) {
                let path = base.path().unwrap_or_default();
                self.conflict(&path, ConflictKind::Attributes, Some(by));
            }
            return Ok(());
        }
        let path = base.path().unwrap_or_default();
        if let Some(by) = self.since(base, Changed::anything) {
            self.conflict(&path, ConflictKind::Contents, Some(by));
            return Ok(());
        }
        // A missing object shows at its entry.
        if let Ok(stat) = self.core.stat_now(base)
            && self.is_changed_outside(base, Stamp::of(&stat), None)
        {
            self.conflict(&path, ConflictKind::Contents, None);
        }
        Ok(())
    }

    pub fn is_changed_outside(&self, base: &Base, now: Stamp, first: Option<Stamp>) -> bool {
        let mut state = base.state();
        let own = state.changed().and_then(|changed| changed.own_stamp);
        let is_ours = own == Some(now);
        let is_other_than_seen = own.is_some() || first.is_some_and(|first| first != now);
        let is_new = !is_ours && (is_other_than_seen || now.changed() >= self.began);
        if is_new {
            state.history_mut().changed.outside = Some(now.changed().max(self.began));
        }
        let outside = state.changed().and_then(|changed| changed.outside);
        outside.is_some_and(|at| at >= self.began)
    }

    /// Two transactions may each have moved a directory below the other's.
    fn check_loops(&mut self, set: &WriteSet) {
        let mut parents: HashMap<u64, &Object> = HashMap::new();
        let mut created: HashMap<usize, &Object> = HashMap::new();
        for entry in &set.entries {
            match &entry.after {
                Some(Object::Base(base)) if base.kind == Kind::Directory => {
                    parents.insert(base.serial, &entry.directory);
                }
                Some(Object::Created(index)) => {
                    created.insert(*index, &entry.directory);
                }
                _ => {}
            }
        }
        for entry in &set.entries {
            let Some(Object::Base(moved)) = &entry.after else {
                continue;
            };
            if moved.kind != Kind::Directory {
                continue;
            }
            let mut at = Some(entry.directory.clone());
            let mut seen = HashSet::new();
            while let Some(object) = at {
                at = match object {
                    Object::Created(index) => match &set.created[index].place {
                        CreatedPlace::Entry { directory, .. } => Some(Object::Created(*directory)),
                        CreatedPlace::Slot(_) => created.get(&index).map(|above| (*above).clone()),
                    },
                    Object::Base(base)
                        if base.serial == moved.serial || !seen.insert(base.serial) =>
                    {
                        self.conflict(&entry.path, ConflictKind::DirectoryLoop, None);
                        break;
                    }
                    Object::Base(base) => match parents.get(&base.serial) {
                        Some(above) => Some((*above).clone()),
                        None => match &base.state().place {
                            Place::Entry { parent, .. } => Some(Object::Base(parent.clone())),
                            _ => None,
                        },
                    },
                };
            }
        }
    }
}

impl ObjectWrite {
    pub fn writes_attributes(&self) -> bool {
        let change = &self.attributes;
        // Access times never conflict, and a new modification time goes with
        // new contents.
        let times = change.modified.is_some() && self.contents.is_none();
        !self.xattrs.is_empty()
            || change.mode.is_some()
            || change.user.is_some()
            || (times && !self.is_implied)
    }
}

impl ContentsWrite {
    /// The pages it overwrites or cuts off, as page numbers.
    pub fn written(&self) -> Vec<(u64, u64)> {
        let mut written: Vec<(u64, u64)> = self.pages.iter().collect();
        if let Some(length) = self.length {
            written.push((length.min(self.keep) / PAGE, u64::MAX));
        }
        written
    }
}

fn contents_changed(changed: &Changed, contents: &ContentsWrite) -> Option<Sequence> {
    let length = contents.length.and(changed.length);
    let pages = contents
        .written()
        .into_iter()
        .map(|(start, end)| changed.pages_changed(start, end));
    pages.max().flatten().max(length)
}
