//! Requests for locks. A lock belongs to the peer's transaction, and a request waits
//! only while the peer is connected.
//!
//! A waiting request polls the peer's socket together with a latch, which the engine
//! sets when the request may succeed. So the request wakes when it may succeed, when
//! the peer disconnects or the service closes the connection, and when its time is
//! over, but not before. The latch stays set until the request tries again, so no
//! wake-up is lost in between.

use crate::clients::connection::Connection;
use crate::clients::latch::Latch;
use crate::clients::replies::{Unanswered, conflict_length, send_parts};
use crate::rights::permissions::no_such_transaction;
use crate::rights::{
    convert::{self, quoted},
    discretion,
};
use crate::service::Service;
use crate::transactions::OpenTransaction;
use crate::transactions::expiry::{Due, Ending};
use atomdir_disk::reason;
use atomdir_engine as engine;
use atomdir_engine::Waits;
use atomdir_protocol::{Answer, Conflict, Failure, FailureKind, LockRequest, Reply, TransactionId};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn unlock(
    service: &Service,
    connection: &Connection,
    transaction: TransactionId,
    paths: Option<&[Vec<u8>]>,
) -> Result<Answer, Unanswered> {
    let one = service.transactions.find(transaction, &connection.peer)?;
    if one.transaction.is_over_base() {
        let message = format!(
            "transaction {transaction} is exclusive, and its lock on the store ends with it"
        );
        return Err(Failure::new(FailureKind::BadRequest, message).into());
    }
    Ok(Answer::Unlocked(
        service.store.unlock(&one.transaction, paths),
    ))
}

pub(crate) fn lock(
    service: &Service,
    connection: &Connection,
    request: LockRequest,
) -> Result<Answer, Unanswered> {
    let peer = &connection.peer;
    let one = service.transactions.find(request.transaction, peer)?;
    let id = one.id();
    let max_age = request.max_age_ms.map(Duration::from_millis);
    if max_age.is_some() {
        service.expiry.check_room(id)?;
    }
    let deadline = request
        .wait_ms
        .and_then(|wait| Instant::now().checked_add(Duration::from_millis(wait)));
    let wanted = engine::LockRequest {
        mode: request.mode,
        scope: request.scope,
        paths: request.paths,
    };
    let credentials = engine::Credentials {
        user: peer.user,
        groups: peer.groups.clone(),
    };
    let locked = patiently(
        (connection, deadline),
        || true,
        |patience| {
            let store = &service.store;
            store.lock(&one.transaction, &wanted, &credentials, patience)
        },
    )?;
    match locked {
        Ok(()) => {
            if let Some(age) = max_age {
                service.expiry.add(Due {
                    transaction: id,
                    age,
                    ending: Ending::Locks(wanted.paths),
                });
            }
            Ok(Answer::Nothing)
        }
        Err(error) => Err(refuse(service, connection, &one, (&wanted.paths, error))),
    }
}

/// Calls `ask` with a patience that lasts until the deadline, and as long as the peer is connected and
/// `goes_on` returns true, which is called before each wait.
pub(super) fn patiently<T>(
    (connection, deadline): (&Connection, Option<Instant>),
    mut goes_on: impl FnMut() -> bool,
    ask: impl FnOnce(&mut engine::Patience<'_>) -> T,
) -> Result<T, Failure> {
    let latch = Latch::new().map_err(|errno| {
        let message = format!("cannot wait for locks: {errno}", errno = reason(errno));
        Failure::new(FailureKind::Io, message)
    })?;
    let latch = Arc::new(latch);
    let woken = latch.clone();
    let mut wait = || {
        let is_woken = goes_on() && connection.stream.wait_beside(&latch, deadline);
        latch.clear();
        is_woken
    };
    Ok(ask(&mut engine::Patience {
        wake: Arc::new(move || woken.set()),
        wait: &mut wait,
    }))
}

/// Reports the conflicting locks as data first, then as a message.
fn refuse(
    service: &Service,
    connection: &Connection,
    one: &OpenTransaction,
    (own, error): (&[Vec<u8>], engine::LockError),
) -> Unanswered {
    let id = one.id();
    let mut hint =
        format!("`atomdir abort {id}` drops its changes and locks; then begin another one");
    let (access, peer) = (&service.access, &connection.peer);
    let conflicts: Vec<Conflict> = error
        .conflicts()
        .into_iter()
        .map(|one| discretion::conflict(access, peer, one, own))
        .collect();
    let shown = |waits: &Waits| {
        let seen = discretion::path(access, peer, &waits.path, own);
        let path = quoted(&seen.path);
        match seen.is_whole {
            true => path,
            false => format!("something in {path}"),
        }
    };
    let message = match error {
        engine::LockError::Held(waits) => match waits.first() {
            Some(first) => format!("{} is locked by transaction {}", shown(first), first.holder),
            None => "others have asked for these locks before".to_owned(),
        },
        engine::LockError::Deadlock(cycle) => describe(&cycle, shown),
        engine::LockError::Changed(_) => {
            hint = format!(
                "`atomdir refresh {id}` brings its snapshot up to date if nothing conflicts; then \
                 lock again"
            );
            format!(
                "an object to be locked has changed since transaction {id} began; the transaction is still open"
            )
        }
        engine::LockError::Ended => return no_such_transaction(id).into(),
        engine::LockError::Path { path, errno } => return bad_path(&path, errno).into(),
        engine::LockError::Store(error) => {
            return convert::store_failure(&error, &connection.peer).into();
        }
        error => return Failure::new(FailureKind::Internal, error.to_string()).into(),
    };
    let parts = send_parts(
        &connection.stream,
        conflicts,
        conflict_length,
        Reply::Conflicts,
    );
    if let Err(lost) = parts {
        return lost;
    }
    Failure::new(FailureKind::Conflict, message)
        .with_hint(hint)
        .into()
}

fn describe(cycle: &[Waits], shown: impl Fn(&Waits) -> String) -> String {
    let steps: Vec<String> = cycle
        .iter()
        .map(|waits| {
            let path = shown(waits);
            format!("waits for {path}, locked by transaction {}", waits.holder)
        })
        .collect();
    let first = cycle.first().map_or(0, |first| first.transaction.0);
    format!("deadlock: transaction {first} {}", steps.join(", which "))
}

fn bad_path(path: &str, errno: Errno) -> Failure {
    let path = quoted(path.as_bytes());
    let (kind, message) = match errno {
        Errno::ACCESS | Errno::PERM => (
            FailureKind::NotPermitted,
            format!(
                "no permission to lock {path}: a shared lock needs the right to read it, an exclusive one the right to write it"
            ),
        ),
        errno => (
            FailureKind::BadRequest,
            format!("cannot lock {path}: {errno}", errno = reason(errno)),
        ),
    };
    Failure::new(kind, message)
}
