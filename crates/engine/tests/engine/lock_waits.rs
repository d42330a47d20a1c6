//! Requests for locks wait until something changes, and are tried again only then.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_with};
use atomdir_disk::Errno;
use atomdir_engine::{
    Credentials, LockError, LockMode, LockRequest, LockScope, NewNode, NodeId, Patience, Store,
    Transaction,
};
use atomdir_testing::wait_until;

const WAITERS: usize = 8;

type TestStore = Store<FailingDisk>;

/// Locks the file. Returns how many times the request had to wait.
fn lock(
    store: &TestStore,
    transaction: &Transaction<FailingDisk>,
    mut waits: impl FnMut() -> bool,
) -> Result<usize, LockError> {
    let request = LockRequest {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        paths: vec![b"file".to_vec()],
    };
    let root = Credentials {
        user: 0,
        groups: vec![0],
    };
    let (wake, woken) = mpsc::channel();
    let mut waited = 0;
    let mut patience = Patience {
        // A request that has ended is not woken any more, so the receiver still exists.
        wake: Arc::new(move || wake.send(()).expect("the request goes on")),
        wait: &mut || {
            waited += 1;
            waits() && woken.recv().is_ok()
        },
    };
    store.lock(transaction, &request, &root, &mut patience)?;
    Ok(waited)
}

fn store(scratch: &Scratch) -> (FailingDisk, TestStore) {
    create(&scratch.0);
    fs::write(scratch.0.join("file"), "old").expect("a fresh directory takes a file");
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    (disk, store)
}

#[test]
fn every_waiting_request_gets_the_lock() {
    let scratch = Scratch::new();
    let (_, store) = store(&scratch);
    let holder = begin(&store);
    assert_eq!(lock(&store, &holder, || false).expect("it is free"), 0);
    let waiting = Arc::new(AtomicUsize::new(0));
    let start = |_| {
        let (store, waiting) = (store.clone(), Arc::clone(&waiting));
        thread::spawn(move || {
            let next = begin(&store);
            let mut is_first = true;
            let waits = || {
                waiting.fetch_add(usize::from(is_first), Ordering::SeqCst);
                is_first = false;
                true
            };
            lock(&store, &next, waits).expect("its turn comes");
            assert!(store.abort(&next));
        })
    };
    let waiters: Vec<_> = (0..WAITERS).map(start).collect();
    wait_until("all requests", || waiting.load(Ordering::SeqCst) >= WAITERS);
    assert!(store.abort(&holder));
    for waiter in waiters {
        waiter.join().expect("no panic");
    }
}

#[test]
fn withdrawn_request_leaves_the_lock_to_others() {
    let scratch = Scratch::new();
    let (_, store) = store(&scratch);
    let (holder, gives_up, next) = (begin(&store), begin(&store), begin(&store));
    lock(&store, &holder, || false).expect("it is free");
    let held = lock(&store, &gives_up, || false);
    assert!(matches!(held, Err(LockError::Held(_))), "{held:?}");
    assert!(store.abort(&holder));
    assert_eq!(lock(&store, &next, || false).expect("it is free"), 0);
}

#[test]
fn lock_requests_fail_once_the_store_is_poisoned() {
    let scratch = Scratch::new();
    let (disk, store) = store(&scratch);
    let (holder, waiter, writer) = (begin(&store), begin(&store), begin(&store));
    lock(&store, &holder, || false).expect("it is free");
    let made = writer.create(NodeId::ROOT, b"new", NewNode::Directory, 0o755, 0, caller());
    made.expect("the name is free");
    let (tell, waits) = mpsc::channel();
    let (locks, commits) = (store.clone(), store.clone());
    let waiting = thread::spawn(move || lock(&locks, &waiter, || tell.send(()).is_ok()));
    waits.recv().expect("it waits");
    // This makes the log's flush fail.
    let held = disk.flushes.lock().expect("no test panics with it");
    let before = store.status().sequence;
    let committing = thread::spawn(move || commits.commit(&writer).map(drop));
    wait_until("the commit in the log", || {
        store.status().sequence != before
    });
    disk.fail_after(0);
    drop(held);
    committing.join().expect("no panic").expect_err("it fails");
    drop(waits);
    let refused = waiting.join().expect("no panic");
    assert!(matches!(refused, Err(LockError::Store(_))), "{refused:?}");
}
