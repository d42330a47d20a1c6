//! Transactions that are alone: each holds a lock on the whole store from its begin to its end. The
//! begin waits for that lock while the peer is connected.

use crate::clients::connection::Connection;
use crate::clients::replies::{Unanswered, send_one};
use crate::requests::locks;
use crate::rights::convert;
use crate::service::Service;
use crate::transactions::Transaction;
use atomdir_engine as engine;
use atomdir_protocol::{Failure, FailureKind, Progress, Reply, TransactionId};
use rustix::io::Errno;
use std::sync::Arc;

/// Begins an exclusive transaction. The peer owns the store.
pub(super) fn begin(
    service: &Service,
    connection: &Connection,
    options: engine::BeginOptions,
) -> Result<Arc<Transaction>, Unanswered> {
    let peer = &connection.peer;
    let begun = service.store.begin_in_base(options);
    let begun = begun.map_err(|error| convert::begin_failure(&error, peer))?;
    let held = hold(service, connection, &begun);
    if held.is_err() {
        service.store.abort(&begun);
    }
    held.map(|()| begun)
}

fn hold(
    service: &Service,
    connection: &Connection,
    transaction: &Transaction,
) -> Result<(), Unanswered> {
    let mut is_reported = false;
    let report = || {
        let report = || {
            let waiting = Progress::Waiting(why(service, transaction.id()));
            send_one(&connection.stream, &Reply::Progress(waiting)).is_ok()
        };
        std::mem::replace(&mut is_reported, true) || report()
    };
    let held = locks::patiently((connection, None), report, |patience| {
        service.store.hold_whole(transaction, patience)
    })?;
    held.map_err(|error| match error {
        // Only for a peer that has gone does the wait end in vain.
        engine::LockError::Held(_) => Unanswered::PeerLost(Errno::CONNRESET),
        engine::LockError::Store(error) => convert::store_failure(&error, &connection.peer).into(),
        error => Failure::new(FailureKind::Internal, error.to_string()).into(),
    })
}

/// Which transactions have locks.
fn why(service: &Service, own: TransactionId) -> String {
    let open = service.store.transactions().into_iter();
    let others = open.filter(|one| one.id() != own && one.outer().is_none());
    let mut holders: Vec<String> = others
        .filter(|one| service.store.locks(one).iter().any(|lock| lock.granted))
        .map(|one| one.id().to_string())
        .collect();
    holders.sort();
    match &holders[..] {
        [] => "others have asked for locks before".to_owned(),
        [one] => format!("transaction {one} holds a lock in the store"),
        several => format!(
            "transactions {} hold locks in the store",
            several.join(", ")
        ),
    }
}
