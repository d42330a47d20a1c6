//! Distinguishes objects that were in the tree before the undone commits from objects that one of
//! them brought there.
//!
//! Undone commits may have made a directory and removed it again, and another commit may then have
//! brought it back. These undone commits together have changed nothing in it, so it stays as it is.

use std::collections::HashSet;

use atomdir_disk::Identity;
use atomdir_format::record::Locator;

use crate::undo::changes::{Changes, PlaceBefore};
use crate::undo::selection::Selection;
use crate::undo::since::Step;

impl Changes {
    /// Whether an undone commit brought the object into the tree, alone or within a directory, and
    /// it was not there before the first undone commit.
    pub fn is_new(&self, identity: Identity) -> bool {
        self.origin(identity) != PlaceBefore::Tree
    }

    /// Whether an undone commit made the object, alone or within a directory.
    pub fn is_made(&self, identity: Identity) -> bool {
        self.origin(identity) == PlaceBefore::Made
    }

    fn origin(&self, identity: Identity) -> PlaceBefore {
        let known = self.origins.get(&identity).copied();
        known.unwrap_or(PlaceBefore::Tree)
    }

    /// Whether a file or directory was there before, perhaps with another inode.
    fn is_old_file(&self, identity: Identity) -> bool {
        !self.is_new(identity) || self.successors.contains(&identity)
    }

    pub(super) fn add_made(&mut self, step: &Step) {
        let mentioned = step.mentioned();
        let made = mentioned.filter(|(_, locator)| matches!(locator, Locator::Staged { .. }));
        self.made.extend(made.map(|(identity, _)| identity));
    }

    /// Notes where the objects that this step mentions were before, if it is the first to mention
    /// them.
    pub(super) fn add_origins(&mut self, number: usize, step: &Step, selection: &Selection) {
        let entries = step.entries().iter().enumerate();
        let others = entries.filter(|(place, _)| !selection.has_entry(number, *place));
        let others: HashSet<Identity> = others.filter_map(|(_, entry)| step.after(entry)).collect();
        for (identity, locator) in step.mentioned() {
            let is_undone = step.is_undone && !others.contains(&identity);
            let origin = match locator {
                Locator::Entry { directory, .. } => self.origin(step.directory(*directory)),
                Locator::Staged { .. } if is_undone => PlaceBefore::Made,
                Locator::Limbo if is_undone => PlaceBefore::Limbo,
                Locator::Root | Locator::Staged { .. } | Locator::Limbo => PlaceBefore::Tree,
            };
            self.origins.entry(identity).or_insert(origin);
        }
        for entry in step.entries() {
            if let Some(before) = entry.before {
                let origin = self.origin(step.directory(entry.directory));
                self.origins.entry(before).or_insert(origin);
            }
        }
        for (before, after) in step.successions() {
            if self.is_old_file(before) {
                self.successors.insert(after);
            }
        }
    }

    /// Forgets what the undone commits so far changed in new directories and files that they
    /// removed again, and that this step, which is not undone, brings back.
    pub(super) fn forget_passing(&mut self, number: usize, step: &Step, selection: &Selection) {
        let entries = step.entries().iter().enumerate();
        let others =
            entries.filter(|(place, _)| !step.is_undone || !selection.has_entry(number, *place));
        let returning = others.filter_map(|(_, entry)| step.after(entry));
        let passing = returning
            .filter(|identity| self.buried.get(identity) == Some(&None) && self.is_new(*identity));
        let passing: HashSet<Identity> = passing.collect();
        if passing.is_empty() {
            return;
        }
        self.has_passing = true;
        let mut names = std::mem::take(&mut self.names);
        names.retain(|(directory, _), name| {
            // A file that was moved there from elsewhere goes back.
            name.after.is_some_and(|after| self.is_old_file(after))
                || !self.is_new(*directory)
                || !self.is_within(*directory, &passing)
        });
        let named: HashSet<Identity> = names.values().filter_map(|name| name.after).collect();
        self.names = names;
        let mut objects = std::mem::take(&mut self.objects);
        objects.retain(|identity, _| {
            !self.is_new(*identity)
                || named.contains(identity)
                || !self.is_within(*identity, &passing)
        });
        self.objects = objects;
    }

    /// Whether an object is one of these, or below one.
    fn is_within(&self, identity: Identity, directories: &HashSet<Identity>) -> bool {
        self.with_what_is_above(identity)
            .any(|one| directories.contains(&one))
    }

    /// An object and the directories above it, as far as the records say.
    pub(super) fn with_what_is_above(
        &self,
        identity: Identity,
    ) -> impl Iterator<Item = Identity> + '_ {
        let mut seen = HashSet::new();
        let above = move |at: &Identity| {
            let (directory, _) = self.places.get(at)?.last()?;
            seen.insert(*at).then_some(*directory)
        };
        std::iter::successors(Some(identity), above)
    }
}
