//! Which changes of the undone commits are taken back, if only some paths are asked for.
//!
//! Changes that belong together go together: all names of an object and its own changes, also if a
//! commit has given the file another inode, the removed directory that a name was in, and the files
//! of a database.
//!
//! A path is any name of an object. The records know the names that the commits used. Where they
//! have none at or below a path, the object that has this name now is looked up.
//!
//! A selection may also leave something out: paths that the user skips, or at which a later change
//! stays. Whatever needs that is left out with it, and counts as another commit's change.

use std::collections::HashSet;

use atomdir_disk::Identity;
use atomdir_types::path::is_at_or_below;

use crate::database;
use crate::error::UndoError;
use crate::undo::files::Files;
use crate::undo::since::{Since, Step};

/// Changes are named by their step, and by their place in its record.
pub(super) struct Selection {
    entries: HashSet<(usize, usize)>,
    updates: HashSet<(usize, usize)>,
    is_everything: bool,
    /// Changes that are not selected, though they belong to `everything` or to the paths.
    left_out: Option<Box<Selection>>,
}

impl Selection {
    pub fn everything() -> Selection {
        Selection {
            entries: HashSet::new(),
            updates: HashSet::new(),
            is_everything: true,
            left_out: None,
        }
    }

    pub fn nothing() -> Selection {
        Selection {
            is_everything: false,
            ..Selection::everything()
        }
    }

    pub fn without(self, left_out: Selection) -> Selection {
        Selection {
            left_out: Some(Box::new(left_out)),
            ..self
        }
    }

    /// Whether it has changes, and all of them are in the other one.
    pub fn is_within(&self, other: &Selection) -> bool {
        self.count() > 0
            && self.entries.is_subset(&other.entries)
            && self.updates.is_subset(&other.updates)
    }

    pub fn add_all(&mut self, other: Selection) {
        self.entries.extend(other.entries);
        self.updates.extend(other.updates);
    }

    pub fn count(&self) -> usize {
        self.entries.len() + self.updates.len()
    }

    /// `object_at` looks up the object that has this name now.
    pub fn of_paths(
        since: &Since,
        paths: &[Vec<u8>],
        mut object_at: impl FnMut(&[u8]) -> Result<Option<Identity>, UndoError>,
    ) -> Result<Selection, UndoError> {
        let mut selection = Selection::nothing();
        for path in paths {
            let is_found = selection.add(since, |found| is_at_or_below(found, path))
                || match object_at(path)? {
                    Some(object) => selection.add_file(since, object),
                    None => false,
                };
            if !is_found {
                let path = String::from_utf8_lossy(path).into_owned();
                return Err(UndoError::Untouched { path });
            }
        }
        while selection.complete(since) {}
        Ok(selection)
    }

    pub fn has_entry(&self, step: usize, entry: usize) -> bool {
        (self.is_everything || self.entries.contains(&(step, entry)))
            && !self.leaves_out(|left_out| left_out.has_entry(step, entry))
    }

    pub fn has_update(&self, step: usize, update: usize) -> bool {
        (self.is_everything || self.updates.contains(&(step, update)))
            && !self.leaves_out(|left_out| left_out.has_update(step, update))
    }

    fn leaves_out(&self, has: impl FnOnce(&Selection) -> bool) -> bool {
        self.left_out.as_deref().is_some_and(has)
    }

    pub(super) fn insert_entry(&mut self, step: usize, entry: usize) {
        self.entries.insert((step, entry));
    }

    pub(super) fn insert_update(&mut self, step: usize, update: usize) {
        self.updates.insert((step, update));
    }

    /// Adds the changes of an object, whichever inode it had; true if there are any.
    pub(super) fn add_file(&mut self, since: &Since, object: Identity) -> bool {
        let files = Files::new(since.steps.iter().flat_map(Step::successions));
        let inodes = files.same(&object).iter().copied();
        self.add_objects(since, &inodes.collect())
    }

    /// Adds what changed at the paths; true if there is anything.
    pub(super) fn add(&mut self, since: &Since, is_asked_for: impl Fn(&[u8]) -> bool) -> bool {
        let mut found = false;
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                if is_asked_for(&step.path(entry.directory, &entry.name).to_bytes()) {
                    self.entries.insert((number, place));
                    found = true;
                }
            }
            for (place, update) in step.updates().iter().enumerate() {
                if is_asked_for(&step.path_of_object(update.object).to_bytes()) {
                    self.updates.insert((number, place));
                    found = true;
                }
            }
        }
        found
    }

    /// Adds the changes of these objects and of their names; true if there are any.
    fn add_objects(&mut self, since: &Since, objects: &HashSet<Identity>) -> bool {
        let mut found = false;
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                let mut its = entry.before.into_iter().chain(step.after(entry));
                if its.any(|object| objects.contains(&object)) {
                    self.entries.insert((number, place));
                    found = true;
                }
            }
            for (place, update) in step.updates().iter().enumerate() {
                if objects.contains(&step.object(update.object)) {
                    self.updates.insert((number, place));
                    found = true;
                }
            }
        }
        found
    }

    /// Adds what belongs to the selected changes; true if there was anything to add.
    fn complete(&mut self, since: &Since) -> bool {
        let before = self.count();
        let above = self.add_belonging(since);
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                if entry.buries && entry.before.is_some_and(|before| above.contains(&before)) {
                    self.entries.insert((number, place));
                }
            }
        }
        self.count() > before
    }

    /// Adds the other changes of the same files, and of the same databases. Returns the directories
    /// above changed entries.
    pub(super) fn add_belonging(&mut self, since: &Since) -> HashSet<Identity> {
        let mut objects: HashSet<Identity> = HashSet::new();
        let mut above: HashSet<Identity> = HashSet::new();
        let mut paths: HashSet<Vec<u8>> = HashSet::new();
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                if self.entries.contains(&(number, place)) {
                    objects.extend(entry.before.into_iter().chain(step.after(entry)));
                    above.extend(step.above(entry.directory));
                    let path = step.path(entry.directory, &entry.name).to_bytes();
                    paths.extend(database::family(&path));
                }
            }
            for (place, update) in step.updates().iter().enumerate() {
                if self.updates.contains(&(number, place)) {
                    objects.insert(step.object(update.object));
                    let path = step.path_of_object(update.object).to_bytes();
                    paths.extend(database::family(&path));
                }
            }
        }
        for (_, step) in undone(since) {
            for (before, after) in step.successions() {
                if objects.contains(&before) || objects.contains(&after) {
                    objects.extend([before, after]);
                }
            }
        }
        self.add_objects(since, &objects);
        self.add(since, |path| paths.contains(path));
        above
    }
}

pub(super) fn undone(since: &Since) -> impl Iterator<Item = (usize, &Step)> {
    let steps = since.steps.iter().enumerate();
    steps.filter(|(_, step)| step.is_undone)
}
