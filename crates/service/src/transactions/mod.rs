//! The service's open transactions, and which connections hold them.
//!
//! A connection holds the transactions that it has begun or attached to. A
//! transaction ends with its last holder, unless it is detached, and with its
//! outer transaction.
//!
//! A sealed transaction has one controller, the connection that began it. No other
//! connection enters, changes or commits it until the controller keeps it open.

pub(crate) mod aside;
pub(crate) mod committers;
pub(crate) mod expiry;
pub(crate) mod in_doubt;
pub(crate) mod leases;
pub(crate) mod notices;
mod open;
pub(crate) mod refusals;
pub(crate) mod secret;
pub(crate) mod survival;

use crate::clients::connections::{ConnectionId, Connections};
use crate::clients::limits;
use crate::clients::waiters::Waiters;
use crate::rights::permissions::{Peer, Reach, no_such_transaction};
use crate::transactions::secret::Secret;
use atomdir::client::describe_user;
use atomdir_disk::sync;
use atomdir_protocol::{Failure, FailureKind, TransactionId};
use std::collections::BTreeMap;
use std::sync::Mutex;

pub(crate) use open::{OpenTransaction, Transaction};

#[derive(Default)]
pub(crate) struct Transactions {
    open: Mutex<BTreeMap<TransactionId, OpenTransaction>>,
    pub(crate) waiters: Waiters,
}

impl Transactions {
    pub(crate) fn check_room(&self, user: u32) -> Result<(), Failure> {
        let open = sync::lock(&self.open);
        let own = open
            .values()
            .filter(|one| one.transaction.owner() == user)
            .count();
        let limits = limits::limits();
        let is_full = open.len() as u64 >= limits.transactions_max;
        let has_many = limits::bind(user) && own as u64 >= limits.user_transactions_max;
        if !is_full && !has_many {
            return Ok(());
        }
        let message = format!(
            "{} has {own} open transactions, and all users together {}; no more may be opened",
            describe_user(user),
            open.len()
        );
        Err(Failure::new(FailureKind::TooMany, message)
            .with_hint("commit or abort some: `atomdir list` shows them"))
    }

    /// Refuses a transaction whose outer one has ended, which has ended the new one as
    /// well.
    #[must_use]
    pub(crate) fn add(&self, one: &OpenTransaction) -> bool {
        let mut open = sync::lock(&self.open);
        let is_open = one.outer().is_none_or(|outer| open.contains_key(&outer));
        if is_open {
            open.insert(one.id(), one.clone());
        }
        is_open
    }

    /// Called when others may no longer use the transaction, or after its end.
    pub(crate) fn wake_waiters(&self, one: &OpenTransaction) {
        self.waiters.wake(one.id());
        if let Some(outer) = one.outer() {
            self.waiters.wake(outer);
        }
    }

    /// Whether anybody but this connection works in the transaction. One that is not
    /// listed is just being begun, or has just ended.
    pub(crate) fn is_worked_in(&self, id: TransactionId, but: ConnectionId) -> bool {
        let open = sync::lock(&self.open);
        open.get(&id)
            .is_none_or(|one| one.holders.keys().any(|holder| *holder != but))
    }

    /// The transaction, if it is open and the peer may use it.
    pub(crate) fn find(&self, id: TransactionId, peer: &Peer) -> Result<OpenTransaction, Failure> {
        let open = sync::lock(&self.open);
        match open.get(&id) {
            Some(one) if may_act_on(&open, one, peer) => Ok(one.clone()),
            _ => Err(no_such_transaction(id)),
        }
    }

    /// Like [`find`](Self::find), for requests that only the controller of a
    /// sealed transaction may make.
    pub(crate) fn control(
        &self,
        id: TransactionId,
        peer: &Peer,
        connection: ConnectionId,
    ) -> Result<OpenTransaction, Failure> {
        let one = self.find(id, peer)?;
        match one.controller {
            Some(controller) if controller != connection => Err(sealed(id)),
            _ => Ok(one),
        }
    }

    /// Like [`find`](Self::find), for inspecting or ending the transaction. The
    /// store's owner may do that, too.
    pub(crate) fn find_to_end(
        &self,
        id: TransactionId,
        peer: &Peer,
    ) -> Result<OpenTransaction, Failure> {
        if peer.may_administer() {
            let open = sync::lock(&self.open);
            return open
                .get(&id)
                .cloned()
                .ok_or_else(|| no_such_transaction(id));
        }
        self.find(id, peer)
    }

