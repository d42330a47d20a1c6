//! The open transactions, as the service knows them, and who holds them.
//!
//! Connections hold a transaction that they have begun or attached to. It ends
//! with its last holder, unless it is detached, and with the one it is nested in.

use crate::connections::ConnectionId;
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
    /// Else it ends with its last holder.
    pub(crate) detached: bool,
    /// The connections that hold it, and whose they are.
    pub(crate) holders: BTreeMap<ConnectionId, u32>,
}

impl OpenTransaction {
    pub(crate) fn id(&self) -> TransactionId {
        TransactionId(self.transaction.id().0)
    }

    pub(crate) fn outer(&self) -> Option<TransactionId> {
        let outer = self.transaction.outer()?;
        Some(TransactionId(outer.id().0))
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
            holders: BTreeMap::new(),
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

    pub(crate) fn keep(&self, id: TransactionId, holder: ConnectionId) {
        if let Some(one) = self.lock().get_mut(&id) {
            one.detached = true;
            one.holders.remove(&holder);
        }
    }

    pub(crate) fn hold(&self, id: TransactionId, holder: ConnectionId, process: u32) {
        if let Some(one) = self.lock().get_mut(&id) {
            one.holders.insert(holder, process);
        }
    }

    /// What has to be aborted, as nobody holds it any more.
    pub(crate) fn release(&self, id: TransactionId, holder: ConnectionId) -> Vec<OpenTransaction> {
        let mut open = self.lock();
        let Some(one) = open.get_mut(&id) else {
            return Vec::new();
        };
        let was_held = one.holders.remove(&holder).is_some();
        if was_held && one.holders.is_empty() && !one.detached {
            remove_with_nested(&mut open, id)
        } else {
            Vec::new()
        }
    }

    /// As [`release`](Self::release), of everything that a connection holds.
    pub(crate) fn release_all(&self, holder: ConnectionId) -> Vec<OpenTransaction> {
        let held: Vec<TransactionId> = {
            let open = self.lock();
            let held = open
                .values()
                .filter(|one| one.holders.contains_key(&holder));
            held.map(OpenTransaction::id).collect()
        };
        held.into_iter()
            .flat_map(|id| self.release(id, holder))
            .collect()
    }

    /// With those nested in it; empty: it has ended already.
    pub(crate) fn remove(&self, id: TransactionId) -> Vec<OpenTransaction> {
        remove_with_nested(&mut self.lock(), id)
    }

    /// Those nested in it.
    pub(crate) fn remove_nested(&self, id: TransactionId) -> Vec<OpenTransaction> {
        let mut open = self.lock();
        match nested_in(&open, id) {
            Some(nested) => remove_with_nested(&mut open, nested),
            None => Vec::new(),
        }
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

fn nested_in(
    open: &BTreeMap<TransactionId, OpenTransaction>,
    id: TransactionId,
) -> Option<TransactionId> {
    let mut open = open.values();
    let nested = open.find(|one| one.outer() == Some(id))?;
    Some(nested.id())
}

/// The innermost first.
fn remove_with_nested(
    open: &mut BTreeMap<TransactionId, OpenTransaction>,
    id: TransactionId,
) -> Vec<OpenTransaction> {
    let mut ids = vec![id];
    while let Some(nested) = ids.last().and_then(|last| nested_in(open, *last)) {
        ids.push(nested);
    }
    ids.iter().rev().filter_map(|id| open.remove(id)).collect()
}
