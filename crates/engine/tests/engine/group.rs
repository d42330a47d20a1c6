//! Group commit: commits that wait together share one flush of the log.

use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Random, Scratch, begin, create, open, open_with, options, take_log_flushes};
use atomdir_disk::{Errno, LinuxDisk, RenameMode};
use atomdir_engine::{
    BeginOptions, CommitError, Conflicts, Durability, Isolation, NewNode, NodeId, Store,
    Transaction,
};
use atomdir_testing::wait_until;

type TestStore = Store<FailingDisk>;
type TestTransaction = Arc<Transaction<FailingDisk>>;

const COMMITTERS: usize = 8;

fn store_with_files(scratch: &Scratch) -> (FailingDisk, TestStore) {
    create(&scratch.0);
    for number in 0..COMMITTERS {
        let file = scratch.0.join(format!("file{number}"));
        fs::write(file, "old").expect("a fresh directory takes a file");
    }
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    (disk, store)
}

/// Overwrites a file or makes something new in the same directory.
fn change(transaction: &TestTransaction, number: usize) {
    if number.is_multiple_of(2) {
        let name = format!("file{number}");
        let file = transaction.lookup(NodeId::ROOT, name.as_bytes());
        let file = file.expect("it is there").node;
        transaction
            .write(file, 0, b"new", false)
            .expect("it is written");
    } else {
        make(transaction, &format!("new{number}"));
    }
}

fn make(transaction: &TestTransaction, name: &str) {
    make_with_mode(transaction, name, 0o755);
}

/// Another directory than the one that `make` makes.
fn make_closed(transaction: &TestTransaction, name: &str) {
    make_with_mode(transaction, name, 0o700);
}

fn make_with_mode(transaction: &TestTransaction, name: &str, mode: u32) {
    let what = NewNode::Directory;
    let made = transaction.create(NodeId::ROOT, name.as_bytes(), what, mode, 0, caller());
    made.expect("the name is free");
}

fn is_changed(root: &Path, number: usize) -> bool {
    if number.is_multiple_of(2) {
        let file = fs::read(root.join(format!("file{number}"))).expect("it is read");
        assert!(file == b"old" || file == b"new");
        file == b"new"
    } else {
        root.join(format!("new{number}")).exists()
    }
}

/// Commits each transaction in its own thread. Flushes are held back until all commits are
/// in the log; then `release` runs, and flushes go on.
fn commit_together(
    disk: &FailingDisk,
    store: &TestStore,
    transactions: &[TestTransaction],
    release: impl FnOnce(),
) -> Vec<Result<(), CommitError>> {
    let all = store.status().sequence.0 + transactions.len() as u64;
    thread::scope(|scope| {
        let held = disk.flushes.lock().expect("no test panics with it");
        let commit = |transaction| move || store.commit(transaction).map(drop);
        let threads: Vec<_> = transactions
            .iter()
            .map(|transaction| scope.spawn(commit(transaction)))
            .collect();
        let one_has_ended = || threads.iter().any(|thread| thread.is_finished());
        // If a commit fails, its thread ends and the sequence never reaches `all`.
        wait_until("all commits in the log", || {
            store.status().sequence.0 >= all || one_has_ended()
        });
        release();
        drop(held);
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.expect("no panic")).collect()
    })
}

fn changed_by_each(store: &TestStore) -> Vec<TestTransaction> {
    let begin_and_change = |number| {
        let transaction = begin(store);
        change(&transaction, number);
        transaction
    };
    (0..COMMITTERS).map(begin_and_change).collect()
}

#[test]
fn commits_that_wait_together_share_a_flush() {
    let scratch = Scratch::new();
    let (disk, store) = store_with_files(&scratch);
    let transactions = changed_by_each(&store);
    disk.take_changes();
    for committed in commit_together(&disk, &store, &transactions, || ()) {
        committed.expect("nobody is in the way");
    }
    // The first commit was flushed alone.
    assert_eq!(take_log_flushes(&disk), 2);
    let modified = |root: &Path| {
        let metadata = fs::metadata(root).expect("it is there");
        metadata.modified().expect("the file system has such times")
    };
    let before = modified(&scratch.0);
    assert!((0..COMMITTERS).all(|number| is_changed(&scratch.0, number)));
    drop((transactions, store));
    open(&scratch.0);
    assert!((0..COMMITTERS).all(|number| is_changed(&scratch.0, number)));
    assert_eq!(modified(&scratch.0), before);
}

