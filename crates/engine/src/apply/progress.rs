//! What an apply has done, so that a later attempt goes on and repeats nothing.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Identity, Kind, Name};

use super::{Parent, Place};

#[derive(Default)]
pub(crate) struct Progress {
    pub(super) has_begun: bool,
    /// Names that are as they shall be.
    pub(super) entries: HashSet<(Identity, Name)>,
    /// Updates that are done, by their number.
    pub(super) updates: HashSet<usize>,
    /// Places found out while applying, besides those that the record names.
    pub(super) extra_spots: HashMap<Identity, Vec<Place>>,
    /// An object that an exchange has just put there, to be moved on to limbo.
    pub(super) displaced: Option<(Identity, Kind, Place)>,
    /// Files in the place of others that came into theirs.
    pub(super) exchanged: Vec<(Identity, Place)>,
    /// Names in limbo of files that may have other names in the base.
    pub linked_in_limbo: Vec<Name>,
}

impl Progress {
    /// Where it has put an object besides its homes: in a directory, or in limbo.
    pub fn spots(&self, object: Identity) -> impl Iterator<Item = (Option<Identity>, &Name)> {
        let spots = self.extra_spots.get(&object).into_iter().flatten();
        spots.filter_map(|place| match place.parent {
            Parent::Directory(directory) => Some((Some(directory), &place.name)),
            Parent::Limbo => Some((None, &place.name)),
            Parent::Stage(_) => None,
        })
    }
}
