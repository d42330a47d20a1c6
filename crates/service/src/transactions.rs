//! The open transactions, as the service knows them.

use crate::permissions::{Peer, no_such_transaction};
use atomdir_disk::LinuxDisk;
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) type Transaction = atomdir_engine::Transaction<LinuxDisk>;

const TRANSACTIONS_MAX: usize = 65_536;
/// Of one ordinary user.
const USER_TRANSACTIONS_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Transactions {
    open: Mutex<BTreeMap<TransactionId, OpenTransaction>>,
}

#[derive(Clone)]
pub(crate) struct OpenTransaction {
    pub(crate) transaction: Arc<Transaction>,
    /// Else it ends with the connection it was begun on.
    pub(crate) detached: bool,
}

impl OpenTransaction {
    pub(crate) fn id(&self) -> TransactionId {
        TransactionId(self.transaction.id().0)
    }
}

impl Transactions {
    pub(crate) fn check_room(&self, user: u32) -> Result<(), Failure> {
        let open = self.lock();
        let own = open
            .values()
            .filter(|one| one.transaction.owner() == user)
            .count();
        if open.len() < TRANSACTIONS_MAX && (user == 0 || own < USER_TRANSACTIONS_MAX) {
            return Ok(());
        }
        let message = format!(
            "{own} transactions of user {user} and {} in all are open; there may be no more",
            open.len()
        );
        Err(Failure::new(FailureKind::TooMany, message)
            .with_hint("commit or abort some: `atomdir list` shows them"))
    }

    pub(crate) fn add(&self, transaction: Arc<Transaction>, detached: bool) {
        let id = TransactionId(transaction.id().0);
        let one = OpenTransaction {
            transaction,
            detached,
        };
        self.lock().insert(id, one);
    }

    /// The transaction, if it is open and the peer may use it.
    pub(crate) fn find(&self, id: TransactionId, peer: &Peer) -> Result<OpenTransaction, Failure> {
        let open = self.lock();
        match open.get(&id) {
            Some(one) if peer.may_use(one.transaction.owner()) => Ok(one.clone()),
            _ => Err(no_such_transaction(id)),
        }
    }

    /// Those the peer may use.
    pub(crate) fn visible(&self, peer: &Peer) -> Vec<OpenTransaction> {
        let open = self.lock();
        let mine = open
            .values()
            .filter(|one| peer.may_use(one.transaction.owner()));
        mine.cloned().collect()
    }

    pub(crate) fn keep(&self, id: TransactionId) {
        if let Some(one) = self.lock().get_mut(&id) {
            one.detached = true;
        }
    }

    /// `None`: it has ended already.
    pub(crate) fn remove(&self, id: TransactionId) -> Option<OpenTransaction> {
        self.lock().remove(&id)
    }

    /// Those begun on a connection that has closed, and not kept.
    pub(crate) fn remove_attached(&self, ids: &[TransactionId]) -> Vec<OpenTransaction> {
        let mut open = self.lock();
        let mut removed = Vec::new();
        for id in ids {
            if open.get(id).is_some_and(|one| !one.detached) {
                removed.extend(open.remove(id));
            }
        }
        removed
    }

    pub(crate) fn remove_all(&self) -> Vec<OpenTransaction> {
        std::mem::take(&mut *self.lock()).into_values().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TransactionId, OpenTransaction>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
