//! Transactions whose lazy commits were set aside (`commit::aside` of the engine). The service
//! lists them again, makes them survive its own end, and retries their commits.
//!
//! Each has its own thread, since to show a view and to gather the writes in it, the service waits
//! for programs of the user.

use crate::clients::replies::Unanswered;
use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::transactions::leases::Arrived;
use crate::transactions::survival;
use crate::transactions::{OpenTransaction, Transaction};
use atomdir_disk::sync;
use atomdir_engine::SetAside;
use atomdir_protocol::{Answer, Failure, FailureKind, TransactionId};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

/// The transactions that a thread looks after at the moment.
#[derive(Default)]
pub(crate) struct Tended(Mutex<HashSet<TransactionId>>);

impl Tended {
    fn lock(&self) -> MutexGuard<'_, HashSet<TransactionId>> {
        sync::lock(&self.0)
    }
}

/// To be called every now and then.
pub(crate) fn tend(service: &Arc<Service>) {
    let due = service.store.set_aside_due();
    let is_due = |id: TransactionId| due.iter().any(|one| one.id() == id);
    for transaction in transactions(service) {
        let id = transaction.id();
        if !is_due(id) && service.transactions.get(id).is_some() {
            continue;
        }
        if !service.tended.lock().insert(id) {
            continue;
        }
        let for_thread = service.clone();
        let tend = move || {
            tend_one(&for_thread, &transaction);
            for_thread.tended.lock().remove(&id);
        };
        let thread = std::thread::Builder::new().name("set aside".to_owned());
        if let Err(error) = thread.spawn(tend) {
            tracing::warn!(%error, "transaction {id} is looked after later");
            service.tended.lock().remove(&id);
        }
    }
}

fn transactions(service: &Service) -> Vec<Arc<Transaction>> {
    let aside = service.store.set_aside().into_iter();
    let found = aside.map(|one| service.store.transaction(one.transaction));
    found.flatten().collect()
}

fn tend_one(service: &Service, transaction: &Arc<Transaction>) {
    let id = transaction.id();
    let Some(one) = service.transactions.get(id) else {
        if let Err(failure) = adopt(service, transaction) {
            tracing::error!("transaction {id} is set aside without a view: {failure}");
        }
        return;
    };
    if !one.holders.is_empty() {
        return;
    }
    match service.views.write_back(transaction) {
        Ok(Arrived::All) => {}
        Ok(_) => return,
        Err(failure) => return tracing::debug!(%failure, "transaction {id} is tried again later"),
    }
    let before = service.store.find_set_aside(transaction.id());
    if service.store.retry_set_aside(transaction) {
        service.forget(&one);
    } else if before != service.store.find_set_aside(transaction.id()) {
        // The next service shows the newest reason.
        survival::survive(service, &one);
    }
}

/// Lists it among the open transactions. It is detached, and its user is as restricted as before.
fn adopt(service: &Service, transaction: &Arc<Transaction>) -> Result<(), Failure> {
    let one = OpenTransaction::detached(transaction)
        .map_err(|errno| Failure::new(FailureKind::Internal, atomdir_disk::reason(errno)))?;
    // The commit has removed the note. A service that dies from here on leaves one.
    service.notices.opened(transaction);
    service.expiry.resume(transaction);
    // A sealed one was frozen for its commit.
    transaction.thaw();
    survival::survive(service, &one);
    if transaction.survives()
        && let Err(errno) = transaction.flush()
    {
        tracing::warn!(errno = %atomdir_disk::reason(errno), "transaction {} may not survive a power cut", one.id());
    }
    let shown = match service.transactions.add(&one) {
        true => service.views.show(transaction),
        false => Ok(()),
    };
    if !transaction.is_open() {
        // An abort that was under way may have cleaned up before it was listed.
        service.forget(&one);
        return Ok(());
    }
    shown
}

/// Called at the end of the service. Applies the last lazy commits or sets them aside; transactions
/// that are set aside survive.
pub(crate) fn finish_lazy_commits(service: &Service) {
    if let Err(error) = service.store.sync() {
        tracing::debug!(%error, "lazy commits stay in the log");
    }
    for transaction in transactions(service) {
        let id = transaction.id();
        if service.transactions.get(id).is_none()
            && let Err(failure) = adopt(service, &transaction)
        {
            tracing::debug!(%failure, "transaction {id} has no view while the service ends");
        }
    }
}

/// Why the transaction is open again, if its commit was set aside.
pub(crate) fn reason(service: &Service, transaction: &Transaction) -> Option<String> {
    if let Some(one) = service.store.find_set_aside(transaction.id()) {
        return Some(one.to_string());
    }
    let reason = survival::left_aside(transaction)?;
    Some(format!(
        "its commit was set aside before this service started, and is not tried again: {reason}; \
         commit or abort it"
    ))
}

/// Makes lazy commits durable. Fails if one of the peer's is set aside.
pub(crate) fn sync(service: &Service, peer: &Peer) -> Result<Answer, Unanswered> {
    let synced = service.store.sync();
    synced.map_err(|error| crate::rights::convert::store_failure(&error, peer))?;
    let is_own = |one: &SetAside| peer.user == one.owner;
    let aside = service.store.set_aside().into_iter().filter(is_own);
    let aside: Vec<SetAside> = aside.collect();
    let Some(first) = aside.first() else {
        return Ok(Answer::Nothing);
    };
    service.store.hasten_set_aside(peer.user);
    service.maintenance.wake();
    let more = match aside.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    let id = first.transaction;
    let message = format!("not everything is durable: {first}{more}");
    Err(Failure::new(FailureKind::Stalled, message)
        .with_hint(format!(
            "remove the cause, or look at it with `atomdir diff {id}`; `atomdir commit {id}` \
             commits it now, and `atomdir abort {id}` drops it"
        ))
        .into())
}
