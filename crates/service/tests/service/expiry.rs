//! Transactions and locks that end at their maximum age, and a transaction that root aborts.

use crate::support::{NEVER_IDLE, TestStore, detached, is_root};
use atomdir::client::{Connection, FailureKind, LockOptions};
use atomdir::{LockMode, LockScope, StartService};
use atomdir_testing::{as_user, wait_until};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(1);
const LATE: Duration = Duration::MAX;

fn aged(age: Duration) -> LockOptions {
    LockOptions {
        max_age: Some(age),
        ..EXCLUSIVE
    }
}

const EXCLUSIVE: LockOptions = LockOptions {
    mode: LockMode::Exclusive,
    scope: LockScope::Object,
    wait: None,
    max_age: None,
};

#[test]
fn transaction_ends_at_its_maximum_age_and_its_owner_learns_why() {
    let store = TestStore::new(NEVER_IDLE);
    let mut client = store.connect();
    let old = client.begin(&detached()).unwrap();
    let young = client.begin(&detached()).unwrap();
    client
        .lock(old.id, &[b"index.html".to_vec()], &EXCLUSIVE)
        .unwrap();
    client.abort_after(young.id, LATE).unwrap();
    client.abort_after(old.id, SOON).unwrap();
    // The lock is granted when the other transaction has ended.
    client
        .lock(young.id, &[b"index.html".to_vec()], &EXCLUSIVE)
        .unwrap();
    wait_until("the end of the old transaction", || {
        client.transactions().unwrap().len() == 1
    });
    let error = client.commit(old.id, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("its maximum age, 1ms"), "{error}");
    std::fs::write(young.view_path.join("index.html"), "new").unwrap();
    client.commit(young.id, &mut |_| {}).unwrap();
    let error = client.abort(young.id).unwrap_err().to_string();
    assert!(!error.contains("age"), "{error}");
}

#[test]
fn locks_end_at_their_maximum_age_and_the_transaction_stays_open() {
    let store = TestStore::new(NEVER_IDLE);
    let (mut client, mut locking) = (store.connect(), store.connect());
    let (holder, other) = (
        client.begin(&detached()).unwrap().id,
        client.begin(&detached()).unwrap().id,
    );
    let paths = [b"index.html".to_vec(), b"new".to_vec()];
    let for_long = aged(Duration::from_secs(1 << 20));
    locking.lock(holder, &paths[1..], &for_long).unwrap();
    locking.lock(holder, &paths[..1], &aged(SOON)).unwrap();
    // The maximum age is part of the lock request. Were it a second request, a client that is
    // killed between the two would leave a lock without a limit.
    drop(locking);
    client.lock(other, &paths[..1], &EXCLUSIVE).unwrap();
    assert_eq!(client.status(holder).unwrap().locks.len(), 1);
    for _ in 0..63 {
        client.lock(holder, &paths[1..], &for_long).unwrap();
    }
    let error = client.lock(holder, &paths[1..], &for_long).unwrap_err();
    assert!(error.to_string().contains("64 maximum ages"), "{error}");
    client.commit(holder, &mut |_| {}).unwrap();
}

#[test]
fn owner_learns_that_root_aborted_the_transaction() {
    if !is_root() {
        return;
    }
    let user = 64_002;
    let store = TestStore::shared_with(&[user], NEVER_IDLE);
    let mut root = store.connect();
    let mut client = as_user(user, || {
        Connection::open(&store.location, &StartService::Never).unwrap()
    });
    let begun = client.begin(&detached()).unwrap();
    root.abort(begun.id).unwrap();
    let error = client.status(begun.id).unwrap_err();
    assert_eq!(error.kind(), Some(FailureKind::NoSuchTransaction));
    let message = error.to_string();
    assert!(message.contains("root has aborted it"), "{message}");
}