#[test]
fn failed_flush_fails_every_waiting_commit() {
    let scratch = Scratch::new();
    let (disk, store) = store_with_files(&scratch);
    let transactions = changed_by_each(&store);
    let release = || disk.fail_after(0);
    let results = commit_together(&disk, &store, &transactions, release);
    for (result, transaction) in results.iter().zip(&transactions) {
        assert!(matches!(result, Err(CommitError::Logged(_))), "{result:?}");
        assert!(!transaction.is_open());
    }
    assert!(store.status().poisoned.is_some());
    drop((transactions, store));
    open(&scratch.0);
    let landed: Vec<bool> = (0..COMMITTERS)
        .map(|number| is_changed(&scratch.0, number))
        .collect();
    // The records were written before the flush failed. Without a power cut, recovery finds them.
    assert_eq!(landed, [true; COMMITTERS]);
}

/// A commit that changes what a queued commit changes is validated only once the queued one is in
/// the base.
#[test]
fn overlapping_commits_keep_their_order() {
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    for conflicting in [
        |transaction: &TestTransaction| make_closed(transaction, "made"),
        |transaction: &TestTransaction| change(transaction, 0),
        |transaction: &TestTransaction| {
            let removed = transaction.unlink(NodeId::ROOT, b"file0");
            removed.expect("it is there");
        },
    ] {
        let scratch = Scratch::new();
        let (_, store) = store_with_files(&scratch);
        let first = store.begin(lazy.clone()).expect("a transaction begins");
        let second = begin(&store);
        make(&first, "made");
        change(&first, 0);
        conflicting(&second);
        store.commit(&first).expect("nobody is in the way");
        let met = store.commit(&second);
        assert!(matches!(met, Err(CommitError::Conflict(_))), "{met:?}");
    }
}

#[test]
fn refused_requests_are_notified_when_the_commit_ends() {
    let scratch = Scratch::new();
    let (disk, store) = store_with_files(&scratch);
    let (first, second) = commits_that_meet(&store);
    let (announce, announced) = mpsc::channel();
    second.on_commit_end(move || announce.send(()).expect("the test waits"));
    let refused = || second.lookup(NodeId::ROOT, b"b").err() == Some(Errno::RESTART);
    let mut committing = None;
    let ends = commit_together(&disk, &store, &[first], || {
        let (store, second) = (store.clone(), Arc::clone(&second));
        committing = Some(thread::spawn(move || store.commit(&second).map(drop)));
        wait_until("a refused request", refused);
        assert!(announced.try_recv().is_err());
    });
    assert!(ends[0].is_ok());
    announced.recv().expect("the transaction is there");
    assert!(!refused());
    let committed = committing.expect("it was released").join();
    drop(committed.expect("no panic"));
}

/// Two transactions. The commit of the second must wait until the first is in the base.
fn commits_that_meet(store: &TestStore) -> (TestTransaction, TestTransaction) {
    let (first, second) = (begin(store), begin(store));
    for (transaction, name) in [(&first, "a"), (&second, "b")] {
        let file = transaction.lookup(NodeId::ROOT, b"file0");
        let file = file.expect("it is there").node;
        let linked = transaction.link(file, NodeId::ROOT, name.as_bytes());
        linked.expect("the name is free");
    }
    (first, second)
}

/// Threads count in shared files, below directories that other threads rename.
#[test]
fn grouped_commits_lose_no_increment() {
    const THREADS: usize = 6;
    const COUNTS: u64 = 25;
    let scratch = Scratch::new();
    create(&scratch.0);
    for directory in ["a", "b"] {
        fs::create_dir(scratch.0.join(directory)).expect("it is new");
        for file in ["x", "y"] {
            fs::write(scratch.0.join(directory).join(file), [0; 8]).expect("it is new");
        }
    }
    let store = open(&scratch.0);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random::new(number as u64 + 1);
                (0..COUNTS).for_each(|_| count_until_committed(store, &mut random));
            });
        }
    });
    let sum = |root: &Path| -> u64 {
        let files = ["a/x", "a/y", "b/x", "b/y"].map(|file| fs::read(root.join(file)));
        let counts = files.map(|bytes| bytes.expect("it is read").try_into().expect("8 bytes"));
        counts.map(u64::from_le_bytes).iter().sum()
    };
    assert_eq!(sum(&scratch.0), THREADS as u64 * COUNTS);
    drop(store);
    open(&scratch.0);
    assert_eq!(sum(&scratch.0), THREADS as u64 * COUNTS);
}

