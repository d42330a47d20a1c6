//! The status of a transaction, and of the service.

use crate::clients::limits;
use crate::rights::convert;
use crate::rights::discretion;
use crate::rights::permissions::Peer;
use crate::service::Service;
use crate::transactions::aside;
use crate::transactions::in_doubt;
use crate::transactions::survival;
use crate::transactions::{OpenTransaction, Transaction};
use atomdir_engine::Stranded;
use atomdir_protocol::{
    Answer, Conflict, Conflicts, Durability, Failure, Isolation, ServiceStatus, Survival,
    TransactionId, TransactionStatus, View,
};
use rustix::process::geteuid;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub(crate) fn answer(service: &Service, peer: &Peer, id: TransactionId) -> Result<Answer, Failure> {
    let one = service.transactions.find_to_end(id, peer)?;
    Ok(Answer::Transaction(Box::new(transaction(service, &one))))
}

pub(crate) fn transaction(service: &Service, one: &OpenTransaction) -> TransactionStatus {
    let transaction = &one.transaction;
    let (kept_commits, kept_bytes) = kept(service, transaction.held_past());
    TransactionStatus {
        transaction: one.id(),
        owner: transaction.owner(),
        label: transaction.label(),
        began: transaction.began(),
        isolation: transaction.isolation(),
        durability: transaction.durability(),
        conflicts: transaction.conflicts(),
        locks: service.store.locks(transaction),
        met: met(&one.transaction),
        detached: one.detached,
        view: match transaction.is_lower() {
            true if transaction.is_over_base() => View::Exclusive,
            true => View::Native,
            false => View::Exact,
        },
        view_path: service.views.path(transaction).into_os_string().into_vec(),
        outer: one.outer(),
        nested: transaction.nested_in_it(),
        holders: one.holders.values().copied().collect(),
        savepoints: transaction.savepoints(),
        sealed: one.controller.is_some(),
        past: transaction.past(),
        held_bytes: match transaction.past() {
            Some(_) => service.store.status().held_bytes,
            None => 0,
        },
        kept_commits,
        kept_bytes,
        survival: survival_of(one),
        set_aside: aside::reason(service, transaction),
        in_doubt: in_doubt::status(service, transaction),
        linked: transaction.linked().to_vec(),
    }
}

fn survival_of(one: &OpenTransaction) -> Survival {
    if one.transaction.survives() {
        return Survival::Survives;
    }
    let reason = one.transaction.why_it_ends().filter(|_| one.detached);
    Survival::Ends {
        reason: reason.map(|reason| reason.to_string()),
    }
}

/// How many commits the history keeps for a transaction, and their space beyond its limits.
fn kept(service: &Service, after: Option<atomdir_engine::Sequence>) -> (u64, u64) {
    let store = &service.store;
    let kept = |after| (store.commits_after(after), store.bytes_kept_after(after));
    after.map_or((0, 0), kept)
}

/// The transactions that have survived and cannot be opened, as far as the peer may see them.
pub(crate) fn list_stranded(service: &Service, peer: &Peer) -> Vec<TransactionStatus> {
    survival::stranded(service, peer)
        .map(|one| stranded(service, &one))
        .collect()
}

/// A transaction that has survived its service and cannot be opened.
fn stranded(service: &Service, one: &Stranded) -> TransactionStatus {
    let (kept_commits, kept_bytes) = kept(service, one.needs);
    TransactionStatus {
        transaction: one.id,
        owner: one.owner.unwrap_or_else(|| geteuid().as_raw()),
        label: one.label.clone(),
        began: one.began,
        isolation: Isolation::Snapshot,
        durability: Durability::Durable,
        conflicts: Conflicts::AtCommit,
        locks: Vec::new(),
        met: Vec::new(),
        detached: true,
        view: View::Exact,
        view_path: Vec::new(),
        outer: None,
        nested: Vec::new(),
        holders: Vec::new(),
        savepoints: Vec::new(),
        sealed: false,
        past: None,
        held_bytes: 0,
        kept_commits,
        kept_bytes,
        survival: Survival::Stranded {
            reason: one.reason.clone(),
        },
        set_aside: None,
        in_doubt: None,
        linked: Vec::new(),
    }
}

/// A failed write already reported whose transactions these are, but not their labels.
fn met(transaction: &Transaction) -> Vec<Conflict> {
    let met = transaction.met().into_iter();
    met.map(|one| convert::conflict(one, false)).collect()
}

pub(crate) fn of_service(service: &Service, peer: &Peer) -> Answer {
    Answer::Service(Box::new(status_of(service, peer)))
}

fn status_of(service: &Service, peer: &Peer) -> ServiceStatus {
    let status = service.store.status();
    let idle_time = service.idle_time.get();
    ServiceStatus {
        process: rustix::process::getpid()
            .as_raw_nonzero()
            .get()
            .unsigned_abs(),
        user: rustix::process::geteuid().as_raw(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: service.started,
        age_seconds: service.started_at.elapsed().as_secs(),
        store: service.path.as_os_str().as_bytes().to_vec(),
        views: service.views.place(),
        views_over_io_uring: service.views.come_over_io_uring(),
        view_requests: service.views.requests(),
        guard: service.guard.status(),
        connections: service.connections.count() as u64,
        open_transactions: service.transactions.count() as u64,
        idle_ms: idle_time.map(|time| time.as_millis().try_into().unwrap_or(u64::MAX)),
        supervised: service.is_supervised,
        limits: limits::limits(),
        sequence: status.sequence,
        log_bytes: status.log_bytes,
        history: status.history,
        unconfirmed: service.store.unconfirmed(),
        poisoned: status
            .poisoned
            .map(|reason| discretion::poison(&reason, peer)),
        stalled: status
            .stalled
            .map(|stalled| discretion::stalled(&stalled, peer)),
        recovery: service.recovery,
    }
}
