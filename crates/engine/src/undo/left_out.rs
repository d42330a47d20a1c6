//! Which changes of the undone commits are left out, for the sake of paths at which a later change
//! stays or that the user skips.
//!
//! What belongs to one file is left out together. Besides, a change is left out if it cannot be taken
//! back without one that is left out: a directory stays if something stays in it, and then all that the
//! same commit has put into it; and a name in a removed directory does not come back without the
//! directory.

use std::collections::HashSet;

use atomdir_disk::Identity;
use atomdir_format::record::Locator;
use atomdir_types::path::is_at_or_below;

use crate::database;
use crate::undo::selection::{Selection, undone};
use crate::undo::since::{Since, Step};

/// How the changes at a path are found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only at the path.
    Exact,
    /// At the path and below it.
    Below,
}

impl Selection {
    /// Adds the changes at a path; true if there are any.
    pub fn add_at(&mut self, since: &Since, path: &[u8], reach: Reach) -> bool {
        self.add(since, |found| match reach {
            Reach::Exact => found == path,
            Reach::Below => is_at_or_below(found, path),
        })
    }

    /// Adds the changes in the way of which a conflict was found: those at its path, of its
    /// database, below it, or at the nearest path above it. False if there are none.
    pub fn add_around(&mut self, since: &Since, path: &[u8]) -> bool {
        if path == b"." {
            return self.add_at(since, b"", Reach::Exact);
        }
        if self.add_at(since, path, Reach::Exact) {
            return true;
        }
        for member in database::family(path) {
            if self.add_at(since, &member, Reach::Exact) {
                return true;
            }
        }
        self.add_at(since, path, Reach::Below) || self.add_above(since, path)
    }

    /// Adds the changes at the nearest path above this one that has any.
    pub fn add_above(&mut self, since: &Since, path: &[u8]) -> bool {
        let mut path = path;
        while let Some(at) = path.iter().rposition(|byte| *byte == b'/') {
            path = &path[..at];
            if self.add_at(since, path, Reach::Exact) {
                return true;
            }
        }
        false
    }

    /// Adds all that cannot be taken back without what is selected.
    pub fn complete_for_leaving(&mut self, since: &Since) {
        let mut count = 0;
        while self.count() > count {
            count = self.count();
            self.add_belonging(since);
            self.add_dependent(since);
        }
    }

    fn add_dependent(&mut self, since: &Since) {
        let mut stay_removed: HashSet<Identity> = HashSet::new();
        let mut hold: HashSet<Identity> = HashSet::new();
        for (number, step) in undone(since) {
            for (place, entry) in step.entries().iter().enumerate() {
                if self.has_entry(number, place) {
                    stay_removed.extend(entry.before.filter(|_| entry.buries));
                    hold.extend(step.above(entry.directory));
                }
            }
            for (place, update) in step.updates().iter().enumerate() {
                if self.has_update(number, place) {
                    hold.extend(above_object(step, update.object));
                }
            }
        }
        for (number, step) in undone(since) {
            let mut stay: HashSet<Identity> = HashSet::new();
            for (place, entry) in step.entries().iter().enumerate() {
                let made = entry.after.map(|index| &step.objects()[index as usize]);
                let made = made.filter(|made| !matches!(made.locator, Locator::Entry { .. }));
                if made.is_some_and(|made| hold.contains(&made.identity)) {
                    self.insert_entry(number, place);
                }
                let made = made.filter(|_| self.has_entry(number, place));
                stay.extend(made.map(|made| made.identity));
            }
            let stays = |one: Identity| stay_removed.contains(&one) || stay.contains(&one);
            for (place, entry) in step.entries().iter().enumerate() {
                if step.above(entry.directory).any(stays) {
                    self.insert_entry(number, place);
                }
            }
            for (place, update) in step.updates().iter().enumerate() {
                if above_object(step, update.object).any(stays) {
                    self.insert_update(number, place);
                }
            }
        }
    }

    /// The first step of the selected changes, and whether all of them are at this path.
    pub fn first_of(&self, since: &Since, path: &[u8]) -> Option<(usize, bool)> {
        let mut first = None;
        let mut is_alone = true;
        for (number, step) in undone(since) {
            let entries = step.entries().iter().enumerate();
            let entries = entries.filter(|(place, _)| self.has_entry(number, *place));
            let entries = entries.map(|(_, entry)| step.path(entry.directory, &entry.name));
            let updates = step.updates().iter().enumerate();
            let updates = updates.filter(|(place, _)| self.has_update(number, *place));
            let updates = updates.map(|(_, update)| step.path_of_object(update.object));
            for found in entries.chain(updates) {
                first.get_or_insert(number);
                is_alone &= found == *path;
            }
        }
        first.map(|first| (first, is_alone))
    }
}

/// The directories above an object that a record mentions by its name.
fn above_object(step: &Step, object: u32) -> impl Iterator<Item = Identity> + '_ {
    let directory = match &step.objects()[object as usize].locator {
        Locator::Entry { directory, .. } => Some(*directory),
        Locator::Root | Locator::Staged { .. } | Locator::Limbo => None,
    };
    directory
        .into_iter()
        .flat_map(|directory| step.above(directory))
}
