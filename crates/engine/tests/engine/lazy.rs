//! Lazy commits are in order, visible to later transactions, and durable together.

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{
    self, EVERYTHING, Scratch, SetClock, begin, create, open, open_timed, open_with,
    take_log_flushes,
};
use atomdir_disk::Errno;
use atomdir_engine::{BeginOptions, CommitError, Durability, NewNode, NodeId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn options(durability: Durability) -> BeginOptions {
    BeginOptions {
        durability,
        ..support::options()
    }
}

const COUNT: usize = 8;

#[test]
fn lazy_commits_share_one_flush_of_the_log() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let log_flushes = || take_log_flushes(&disk);
    let name = |number: usize| format!("made{number}").into_bytes();
    let begin_and_make = |number: usize| {
        let transaction = store
            .begin(options(Durability::Lazy))
            .expect("a transaction begins");
        transaction
            .create(
                NodeId::ROOT,
                &name(number),
                NewNode::Directory,
                0o755,
                0,
                caller(),
            )
            .expect("the name is free");
        transaction
    };
    let commit_all = |first: usize| {
        let transactions: Vec<_> = (first..first + COUNT).map(begin_and_make).collect();
        disk.take_changes();
        for transaction in transactions {
            store.commit(&transaction).expect("nobody is in the way");
        }
        assert_eq!(log_flushes(), 0, "by lazy commits");
    };
    let in_base = |number: usize| {
        let name = String::from_utf8(name(number)).expect("it is text");
        scratch.0.join(name).exists()
    };

    commit_all(0);
    assert!(
        !(0..COUNT).any(in_base),
        "the base is never ahead of the log"
    );
    store.sync().expect("it is durable");
    assert_eq!(log_flushes(), 1);
    assert!((0..COUNT).all(in_base));

    // A transaction that reads them flushes and applies them.
    commit_all(COUNT);
    let reader = begin(&store);
    assert_eq!(log_flushes(), 0, "by a begin");
    for number in 0..2 * COUNT {
        let found = reader.resolve(&name(number)).expect("the path is good");
        assert!(found.is_some(), "{number}");
    }
    assert_eq!(log_flushes(), 1);
    store.abort(&reader);

    // A durable commit makes all earlier ones durable.
    let durable = store
        .begin(options(Durability::Durable))
        .expect("a transaction begins");
    commit_all(2 * COUNT);
    let made = durable.create(
        NodeId::ROOT,
        b"last",
        NewNode::Directory,
        0o755,
        0,
        caller(),
    );
    made.expect("the name is free");
    disk.take_changes();
    store.commit(&durable).expect("nobody is in the way");
    assert_eq!(log_flushes(), 1);
    assert!((0..3 * COUNT).all(in_base));
    drop((durable, reader, store));
    open(&scratch.0);
    assert!((0..3 * COUNT).all(in_base));
}

/// However many others follow it.
#[test]
fn maintenance_makes_an_old_lazy_commit_durable_while_others_keep_coming() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let clock = Arc::<SetClock>::default();
    let store = open_timed(clock.clone(), &scratch.0, EVERYTHING);
    let begin = |_| store.begin(options(Durability::Lazy)).expect("it begins");
    let transactions: Vec<_> = (0..COUNT).map(begin).collect();
    for (number, transaction) in transactions.iter().enumerate() {
        clock.0.fetch_add(1, Ordering::Relaxed);
        let name = format!("made{number}");
        let made = transaction.create(
            NodeId::ROOT,
            name.as_bytes(),
            NewNode::File,
            0o644,
            0,
            caller(),
        );
        made.expect("the name is free");
        store.commit(transaction).expect("nobody is in the way");
        store.maintain().expect("it is maintained");
        if number > 0 {
            let before = format!("made{}", number - 1);
            assert!(scratch.0.join(before).exists(), "{name}");
        }
    }
}

#[test]
fn empty_durable_commit_flushes_lazy_commits() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let begin = |durability| {
        let begun = store.begin(options(durability));
        begun.expect("a transaction begins")
    };
    let durable = begin(Durability::Durable);
    let (lazy, also_lazy) = (begin(Durability::Lazy), begin(Durability::Lazy));
    let made = lazy.create(NodeId::ROOT, b"made", NewNode::File, 0o644, 0, caller());
    made.expect("the name is free");
    store.commit(&lazy).expect("nobody is in the way");
    store.commit(&also_lazy).expect("nothing was changed");
    assert!(!scratch.0.join("made").exists(), "lazy ones wait");
    disk.take_changes();
    store.commit(&durable).expect("nothing was changed");
    assert!(disk.take_changes().contains(&"sync_data"));
    assert!(scratch.0.join("made").exists());
}

#[test]
fn deferred_commits_are_durable_before_they_are_in_the_base() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let log_flushes = || take_log_flushes(&disk);
    let commit = |name: &str, durability| {
        let transaction = store.begin(options(durability)).expect("it begins");
        let node = NewNode::File;
        let made = transaction.create(NodeId::ROOT, name.as_bytes(), node, 0o644, 0, caller());
        made.expect("the name is free");
        store.commit(&transaction).expect("nobody is in the way");
    };
    commit("lazy", Durability::Lazy);
    log_flushes();
    commit("deferred", Durability::Deferred);
    assert_eq!(log_flushes(), 1, "for both");
    assert!(!scratch.0.join("lazy").exists() && !scratch.0.join("deferred").exists());
    // One that changes nothing also makes those before it durable.
    commit("also lazy", Durability::Lazy);
    let empty = store
        .begin(options(Durability::Deferred))
        .expect("it begins");
    store.commit(&empty).expect("nobody is in the way");
    assert_eq!(log_flushes(), 1);
    store.sync().expect("nothing is in the way");
    assert_eq!(log_flushes(), 0, "everything is durable");
    assert!(scratch.0.join("deferred").exists() && scratch.0.join("also lazy").exists());

    // A flush that fails is reported, and nobody knows whether the commit has happened.
    commit("measured", Durability::Deferred);
    let changes = disk.take_changes();
    let before = changes.iter().position(|change| *change == "sync_data");
    disk.fail_after(before.expect("the log is flushed") as i64);
    let transaction = store
        .begin(options(Durability::Deferred))
        .expect("it begins");
    let made = transaction.create(NodeId::ROOT, b"lost", NewNode::File, 0o644, 0, caller());
    made.expect("the name is free");
    let failed = store.commit(&transaction);
    assert!(matches!(failed, Err(CommitError::Logged(_))), "{failed:?}");
    assert!(store.status().poisoned.is_some());
}
