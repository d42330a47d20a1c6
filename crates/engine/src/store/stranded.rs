//! Transactions that have survived their service and cannot be opened.

use atomdir_disk::{Disk, Timestamp};

use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::store::Store;

/// A transaction that has survived and cannot be opened. Its changes stay in the staging
/// directory until it is aborted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranded {
    pub id: TransactionId,
    /// `None` if its view log cannot be read.
    pub owner: Option<u32>,
    pub label: Vec<u8>,
    pub began: Timestamp,
    pub reason: String,
    /// The commit after which the past is kept for it, if it can perhaps be opened later.
    pub needs: Option<Sequence>,
}

impl<D: Disk> Store<D> {
    /// The transactions that have survived and cannot be opened.
    pub fn stranded(&self) -> Vec<Stranded> {
        lock(&self.0.stranded).clone()
    }

    /// Drops the changes of a stranded transaction; false if there is none of this id.
    pub fn abort_stranded(&self, id: TransactionId) -> bool {
        let mut stranded = lock(&self.0.stranded);
        let Some(place) = stranded.iter().position(|one| one.id == id) else {
            return false;
        };
        stranded.remove(place);
        self.0.core.drop_stage(id);
        true
    }
}
