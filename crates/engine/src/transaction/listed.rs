//! The conflicts of a transaction as they were last listed, for a commit that takes sides.

use atomdir_disk::Disk;

use crate::base::Stamp;
use crate::error::Conflict;
use crate::lock;
use crate::transaction::Transaction;

/// A conflict, and the state of the base when it was listed.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub conflict: Conflict,
    pub seen: PathState,
}

/// The state of a path of a write set in the base. A change of any kind changes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PathState {
    /// The object that the transaction has changed.
    pub object: Option<Stamp>,
    /// The object that the name led to, if the transaction changes it.
    pub entry: Option<Option<Stamp>>,
}

impl PathState {
    /// Whether what a commit would overwrite is as it was when the conflict was listed. The
    /// transaction may have replaced the file since, as editors do. Then only its name counts.
    pub fn is_as_listed(&self, then: &PathState) -> bool {
        let has_replaced = self.object.is_none() && self.entry.is_some();
        self.entry == then.entry && (has_replaced || self.object == then.object)
    }
}

/// Whose side a commit takes in each listed conflict. Numbers count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sides {
    /// The transaction's changes replace what others have changed.
    pub mine: Vec<u64>,
    /// The transaction's changes there are not committed.
    pub theirs: Vec<u64>,
}

impl<D: Disk> Transaction<D> {
    /// The conflicts that were last listed, in the order of their numbers.
    pub fn listed_conflicts(&self) -> Vec<Conflict> {
        let listed = lock(&self.listed);
        listed.iter().map(|one| one.conflict.clone()).collect()
    }
}