    /// The transactions that the peer may use; for the store's owner, all of them.
    pub(crate) fn visible(&self, peer: &Peer) -> Vec<OpenTransaction> {
        let open = sync::lock(&self.open);
        let mine = open
            .values()
            .filter(|one| peer.may_administer() || may_act_on(&open, one, peer));
        mine.cloned().collect()
    }

    /// Returns `None` if the transaction has ended or is sealed.
    pub(crate) fn secret(&self, id: TransactionId) -> Option<Secret> {
        let open = sync::lock(&self.open);
        let one = open.get(&id)?;
        one.controller.is_none().then(|| one.secret.clone())
    }

    pub(crate) fn keep(&self, id: TransactionId, holder: ConnectionId) {
        if let Some(one) = sync::lock(&self.open).get_mut(&id) {
            one.detached = true;
            one.controller = None;
            one.kept_after = None;
            one.holders.remove(&holder);
            self.wake_waiters(one);
        }
    }

    /// Notes that the transaction is to be kept when the connection closes.
    pub(crate) fn keep_on_close(&self, id: TransactionId, holder: ConnectionId) {
        if let Some(one) = sync::lock(&self.open).get_mut(&id) {
            one.kept_after = Some(holder);
        }
    }

    /// The transactions that are to be kept now that the connection closes.
    pub(crate) fn kept_after(&self, holder: ConnectionId) -> Vec<OpenTransaction> {
        let open = sync::lock(&self.open);
        let kept = open.values().filter(|one| one.kept_after == Some(holder));
        kept.cloned().collect()
    }

    pub(crate) fn holds_any(&self, holder: ConnectionId) -> bool {
        let open = sync::lock(&self.open);
        open.values().any(|one| one.holders.contains_key(&holder))
    }

    /// Holds a transaction with a native view, if a holder is given. Returns the connection of the
    /// process that mounted the view; `None`: the view is exact.
    pub(crate) fn join_native(
        &self,
        id: TransactionId,
        holder: Option<(ConnectionId, u32)>,
    ) -> Result<Option<ConnectionId>, Failure> {
        let mut open = sync::lock(&self.open);
        let one = open.get_mut(&id).ok_or_else(|| no_such_transaction(id))?;
        if !one.transaction.is_lower() {
            return Ok(None);
        }
        let is_own = |mounter| holder.is_some_and(|(connection, _)| connection == mounter);
        match one.mounter {
            Some(mounter) if !one.is_closed && !is_own(mounter) => {
                one.holders.extend(holder);
                Ok(Some(mounter))
            }
            _ => Err(refusals::closed(id)),
        }
    }

    /// Closes a native view if nobody but the mounter holds its transaction, or if `force` is set.
    /// Returns the others who are still there.
    pub(crate) fn close_native(
        &self,
        id: TransactionId,
        mounter: ConnectionId,
        force: bool,
        connections: &Connections,
    ) -> BTreeMap<ConnectionId, u32> {
        let mut open = sync::lock(&self.open);
        let Some(one) = open.get_mut(&id) else {
            return BTreeMap::new();
        };
        let mut others = one.holders.clone();
        others.retain(|id, _| *id != mounter && connections.has_peer(*id));
        one.is_closed |= force || others.is_empty();
        others
    }

    /// The transactions that this connection holds in a native view that another connection has
    /// mounted, and the latter.
    pub(crate) fn lent_to(&self, holder: ConnectionId) -> Vec<(TransactionId, ConnectionId)> {
        let open = sync::lock(&self.open);
        let lent = open
            .values()
            .filter(|one| one.transaction.is_lower() && one.holders.contains_key(&holder));
        lent.filter_map(|one| Some((one.id(), one.mounter?)))
            .filter(|(_, mounter)| *mounter != holder)
            .collect()
    }

    /// Removes the transactions with native views that this connection has mounted, and those
    /// nested in them.
    pub(crate) fn remove_mounted_by(&self, mounter: ConnectionId) -> Vec<OpenTransaction> {
        let mut open = sync::lock(&self.open);
        let mounted = open
            .values()
            .filter(|one| one.transaction.is_lower() && one.mounter == Some(mounter));
        let mounted: Vec<TransactionId> = mounted.map(OpenTransaction::id).collect();
        mounted
            .into_iter()
            .flat_map(|id| remove_with_nested(&mut open, id))
            .collect()
    }

