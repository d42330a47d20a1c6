//! The steps that an apply has done. A later attempt continues from there and repeats none of them.

use std::collections::{HashMap, HashSet};

use atomdir_disk::{Identity, Kind, Name};

use super::{EntryPlace, Parent};

#[derive(Clone)]
pub(super) struct Displaced {
    pub object: Identity,
    pub kind: Kind,
    /// Where it is now.
    pub place: EntryPlace,
    /// The name that the commit has taken.
    pub from: EntryPlace,
}

#[derive(Default)]
pub(crate) struct ApplyProgress {
    pub(super) has_begun: bool,
    /// Names that are as they shall be.
    pub(super) entries: HashSet<(Identity, Name)>,
    /// Updates that have taken away the rights that they take away, by their number.
    pub(super) narrowed: HashSet<usize>,
    /// Updates that have written their contents.
    pub(super) written: HashSet<usize>,
    /// Updates that are done.
    pub(super) updates: HashSet<usize>,
    /// Places of objects that apply has found out, besides those that the record
    /// names.
    pub(super) extra_spots: HashMap<Identity, Vec<EntryPlace>>,
    /// An object that an exchange has put where it must not stay.
    pub(super) displaced: Option<Displaced>,
    /// Files that an exchange has put in limbo, and where there.
    pub(super) exchanged: Vec<(Identity, EntryPlace)>,
    /// Directories that other users have closed: see `others`.
    pub(super) closed: HashSet<Identity>,
    /// Objects that belong in a directory that an outside writer has removed.
    pub(super) left: HashSet<Identity>,
    /// Objects that could not be put in place, and the name that each should have got.
    pub(super) refused: HashMap<Identity, Name>,
    /// Names in limbo of files that may have other names in the base.
    pub linked_in_limbo: Vec<Name>,
}

impl ApplyProgress {
    /// For an apply that leaves these directories alone.
    pub fn leaving(closed: HashSet<Identity>) -> ApplyProgress {
        ApplyProgress {
            closed,
            ..ApplyProgress::default()
        }
    }

    /// The directories that an apply which has not begun leaves alone.
    pub fn into_closed(self) -> HashSet<Identity> {
        self.closed
    }

    /// Where apply has put an object besides its homes: in a directory, or
    /// (`None`) in limbo.
    pub fn spots(&self, object: Identity) -> impl Iterator<Item = (Option<Identity>, &Name)> {
        let spots = self.extra_spots.get(&object).into_iter().flatten();
        spots.filter_map(|place| match place.parent {
            Parent::Directory(directory) => Some((Some(directory), &place.name)),
            Parent::Limbo => Some((None, &place.name)),
            Parent::Stage(_) => None,
        })
    }
}
