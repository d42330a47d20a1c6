use serde::{Deserialize, Serialize};

use crate::{EqualFile, Sequence, SidePaths};

/// The commits that a transaction takes back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Undo {
    /// Their sequences.
    pub commits: Vec<Sequence>,
    /// Only what the commits changed at or below these paths, relative to the store's
    /// root. If there are none: everything.
    pub paths: Vec<Vec<u8>>,
    /// These files count as those that the commits left.
    pub equal: Vec<EqualFile>,
    /// What the commits changed at or below these paths stays.
    pub skip: Vec<Vec<u8>>,
    /// Where something was changed again: what was there before the commits replaces it.
    pub mine: SidePaths,
    /// Where something was changed again: it stays, and the rest is undone.
    pub theirs: SidePaths,
}

impl Undo {
    /// Whether a later change at this path is overwritten.
    pub fn overwrites(&self, path: &[u8]) -> bool {
        let (mine, theirs) = (self.mine.closeness(path), self.theirs.closeness(path));
        match (mine, theirs) {
            (None, None) => self.mine == SidePaths::Others,
            (mine, theirs) => mine > theirs,
        }
    }

    /// Whether a later change at this path stays.
    pub fn yields(&self, path: &[u8]) -> bool {
        let is_named = self.theirs.closeness(path).is_some() || self.theirs == SidePaths::Others;
        is_named && !self.overwrites(path)
    }
}
