//! Objects that cannot be put in place, and those that are missing.

use atomdir_disk::{Disk, Identity, Name, RenameMode};

use super::desired::Spot;
use super::{Apply, ApplyError, EntryPlace, Outcome, Parent};
use crate::names;

impl<D: Disk> Apply<'_, D> {
    /// The object does not get this name.
    pub(super) fn refuse(&mut self, object: Identity, name: &Name, error: &ApplyError) {
        self.objects_missing += 1;
        self.progress.left.insert(object);
        self.progress.refused.insert(object, name.clone());
        // What an exchange has just put elsewhere stays there.
        self.progress.displaced = None;
        tracing::warn!(path = error.path, "left as it is: {}", error.reason);
    }

    /// Goes on after an error that concerns one object only.
    pub(super) fn pass_over(&mut self, done: Outcome<()>) -> Outcome<()> {
        match done {
            Err(error) if self.leaves(&error) => {
                self.objects_missing += 1;
                tracing::warn!(path = error.path, "left as it is: {}", error.reason);
                Ok(())
            }
            done => done,
        }
    }

    /// Keeps refused objects that have no other name in limbo, until somebody takes them from there,
    /// and old objects that an exchange has put elsewhere and whose new directory is gone.
    pub(super) fn keep_refused(&mut self) -> Outcome<()> {
        let desired = self.desired;
        let left = self.progress.left.iter();
        for object in left.filter(|object| !desired.is_staged(**object)) {
            if let Some((_, name)) = desired.homes(*object).first() {
                let refused = self.progress.refused.entry(*object);
                refused.or_insert_with(|| name.clone());
            }
        }
        // If it fails, a later attempt must find all of them.
        let refused = self.progress.refused.clone();
        for (object, name) in refused {
            let Some(place) = self.find(object)? else {
                continue;
            };
            let is_kept = self.desired.is_buried(object);
            let kept = EntryPlace::in_limbo(names::displaced(object, &name));
            if is_kept || place == kept || matches!(place.parent, Parent::Directory(_)) {
                continue;
            }
            // The history finds it there.
            let limbo = EntryPlace::in_limbo(names::limbo(object));
            if place == limbo && desired.spots(object).contains(&Spot::Limbo) {
                continue;
            }
            if let Err(errno) = self.rename(&place, &kept, RenameMode::NoReplace) {
                let path = self.path_of(&place);
                let failed = self.failure(&path, "it cannot be moved to limbo", Some(errno));
                self.pass_over(Err(failed))?;
                continue;
            }
            self.note_spot(object, kept.clone());
            tracing::warn!(place = ?kept.name, "an object without a name is in limbo now");
        }
        Ok(())
    }

    /// Whether the object got none of its names, so that its old one is all it has.
    pub(super) fn is_left(&mut self, object: Identity) -> Outcome<bool> {
        if self.progress.closed.contains(&object) {
            return Ok(true);
        }
        if !self.progress.left.contains(&object) {
            return Ok(false);
        }
        let desired = self.desired;
        for (directory, name) in desired.homes(object) {
            let home = EntryPlace {
                parent: Parent::Directory(*directory),
                name: name.clone(),
            };
            if self.is_at(object, &home)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decides by the fifth invariant whether a missing object is an error.
    pub(super) fn missing(&mut self, object: Identity, name: &Name, what: &str) -> Outcome<()> {
        if self.desired.may_be_gone(object) {
            return Ok(());
        }
        // An outside writer may remove what is new as soon as it has a name.
        let mut homes = self.desired.homes(object).iter();
        let had_name = homes.any(|home| self.progress.entries.contains(home));
        if self.replays || had_name || !self.desired.is_staged(object) {
            self.objects_missing += 1;
            return Ok(());
        }
        Err(self.failure(name.as_bytes(), &format!("{what} is not to be found"), None))
    }
}
