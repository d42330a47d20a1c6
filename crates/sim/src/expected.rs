//! What a crash may leave of the base.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::hash::Known;
use crate::image::Image;
use crate::survivors::Surviving;
use crate::tree::Tree;

/// What the base holds after a commit, or after an outside writer's changes.
#[derive(Debug, Clone)]
pub struct Expected {
    pub sequence: u64,
    pub tree: Tree,
    pub has_directory_times: bool,
    /// Whether it is known when the objects were changed.
    pub has_times: bool,
    /// The least number of commits in the history.
    pub commits_min: u64,
    /// If the store keeps history: the first commit that can be undone.
    pub undoable_from: Option<u64>,
    /// The sequence belongs to no commit.
    pub is_cancelled: bool,
    /// The transaction that is still open, if any.
    pub surviving: Option<Surviving>,
    pub(crate) digest: Known,
}

impl Expected {
    /// The same for two that a recovery is compared with in the same way. Nothing is changed once
    /// this was asked for.
    pub(crate) fn digest(&self) -> u64 {
        let Expected {
            sequence,
            tree,
            has_directory_times,
            has_times,
            commits_min,
            undoable_from,
            is_cancelled,
            surviving,
            digest,
        } = self;
        digest.or_computed(|| {
            let mut hasher = DefaultHasher::new();
            (sequence, tree, has_directory_times, has_times).hash(&mut hasher);
            (commits_min, undoable_from, is_cancelled).hash(&mut hasher);
            let surviving = surviving.as_ref().filter(|one| !one.is_none());
            surviving.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Describes how the disk's contents differ from the tree, if they do.
    pub fn difference(&self, image: &Image) -> Option<String> {
        let mut found = Tree::of_image(image);
        let mut wanted = self.tree.clone();
        if !self.has_directory_times {
            found.forget_times_of_directories();
            wanted.forget_times_of_directories();
        }
        if !self.has_times {
            (found, wanted) = (found.without_times(), wanted.without_times());
        }
        (found != wanted).then(|| found.difference(&wanted))
    }
}

impl Expected {
    /// Like [`Expected::difference`], for a tree whose entries were changed and changed back.
    pub(crate) fn difference_but_times_of_directories(&self, mut found: Tree) -> Option<String> {
        let mut wanted = self.tree.clone();
        found.forget_times_of_directories();
        wanted.forget_times_of_directories();
        if !self.has_times {
            (found, wanted) = (found.without_times(), wanted.without_times());
        }
        (found != wanted).then(|| found.difference(&wanted))
    }
}