    /// Whether a process holds the transaction, or one nested in it.
    pub(crate) fn is_held_by(&self, id: TransactionId, process: u32) -> bool {
        let open = sync::lock(&self.open);
        let is_within = |one: &OpenTransaction| {
            let outer = std::iter::successors(Some(one), |one| open.get(&one.outer()?));
            outer.into_iter().any(|outer| outer.id() == id)
        };
        let mut held = open.values().filter(|one| is_within(one));
        held.any(|one| one.holders.values().any(|holder| *holder == process))
    }

    pub(crate) fn hold(&self, id: TransactionId, holder: ConnectionId, process: u32) {
        if let Some(one) = sync::lock(&self.open).get_mut(&id) {
            one.holders.insert(holder, process);
        }
    }

    /// Returns the transactions that must be aborted because nobody holds them any
    /// more.
    pub(crate) fn release(&self, id: TransactionId, holder: ConnectionId) -> Vec<OpenTransaction> {
        let mut open = sync::lock(&self.open);
        let Some(one) = open.get_mut(&id) else {
            return Vec::new();
        };
        let was_held = one.holders.remove(&holder).is_some();
        self.wake_waiters(one);
        if was_held && one.holders.is_empty() && !one.detached {
            remove_with_nested(&mut open, id)
        } else {
            Vec::new()
        }
    }

    /// Like [`release`](Self::release), for all transactions that a connection
    /// holds.
    pub(crate) fn release_all(&self, holder: ConnectionId) -> Vec<OpenTransaction> {
        let held: Vec<TransactionId> = {
            let open = sync::lock(&self.open);
            let held = open
                .values()
                .filter(|one| one.holders.contains_key(&holder));
            held.map(OpenTransaction::id).collect()
        };
        held.into_iter()
            .flat_map(|id| self.release(id, holder))
            .collect()
    }

    /// Removes the transaction and those nested in it. Returns nothing if it has
    /// ended.
    pub(crate) fn remove(&self, id: TransactionId) -> Vec<OpenTransaction> {
        remove_with_nested(&mut sync::lock(&self.open), id)
    }

    /// Removes it as it was listed then: since, it may have been listed anew.
    pub(crate) fn remove_listing(&self, listed: &OpenTransaction) {
        let mut open = sync::lock(&self.open);
        let now = open.get(&listed.id());
        if now.is_some_and(|now| now.secret == listed.secret) {
            remove_with_nested(&mut open, listed.id());
        }
    }

    pub(crate) fn get(&self, id: TransactionId) -> Option<OpenTransaction> {
        sync::lock(&self.open).get(&id).cloned()
    }

    /// Removes the transactions nested in it.
    pub(crate) fn remove_nested(&self, id: TransactionId) -> Vec<OpenTransaction> {
        let mut open = sync::lock(&self.open);
        let nested = nested_in(&open, id);
        let removed = nested
            .into_iter()
            .flat_map(|nested| remove_with_nested(&mut open, nested));
        removed.collect()
    }

    pub(crate) fn remove_all(&self) -> Vec<OpenTransaction> {
        std::mem::take(&mut *sync::lock(&self.open))
            .into_values()
            .collect()
    }

    /// Those that have voted for a commit of several stores.
    pub(crate) fn in_doubt(&self) -> Vec<OpenTransaction> {
        // The engine is asked without the lock.
        let mut open: Vec<OpenTransaction> = sync::lock(&self.open).values().cloned().collect();
        open.retain(|one| one.transaction.is_in_doubt());
        open
    }

    /// From now on it does not end with its holders, or does again. Returns what was before.
    pub(crate) fn set_detached(&self, id: TransactionId, detached: bool) -> Option<bool> {
        let mut open = sync::lock(&self.open);
        let one = open.get_mut(&id)?;
        Some(std::mem::replace(&mut one.detached, detached))
    }

    pub(crate) fn count(&self) -> usize {
        sync::lock(&self.open).len()
    }

    /// The transactions that stay open by themselves, or that a connected client holds. The others
    /// are about to be aborted.
    pub(crate) fn staying(&self, connections: &Connections) -> Vec<OpenTransaction> {
        let open = sync::lock(&self.open);
        let stays = |one: &&OpenTransaction| {
            let mut holders = one.holders.keys();
            one.detached
                || one.kept_after.is_some()
                || holders.any(|holder| connections.has_peer(*holder))
        };
        open.values().filter(stays).cloned().collect()
    }
}