/// Far more tries than can fail because of the other threads.
const TRIES_MAX: usize = 100_000;

fn count_until_committed(store: &Store<LinuxDisk>, random: &mut Random) {
    let file = format!(
        "{}/{}",
        ["a", "b"][random.below(2)],
        ["x", "y"][random.below(2)]
    );
    let swaps = random.below(8) == 0;
    for _ in 0..TRIES_MAX {
        let transaction = begin(store);
        let node = transaction.resolve(file.as_bytes());
        let node = node.expect("the view resolves").expect("it is there");
        let mut count = [0; 8];
        let length = transaction.read(node, 0, &mut count, caller());
        assert_eq!(length, Ok(8));
        let count = u64::from_le_bytes(count) + 1;
        let written = transaction.write(node, 0, &count.to_le_bytes(), false);
        written.expect("it is written");
        if swaps {
            let (root, exchange) = (NodeId::ROOT, RenameMode::Exchange);
            let swapped = transaction.rename(root, b"a", root, b"b", exchange);
            swapped.expect("both are there");
        }
        match store.commit(&transaction) {
            Ok(_) => return,
            Err(CommitError::Conflict(_)) => {
                store.abort(&transaction);
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("each of {TRIES_MAX} tries met a conflict");
}

#[test]
fn serializable_commit_validates_against_queued_commits() {
    let scratch = Scratch::new();
    let (_, store) = store_with_files(&scratch);
    let of = |isolation, durability| BeginOptions {
        isolation,
        durability,
        ..options()
    };
    let lazy = of(Isolation::Snapshot, Durability::Lazy);
    let writer = store.begin(lazy).expect("a transaction begins");
    let serializable = of(Isolation::Serializable, Durability::Durable);
    let reader = store.begin(serializable).expect("a transaction begins");
    change(&writer, 0);
    let read = reader.lookup(NodeId::ROOT, b"file0").expect("it is there");
    let length = reader.read(read.node, 0, &mut [0; 3], caller());
    assert_eq!(length, Ok(3));
    change(&reader, 2);
    store.commit(&writer).expect("nobody is in the way");
    let met = store.commit(&reader);
    assert!(matches!(met, Err(CommitError::Conflict(_))), "{met:?}");
}

/// A begin with early conflicts waits for the view of a committing transaction. That commit may
/// wait for another one, which must not wait for the begin.
#[test]
fn early_begin_does_not_deadlock_with_overlapping_commits() {
    let scratch = Scratch::new();
    let (disk, store) = store_with_files(&scratch);
    let (first, second) = commits_that_meet(&store);
    let early = BeginOptions {
        conflicts: Conflicts::Early,
        ..options()
    };
    let (mut committing, mut beginning) = (None, None);
    let (one, other) = (store.clone(), store.clone());
    let ends = commit_together(&disk, &store, &[first], || {
        let looks = Arc::clone(&second);
        committing = Some(thread::spawn(move || one.commit(&second).map(drop)));
        // The commit has taken the view for which a begin with early conflicts waits.
        wait_until("a refused request", || {
            looks.lookup(NodeId::ROOT, b"b").err() == Some(Errno::RESTART)
        });
        let open = store.status().open_transactions;
        beginning = Some(thread::spawn(move || other.begin(early)));
        wait_until("the begin", || store.status().open_transactions != open);
    });
    ends.into_iter()
        .for_each(|end| end.expect("nobody is in the way"));
    let committed = committing.expect("it was released").join();
    let committed = committed.expect("no panic");
    assert!(matches!(committed, Ok(()) | Err(CommitError::Conflict(_))));
    let begun = beginning
        .expect("it was released")
        .join()
        .expect("no panic");
    assert!(store.abort(&begun.expect("a transaction begins")));
}
