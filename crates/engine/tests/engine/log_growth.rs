//! The log's file grows in steps, ahead of what is appended.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomdir_disk::Errno;
use atomdir_engine::{LOG_STEP, NewNode, NodeId, Store, Transaction};

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_with};

/// What a commit of these tests adds to the log, at least.
const RECORD_BYTES: u64 = 100_000;

fn staged(store: &Store<FailingDisk>, number: u64) -> Arc<Transaction<FailingDisk>> {
    let transaction = begin(store);
    let name = format!("file{number}");
    let (root, kind) = (NodeId::ROOT, NewNode::File);
    let made = transaction.create(root, name.as_bytes(), kind, 0o644, 0, caller());
    let file = made.expect("the name is free").node;
    let contents = vec![b'x'; RECORD_BYTES as usize];
    let written = transaction.write(file, 0, &contents, false);
    written.expect("there is room");
    transaction
}

fn file_bytes(scratch: &Scratch) -> u64 {
    let log = std::fs::metadata(scratch.0.join(".atomdir/log"));
    log.expect("there is a log").len()
}

#[test]
fn log_grows_in_longer_steps_the_more_it_holds() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk, &scratch.0).expect("the store opens");
    let mut lengths = BTreeSet::new();
    for number in 0..100 {
        let transaction = staged(&store, number);
        store.commit(&transaction).expect("nobody is in the way");
        let (length, used) = (file_bytes(&scratch), store.status().log_bytes);
        let ahead_max = LOG_STEP + (used / 2).min(8 * LOG_STEP);
        assert!(
            used <= length && length - used <= ahead_max,
            "{used} of {length}"
        );
        lengths.insert(length);
    }
    // If all steps had the least length, there would be three for every four commits.
    assert!(lengths.len() <= 20, "{} steps", lengths.len());
}

#[test]
fn full_disk_that_has_room_for_a_short_step_takes_the_commit() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::new(Errno::NOSPC, false).flushing_nothing();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let used = || store.status().log_bytes;
    let mut number = 0;
    for failing in 0.. {
        while used() < 8 * LOG_STEP || used() + RECORD_BYTES <= file_bytes(&scratch) {
            number += 1;
            let transaction = staged(&store, number);
            store.commit(&transaction).expect("nobody is in the way");
        }
        number += 1;
        let transaction = staged(&store, number);
        // One call of the commit fails. In some round it is the call that makes a long step.
        disk.fail_after(failing);
        let committed = store.commit(&transaction);
        assert!(disk.has_failed(), "no commit makes a short step");
        disk.fail_after(i64::MAX);
        match committed {
            Ok(_) if file_bytes(&scratch) == used().next_multiple_of(LOG_STEP) => return,
            Ok(_) => {}
            Err(_) => drop(store.abort(&transaction)),
        }
    }
}
