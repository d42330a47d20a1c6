//! Finds the differences between a transaction's view and its snapshot, or between two views of the
//! past that have the same snapshot.
//!
//! [`Affected`] finds the paths that may differ, and [`change_between`] compares one of them. Both
//! sides are read by the caller, who has them open in its own way.

mod affected;
mod wanted;

pub use affected::{Affected, Listed, Seen, ViewAndSnapshot, has_below, old_path};
pub use wanted::PathFilter;

use atomdir_types::{Change, Kind, Timestamp};

/// Longer files are not compared byte by byte: they count as the same if length and time are.
pub const CONTENTS_LENGTH_MAX: u64 = 256 << 20;

/// What is compared of an object besides its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// The numeric id of the owner.
    pub user: u32,
    /// The numeric id of the owning group.
    pub group: u32,
    /// The device number of a device node.
    pub device_number: u64,
    /// The length of a file.
    pub length: u64,
    /// When the contents last changed.
    pub modified: Timestamp,
    /// Extended attributes with their names, sorted.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What has become of a path. `has_same_contents` compares two files, or the targets of two symbolic
/// links, whose attributes are the same.
pub fn change_between<E>(
    old: Option<&Attributes>,
    new: Option<&Attributes>,
    has_same_contents: impl FnOnce() -> Result<bool, E>,
) -> Result<Option<Change>, E> {
    let (old, new) = match (old, new) {
        (None, None) => return Ok(None),
        (None, Some(_)) => return Ok(Some(Change::Added)),
        (Some(_), None) => return Ok(Some(Change::Deleted)),
        (Some(old), Some(new)) => (old, new),
    };
    if old.kind != new.kind {
        return Ok(Some(Change::TypeChanged));
    }
    let is_same = has_same_attributes(old, new)
        && match old.kind {
            Kind::File | Kind::Symlink => has_same_contents()?,
            _ => true,
        };
    Ok((!is_same).then_some(Change::Modified))
}

fn has_same_attributes(old: &Attributes, new: &Attributes) -> bool {
    let owned = |one: &Attributes| (one.mode, one.user, one.group, one.device_number);
    // The length and times of a directory change with its entries.
    let stamp = |one: &Attributes| (one.kind == Kind::File).then_some((one.length, one.modified));
    owned(old) == owned(new) && stamp(old) == stamp(new) && old.xattrs == new.xattrs
}
