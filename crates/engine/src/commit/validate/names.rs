//! Validates entries and removed directories, and decides which files lose their
//! last name.
//!
//! The view has counted names by its snapshot. Others may have linked or unlinked
//! the same file since, which is no conflict: a file dies only if the base's own
//! link count leaves it no name. If a transaction removes an object's last name,
//! the object must be as the transaction saw it. A file that lives on need not be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name, Result, Stat};
use atomdir_types::TreePath;

use super::Validation;
use crate::base::{Base, Place, Stamp, above, space_of};
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::names;
use crate::rules::Rule;
use crate::write_set::{EntryWrite, Object, RemovedDirectory, WriteSet};

/// An object that loses names by the commit.
pub(super) struct Losing {
    base: Arc<Base>,
    /// One of these names, as a path in the view.
    pub path: TreePath,
    /// How many it loses.
    names: u32,
    /// Its attributes in the base; `None` if one of the names is in a conflict.
    pub present: Option<Stat>,
}

impl<D: Disk> Validation<'_, D> {
    pub(super) fn check_entry(&mut self, entry: &EntryWrite) -> Result<()> {
        let Object::Base(directory) = &entry.directory else {
            return Ok(());
        };
        let before = entry.before.as_ref();
        let (rule, what) = (Rule::DirectoryRemoved, ConflictKind::DirectoryRemoved);
        if let Some(by) = self.since(rule, directory, |changed| changed.removed) {
            self.conflict(rule, &entry.path, what, Some(by));
            self.loses_name(before, &entry.path, None);
            return Ok(());
        }
        let rule = Rule::EntryChanged;
        let by = self.since(rule, directory, |changed| {
            changed.names.get(&entry.name).copied()
        });
        let by = by.filter(|_| !self.accepted.has_entry(&entry.path));
        if !self.is_reachable(directory)? {
            let rule = Rule::DirectoryMovedOutside;
            let by = self.removed_above(directory).flatten();
            self.conflict(rule, &entry.path, what, by);
            self.loses_name(before, &entry.path, None);
            return Ok(());
        }
        let present = self.present(directory, &entry.name)?;
        let what = match (before, &present) {
            (Some(before), Some(stat)) if stat.identity != before.identity() => {
                ConflictKind::Replaced
            }
            (None, _) | (Some(_), Some(_)) => ConflictKind::Entry,
            (Some(_), None) => ConflictKind::Removed,
        };
        if by.is_some() {
            self.conflict(rule, &entry.path, what, by);
            self.loses_name(before, &entry.path, None);
            return Ok(());
        }
        let identity = present.as_ref().map(|stat| stat.identity);
        let is_expected = identity == before.map(|base| base.identity());
        if !is_expected {
            self.conflict(Rule::EntryChangedOutside, &entry.path, what, None);
            self.seen.note_contested(&entry.path);
        }
        self.loses_name(before, &entry.path, present.filter(|_| is_expected));
        Ok(())
    }

    /// What the name leads to now, or as soon as commits are in the base that are published already.
    pub(super) fn present(&self, directory: &Arc<Base>, name: &Name) -> Result<Option<Stat>> {
        let ahead = self.core.ahead.entry(directory, name, Sequence::AFTER_ALL);
        if let Some((_, object)) = ahead {
            return object.map(|base| self.core.stat_now(&base)).transpose();
        }
        let handle = self.core.directory(directory)?;
        match self.core.stat_entry(&handle, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `present`: the object's attributes in the base; `None` if the name is in a conflict.
    fn loses_name(&mut self, base: Option<&Arc<Base>>, path: &TreePath, present: Option<Stat>) {
        let Some(base) = base else {
            return;
        };
        if let Some(stat) = &present
            && base.kind != Kind::Directory
        {
            self.note_outside(Rule::OutsideRememberedByEntry, base, Stamp::of(stat));
            self.seen.note_renamed(base, *stat, false);
        }
        let losing = self.losing.entry(base.serial).or_insert_with(|| Losing {
            base: base.clone(),
            path: path.clone(),
            names: 0,
            present,
        });
        losing.names += 1;
        if present.is_none() {
            losing.present = None;
        }
    }

    /// Whether the object and every directory above it are where they were
    /// last known to be.
    pub(super) fn is_reachable(&mut self, base: &Arc<Base>) -> Result<bool> {
        if !Rule::DirectoryMovedOutside.holds() {
            return Ok(true);
        }
        let mut at = base.clone();
        let mut walked = Vec::new();
        while !self.reachable.contains(&at.serial) {
            walked.push(at.serial);
            let (identity, place) = at.identity_and_place();
            match self.core.stat_place(&place, identity) {
                Ok(_) => {}
                Err(Errno::STALE) => return Ok(false),
                Err(error) => return Err(error),
            }
            match place {
                Place::Entry { parent, .. } => at = parent,
                Place::Root => break,
                Place::Limbo(_) if self.restored.contains(&at.serial) => break,
                Place::Limbo(_) | Place::Held => return Ok(false),
            }
        }
        self.reachable.extend(walked);
        Ok(true)
    }

    /// The same for an object at which the caller has just looked itself.
    pub(super) fn is_reachable_above(&mut self, base: &Arc<Base>) -> Result<bool> {
        let place = base.state().place.clone();
        match place {
            _ if !Rule::DirectoryMovedOutside.holds() => Ok(true),
            Place::Entry { parent, .. } => self.is_reachable(&parent),
            Place::Root => Ok(true),
            Place::Limbo(_) => Ok(self.restored.contains(&base.serial)),
            Place::Held => Ok(false),
        }
    }

    /// Whether a directory above the object has been removed with everything in it, and by which
    /// commit.
    pub(super) fn removed_above(&self, base: &Arc<Base>) -> Option<Option<Sequence>> {
        let mut above = above(base).map(|directory| {
            let state = directory.state();
            let removed = state.changed().and_then(|changed| changed.removed);
            let is_in_limbo = matches!(state.place, Place::Limbo(_));
            let is_restored = self.restored.contains(&directory.serial);
            (is_in_limbo && !is_restored).then_some(removed)
        });
        above.find_map(|removed| removed)
    }

    /// What others have created must still be as it was when it was found to be equal.
    pub(super) fn check_equal(&mut self) -> Result<()> {
        let creations: Vec<_> = self.accepted.equal.creations.values().cloned().collect();
        for creation in creations {
            let is_there = self.is_reachable(&creation.directory)?;
            if !is_there || !creation.is_unchanged(self.core)? {
                let (rule, what) = (Rule::EntryChangedOutside, ConflictKind::Entry);
                self.conflict(rule, &creation.path, what, None);
            }
            self.seen.note_equal(creation);
        }
        Ok(())
    }

    /// Every name that the transaction took out of the directory must still lead to the same
    /// object, and the directory must have no other names.
    pub(super) fn check_removed_directory(&mut self, removed: &RemovedDirectory) -> Result<()> {
        let RemovedDirectory {
            base,
            names,
            path,
            reported,
        } = removed;
        if let (Ok(before), Ok(stat)) = (
            self.shown_permissions(base, *reported),
            self.core.stat_now(base),
        ) {
            self.check_permissions((base, path), before, &stat);
        }
        let Ok(handle) = self.core.directory(base) else {
            // If it is gone, the check of its entry reports that. If it was closed, it has other
            // permissions.
            return Ok(());
        };
        let mut present: BTreeMap<Name, Option<Stat>> = BTreeMap::new();
        for name in names.keys() {
            present.insert(name.clone(), self.present(base, name)?);
        }
        let listed = match self.core.disk.list(&handle) {
            // An outside writer has removed it.
            Err(Errno::NOENT) => return Ok(()),
            listed => listed?,
        };
        for entry in listed {
            present.entry(entry.name).or_insert(None);
        }
        for (name, present) in present {
            let path = path.join(name.as_bytes());
            let before = names.get(&name);
            let expected = before.map(|base| base.identity());
            let rule = Rule::RemovedDirectoryChanged;
            let by = self.since(rule, base, |changed| changed.names.get(&name).copied());
            let is_expected =
                before.is_some() && present.as_ref().map(|stat| stat.identity) == expected;
            let what = match before {
                Some(_) => ConflictKind::Entry,
                None => ConflictKind::EntryInRemovedDirectory,
            };
            if by.is_some() {
                self.conflict(rule, &path, what, by);
            } else if !is_expected {
                self.conflict(Rule::RemovedDirectoryChangedOutside, &path, what, None);
            }
            let is_free = by.is_none() && is_expected;
            self.loses_name(before, &path, present.filter(|_| is_free));
        }
        Ok(())
    }

    /// A file that gets another name must not have been removed meanwhile. A file
    /// that is moved was checked under its old name.
    pub(super) fn check_linked(&mut self, entry: &EntryWrite) -> Result<()> {
        let Some(Object::Base(base)) = &entry.after else {
            return Ok(());
        };
        let is_in_limbo = matches!(base.state().place, Place::Limbo(_));
        if is_in_limbo && self.restored.contains(&base.serial) {
            return self.check_restored(base, &entry.path);
        }
        if self.losing.contains_key(&base.serial) {
            return Ok(());
        }
        // A directory has one name, and what an undo brings back has none.
        let must_be_nameless = base.kind == Kind::Directory || self.restored.contains(&base.serial);
        if must_be_nameless && self.has_name(base) {
            let (rule, what) = (Rule::LinkedFileGone, ConflictKind::Returned);
            let by = self.placed_by(base);
            self.conflict(rule, &entry.path, what, by);
            return Ok(());
        }
        if base.kind == Kind::Directory {
            return Ok(());
        }
        let (rule, what) = (Rule::LinkedFileRemoved, ConflictKind::LinkedRemoved);
        if let Some(by) = self.since(rule, base, |changed| changed.removed) {
            self.conflict(rule, &entry.path, what, Some(by));
            return Ok(());
        }
        if let Some(by) = self.removed_above(base).filter(|_| rule.holds()) {
            self.conflict(rule, &entry.path, what, by);
            return Ok(());
        }
        let has_name = matches!(base.state().place, Place::Entry { .. });
        match self.core.stat_now(base) {
            Ok(stat) if has_name => {
                self.note_outside(Rule::OutsideRememberedByEntry, base, Stamp::of(&stat));
                self.seen.note_renamed(base, stat, true);
            }
            Ok(_) | Err(Errno::STALE) => {
                let rule = Rule::LinkedFileGone;
                let by = self.since(rule, base, |changed| changed.unnamed);
                self.conflict(rule, &entry.path, what, by);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether the object is in the tree, and not in limbo with a directory above it.
    fn has_name(&self, base: &Arc<Base>) -> bool {
        let is_named = |base: &Arc<Base>| matches!(base.state().place, Place::Entry { .. });
        is_named(base)
            && above(base).all(|directory| {
                matches!(directory.state().place, Place::Entry { .. } | Place::Root)
            })
    }

    /// The commit since the snapshot that has put the object where it is.
    fn placed_by(&self, base: &Arc<Base>) -> Option<Sequence> {
        let place = base.state().place.clone();
        let Place::Entry { parent, name } = place else {
            return None;
        };
        self.since(Rule::LinkedFileGone, &parent, |changed| {
            changed.names.get(&name).copied()
        })
    }

    /// An object that an undo brings back must still be in limbo: another undo may have been
    /// faster.
    fn check_restored(&mut self, base: &Arc<Base>, path: &TreePath) -> Result<()> {
        let limbo = Place::Limbo(names::limbo(base.identity()));
        let is_there = self.core.stat_place(&limbo, base.identity());
        match is_there {
            Ok(_) => Ok(()),
            Err(Errno::STALE) => {
                let (rule, what) = (Rule::LinkedFileGone, ConflictKind::Removed);
                self.conflict(rule, path, what, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Decides by the link counts of the base which files lose their last name.
    pub(super) fn decide_dying(&mut self, set: &mut WriteSet) {
        let gained = names_gained(set);
        let (mut parted, mut lost) = (Vec::new(), Vec::new());
        for losing in self.losing.values() {
            let (base, serial) = (&losing.base, losing.base.serial);
            let Some(present) = &losing.present else {
                continue;
            };
            if base.kind == Kind::Directory {
                continue;
            }
            let gains = gained.get(&serial).copied().unwrap_or(0);
            let lives = u64::from(present.links) + gains > u64::from(losing.names);
            if lives && set.is_dying(base) && Rule::LinkedFileLives.holds() {
                set.dying.remove(&serial);
                let mut successions = set.successions.iter();
                if successions.any(|(before, _)| before.serial == serial) {
                    parted.push((base.clone(), losing.path.clone()));
                }
            } else if !lives && !set.is_dying(base) && Rule::UnlinkedFileDies.holds() {
                set.dying.insert(serial, base.clone());
                if self.is_undo {
                    lost.push((base.clone(), losing.path.clone()));
                }
            }
        }
        for (base, path) in lost {
            let by = self.since(Rule::UnlinkedFileDies, &base, |changed| changed.links);
            self.conflict(Rule::UnlinkedFileDies, &path, ConflictKind::Removed, by);
        }
        // An undo would bring back the old inode of a file beside the one that stays.
        for (base, path) in parted {
            let by = self.since(Rule::LinkedFileLives, &base, |changed| changed.links);
            self.conflict(Rule::LinkedFileLives, &path, ConflictKind::Contents, by);
        }
        let dying = self.losing.values().filter(|of| set.is_dying(&of.base));
        let present = dying.filter_map(|losing| losing.present);
        set.dying_bytes = present.map(|stat| space_of(&stat)).sum();
    }

    /// Notes what must stay as it is until the commit is applied.
    pub(super) fn note_dying(&mut self, set: &WriteSet) {
        for Losing { base, present, .. } in self.losing.values() {
            if let Some(stat) = present.as_ref().filter(|_| set.is_dying(base)) {
                self.seen.note_unchanged(base, stat);
            }
        }
    }

    /// The other names of such a file may all be in limbo, where an undo has left them.
    pub(super) fn files_losing_names(&self) -> Vec<Arc<Base>> {
        let losing = self.losing.values().map(|losing| losing.base.clone());
        losing.filter(|base| base.kind != Kind::Directory).collect()
    }

    /// An object that dies must be as the transaction saw it, so that nobody's
    /// write is lost unseen.
    pub(super) fn check_dying(&mut self, base: &Arc<Base>) {
        // If the object is missing or in a conflict, the check of its entry has
        // reported that.
        let Some(Losing {
            path,
            present: Some(present),
            ..
        }) = self.losing.get(&base.serial)
        else {
            return;
        };
        let (path, stamp) = (path.clone(), Stamp::of(present));
        if base.kind == Kind::Directory {
            let (rule, what) = (Rule::DyingDirectoryChanged, ConflictKind::Attributes);
            if let Some(by) = self.since(rule, base, |changed| changed.attributes) {
                self.conflict(rule, &path, what, Some(by));
            }
            return;
        }
        let (rule, what) = (Rule::DyingFileChanged, ConflictKind::Contents);
        if let Some(by) = self.since(rule, base, |changed| changed.anything()) {
            self.conflict(rule, &path, what, Some(by));
        } else if let Some(suspect) = self.suspect(base, stamp, None) {
            self.conflict_with(suspect, Rule::DyingFileChangedOutside, &path);
        }
    }
}

/// How many names each object of the base gets, by serial.
fn names_gained(set: &WriteSet) -> HashMap<u64, u64> {
    let mut replaced: HashMap<usize, u64> = HashMap::new();
    for object in &set.objects {
        let contents = object.contents.as_ref();
        if let Some(index) = contents.and_then(|contents| contents.replacement) {
            replaced.insert(index, object.base.serial);
        }
    }
    let mut gained = HashMap::new();
    for entry in &set.entries {
        let serial = match &entry.after {
            Some(Object::Base(base)) => Some(base.serial),
            Some(Object::Created(index)) => replaced.get(index).copied(),
            None => None,
        };
        if let Some(serial) = serial {
            *gained.entry(serial).or_insert(0) += 1;
        }
    }
    gained
}
