//! What a transaction or a commit has changed, path by path.

use crate::TreePath;
use serde::{Deserialize, Serialize};

/// What has happened to the object at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Change {
    /// It is new.
    Added,
    /// Its contents or attributes have changed.
    Modified,
    /// It is gone.
    Deleted,
    /// It was at another path before.
    Renamed,
    /// An object of another kind has taken its place.
    TypeChanged,
}

impl Change {
    /// The letter by which commands name it, as git does. The store's log has it, too.
    pub fn letter(self) -> char {
        match self {
            Change::Added => 'A',
            Change::Modified => 'M',
            Change::Deleted => 'D',
            Change::Renamed => 'R',
            Change::TypeChanged => 'T',
        }
    }
}

/// One line of a list of changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeLine<P = Vec<u8>> {
    /// What has happened.
    pub change: Change,
    /// Relative to the store's root, without a leading slash.
    pub path: P,
    /// The old path of a renamed object.
    pub from: Option<P>,
}

impl ChangeLine<TreePath> {
    /// With paths of its own.
    pub fn written_out(self) -> ChangeLine {
        ChangeLine {
            change: self.change,
            path: self.path.to_bytes(),
            from: self.from.map(|from| from.to_bytes()),
        }
    }
}
