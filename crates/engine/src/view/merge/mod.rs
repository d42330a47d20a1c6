//! How the changes of a transaction that is nested in one with a native view reach the
//! overlay.
//!
//! Nobody may change the upper layer under a mounted overlay, and the service must not
//! wait for a mount that it serves itself. So the process that mounted the overlay makes the
//! changes in it, by ordinary system calls, and finds the contents in the nested view.
//! Here the difference between two states of the nested view, its begin and its end, is
//! put into steps: objects that get another name are parked first, then everything is put
//! where it belongs, and last come attributes and contents.
//!
//! Invariants
//! 1. The steps before a step leave the path that it names as the step needs it:
//!    what is removed or parked has its old path until then, and what is placed has its
//!    new one from then on.
//! 2. A step touches nothing that the nested transaction has not changed, but for the times
//!    of directories.
//! 3. An object of both states stays the same object: it is moved and written in place, never
//!    replaced by a copy.

mod plan;
mod search;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use atomdir_types::MergeStep;

use super::nodes::Nodes;
use super::upper::UpperState;

/// What an overlay showed when a transaction nested in it began.
pub(crate) struct Begun {
    pub nodes: Nodes,
    pub seen: UpperState,
}

/// How far a change reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TouchKind {
    /// A name, and everything below it.
    Tree,
    /// A file.
    Object,
    /// A directory's own attributes.
    Attributes,
}

/// A change, by its path in the outer transaction's tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TouchedPath {
    pub path: Vec<u8>,
    pub kind: TouchKind,
    /// The object of the base, for a file.
    pub serial: Option<u64>,
}

/// The paths at which both sides have changed something.
pub(crate) fn conflicts(mine: &[TouchedPath], theirs: &[TouchedPath]) -> Vec<Vec<u8>> {
    let files: HashSet<u64> = theirs.iter().filter_map(|one| one.serial).collect();
    let by_path = theirs.iter().map(|one| (one.path.as_slice(), one.kind));
    let by_path: BTreeMap<&[u8], TouchKind> = by_path.collect();
    let meets = |touch: &&TouchedPath| {
        let path = touch.path.as_slice();
        let is_covered = || {
            let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            let mut above = slashes.map(|(at, _)| &path[..at]);
            above.any(|above| by_path.get(above) == Some(&TouchKind::Tree))
        };
        let covers = || {
            let below = [path, b"/"].concat();
            let mut found = by_path.range(below.as_slice()..);
            touch.kind == TouchKind::Tree
                && found
                    .next()
                    .is_some_and(|(path, _)| path.starts_with(&below))
        };
        let is_same_file = touch.serial.is_some_and(|serial| files.contains(&serial));
        is_same_file || by_path.contains_key(path) || is_covered() || covers()
    };
    let paths = mine.iter().filter(meets).map(|one| one.path.clone());
    paths.collect::<BTreeSet<_>>().into_iter().collect()
}

#[derive(Default)]
pub(crate) struct Plan {
    pub steps: Vec<MergeStep>,
    pub touched: Vec<TouchedPath>,
}