fn may_act_on(
    open: &BTreeMap<TransactionId, OpenTransaction>,
    one: &OpenTransaction,
    peer: &Peer,
) -> bool {
    peer.may_use(one.transaction.owner())
        && match peer.reach {
            Reach::All => true,
            Reach::Nothing => false,
            Reach::Within(scope) => is_within(open, one.id(), scope),
        }
}

/// Whether the transaction is `scope`, is nested in it, or was begun by a
/// program that ran in it.
fn is_within(
    open: &BTreeMap<TransactionId, OpenTransaction>,
    id: TransactionId,
    scope: TransactionId,
) -> bool {
    let mut at = Some(id);
    while let Some(id) = at {
        if id == scope {
            return true;
        }
        at = open
            .get(&id)
            .and_then(|one| one.outer().or(one.begun_within));
    }
    false
}

fn sealed(id: TransactionId) -> Failure {
    let message = format!("transaction {id} is sealed: only the process that began it may do this");
    Failure::new(FailureKind::NotPermitted, message)
        .with_hint(format!("`atomdir abort {id}` drops its changes"))
}

fn nested_in(
    open: &BTreeMap<TransactionId, OpenTransaction>,
    id: TransactionId,
) -> Vec<TransactionId> {
    let nested = open.values().filter(|one| one.outer() == Some(id));
    nested.map(OpenTransaction::id).collect()
}

/// Each after those that are nested in it.
fn remove_with_nested(
    open: &mut BTreeMap<TransactionId, OpenTransaction>,
    id: TransactionId,
) -> Vec<OpenTransaction> {
    let mut ids = vec![id];
    let mut at = 0;
    while let Some(id) = ids.get(at) {
        ids.extend(nested_in(open, *id));
        at += 1;
    }
    ids.iter().rev().filter_map(|id| open.remove(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_disk::LinuxDisk;
    use atomdir_engine::{BeginOptions, Conflicts, Durability, Isolation, Options, Store};
    use atomdir_testing::Scratch;

    fn store(scratch: &Scratch) -> Store<LinuxDisk> {
        let control = atomdir::init(scratch.path(), None).unwrap().store.control;
        let open = |path| LinuxDisk::open_root(path).unwrap();
        let options = Options {
            handles_max: 64,
            carried_bytes_max: 0,
            history: None,
            ..atomdir::hosting::engine_options(0)
        };
        let disk = LinuxDisk::new();
        let opened = Store::open(disk, open(scratch.path()), open(&control), None, options);
        opened.unwrap().0
    }

    fn begin() -> BeginOptions {
        BeginOptions {
            owner: rustix::process::geteuid().as_raw(),
            isolation: Isolation::Snapshot,
            durability: Durability::Durable,
            conflicts: Conflicts::AtCommit,
            first_try: None,
            label: Vec::new(),
        }
    }

    #[test]
    fn a_nested_transaction_of_an_ended_outer_one_is_not_listed() {
        let scratch = Scratch::new("ended-outer");
        let store = store(&scratch);
        let transactions = Transactions::default();
        let listed = |transaction| OpenTransaction::detached(transaction).unwrap();
        let outer = store.begin(begin()).unwrap();
        assert!(transactions.add(&listed(&outer)));
        let nested = store.begin_nested(&outer, begin()).unwrap();
        for one in transactions.remove(outer.id()) {
            store.abort(&one.transaction);
        }
        assert!(!transactions.add(&listed(&nested)));
        assert_eq!(transactions.count(), 0);
    }

    #[test]
    fn removing_an_old_listing_keeps_a_newer_one() {
        let scratch = Scratch::new("listed-anew");
        let store = store(&scratch);
        let transactions = Transactions::default();
        let transaction = store.begin(begin()).unwrap();
        let [before, now] = [(); 2].map(|()| OpenTransaction::detached(&transaction).unwrap());
        for one in [&before, &now] {
            assert!(transactions.add(one));
        }
        transactions.remove_listing(&before);
        assert_eq!(transactions.count(), 1);
        transactions.remove_listing(&now);
        assert_eq!(transactions.count(), 0);
    }
}
