use serde::{Deserialize, Serialize};

/// A state of the store that a transaction's view can be compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The transaction's snapshot.
    Snapshot,
    /// The newest state, with later commits of others and changes of outside writers.
    Newest,
}

/// The paths at which an undo takes one side, relative to the store's root. A path stands for
/// everything at or below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SidePaths {
    /// These.
    These(Vec<Vec<u8>>),
    /// All that are not named otherwise.
    Others,
}

impl Default for SidePaths {
    fn default() -> SidePaths {
        SidePaths::These(Vec::new())
    }
}

impl SidePaths {
    /// Whether no path is meant.
    pub fn is_none(&self) -> bool {
        matches!(self, SidePaths::These(paths) if paths.is_empty())
    }

    /// How closely a path is named: the length of the longest of these at or above it.
    pub fn closeness(&self, path: &[u8]) -> Option<usize> {
        let SidePaths::These(paths) = self else {
            return None;
        };
        let above = |asked: &&Vec<u8>| {
            let rest = path.strip_prefix(&asked[..]);
            rest.is_some_and(|rest| asked.is_empty() || rest.is_empty() || rest.starts_with(b"/"))
        };
        paths.iter().filter(above).map(Vec::len).max()
    }
}
