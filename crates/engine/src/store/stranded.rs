//! Transactions that have survived their service and cannot be opened.

use atomdir_disk::{Disk, Timestamp};

use crate::ids::{Sequence, TransactionId};
use crate::lock;
use crate::store::Store;
use crate::transaction::Transaction;

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

    /// Takes a transaction that has survived from the open ones, because the caller cannot serve it.
    /// Its changes stay, and whoever opens the store next can try again.
    pub fn strand(&self, transaction: &Transaction<D>, reason: String) {
        let Some(view) = self.take_view(transaction) else {
            return;
        };
        let stranded = Stranded {
            id: transaction.id(),
            owner: Some(transaction.owner()),
            label: transaction.label(),
            began: transaction.began(),
            reason,
            needs: Some(transaction.at()),
        };
        let id = stranded.id;
        drop(view);
        self.let_go(id);
        // This comes first, so that the store never forgets the commits that it needs.
        lock(&self.0.stranded).push(stranded);
        self.drop_snapshot(id);
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
