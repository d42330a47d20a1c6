//! A part of a base object. A lock covers such a part, and a commit changes such parts.

use std::sync::Arc;

use atomdir_disk::Name;

use crate::base::{Base, above};

/// A part of an object of the base.
#[derive(Clone)]
pub(crate) struct Target {
    pub base: Arc<Base>,
    pub extent: Extent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Page numbers of a file's contents, half-open.
    Pages(u64, u64),
    /// Mode, owner, times, extended attributes. No lock is on these alone.
    Attributes,
    /// The attribute that says who may lock the object (`leave`). Locks that it grants forbid no change
    /// of it: otherwise nobody could take them back.
    Leave,
    /// One entry of a directory, whether or not the name exists.
    Entry(Name),
    /// The object itself: a file's contents or a directory's entries, and the
    /// attributes.
    Object,
    /// The object and everything below it. A commit changes this part of an
    /// object when it moves or removes the object.
    Subtree,
}

impl Target {
    pub fn overlaps(&self, other: &Target) -> bool {
        if self.base.serial == other.base.serial {
            return self.extent.overlaps(&other.extent);
        }
        let covers =
            |one: &Target, two: &Target| one.extent == Extent::Subtree && two.is_below(&one.base);
        covers(self, other) || covers(other, self)
    }

    /// Whether the object is now below a directory of the base.
    pub fn is_below(&self, directory: &Base) -> bool {
        above(&self.base).any(|above| above.serial == directory.serial)
    }
}

impl Extent {
    fn overlaps(&self, other: &Extent) -> bool {
        match (self, other) {
            (Extent::Pages(start, end), Extent::Pages(from, until)) => start < until && from < end,
            (Extent::Entry(name), Extent::Entry(other)) => name == other,
            (Extent::Attributes | Extent::Leave, Extent::Pages(..) | Extent::Entry(_))
            | (Extent::Pages(..) | Extent::Entry(_), Extent::Attributes | Extent::Leave) => false,
            _ => true,
        }
    }
}
