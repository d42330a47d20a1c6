//! Which changes of the undone commits are taken back, if only some paths are asked for.
//!
//! Changes that belong together go together: all names of an object and its own changes, also if a
//! commit has given the file another inode, the removed directory that a name was in, and the files
//! of a database.
//!
//! A path is any name of an object. The records know the names that the commits used. Where they
//! have none at or below a path, the object that has this name now is looked up.

use std::collections::HashSet;

use atomdir_disk::Identity;

use crate::database;
use crate::error::UndoError;
use crate::undo::files::Files;
use crate::undo::since::{Since, Step};

/// Changes are named by their step, and by their place in its record.
pub(super) struct Selection {
    entries: HashSet<(usize, usize)>,
    updates: HashSet<(usize, usize)>,
    is_everything: bool,
}

impl Selection {
    pub fn everything() -> Selection {
        Selection {
            entries: HashSet::new(),
            updates: HashSet::new(),
            is_everything: true,
        }
    }

    /// `object_at` looks up the object that has this name now.
    pub fn of_paths(
        since: &Since,
        paths: &[Vec<u8>],
        mut object_at: impl FnMut(&[u8]) -> Result<Option<Identity>, UndoError>,
    ) -> Result<Selection, UndoError> {
        let mut selection = Selection {
            is_everything: false,
            ..Selection::everything()
        };
        for path in paths {
            let is_found = selection.add(since, |found| is_at_or_below(found, path))
                || match object_at(path)? {
                    Some(object) => {
                        let files = Files::new(since.steps.iter().flat_map(Step::successions));
                        let inodes = files.same(&object).iter().copied();
                        selection.add_objects(since, &inodes.collect())
                    }
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
        self.is_everything || self.entries.contains(&(step, entry))
    }

    pub fn has_update(&self, step: usize, update: usize) -> bool {
        self.is_everything || self.updates.contains(&(step, update))
    }

    /// Adds what changed at the paths; true if there is anything.
    fn add(&mut self, since: &Since, is_asked_for: impl Fn(&[u8]) -> bool) -> bool {
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
        let before = self.entries.len() + self.updates.len();
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
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                if entry.buries && entry.before.is_some_and(|before| above.contains(&before)) {
                    self.entries.insert((number, place));
                }
            }
        }
        self.add(since, |path| paths.contains(path));
        self.entries.len() + self.updates.len() > before
    }
}

fn undone(since: &Since) -> impl Iterator<Item = (usize, &Step)> {
    let steps = since.steps.iter().enumerate();
    steps.filter(|(_, step)| step.is_undone)
}

fn is_at_or_below(path: &[u8], asked: &[u8]) -> bool {
    let rest = path.strip_prefix(asked);
    rest.is_some_and(|rest| asked.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
}
