//! Space that the history keeps, beyond its limits, for transactions that survive.

use std::path::Path;

use crate::support::{EVERYTHING, Scratch, begin, create, open_keeping};
use crate::survival::survive;
use crate::undo_conflicts::{bytes_below, commit, put, unlink};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{HistoryLimits, Sequence, Store};

const FILE_BYTES: usize = 400_000;

fn open(root: &Path, history: Option<HistoryLimits>) -> Store<LinuxDisk> {
    open_keeping(LinuxDisk::new(), root, history).expect("the store opens")
}

/// Three commits that remove a file each. Returns the newest commit before each.
fn remove_files(store: &Store<LinuxDisk>) -> Vec<u64> {
    let names = ["a", "b", "c"];
    let removed = names.map(|name| commit(store, |view| unlink(view, name)) - 1);
    store.checkpoint().expect("nothing is in the way");
    removed.to_vec()
}

fn put_files(store: &Store<LinuxDisk>) {
    commit(store, |view| {
        for name in ["a", "b", "c"] {
            put(view, name, 0, &vec![7; FILE_BYTES]);
        }
    });
    store.checkpoint().expect("nothing is in the way");
}

fn kept_after(store: &Store<LinuxDisk>, sequence: u64) -> u64 {
    store.bytes_kept_after(Sequence(sequence))
}

/// Once with a history that may keep one of the three files, once without a history.
#[test]
fn the_end_of_a_transaction_frees_the_space_reported_as_held() {
    let one_file = HistoryLimits {
        bytes_max: FILE_BYTES as u64 * 3 / 2,
        ..EVERYTHING
    };
    for (history, files) in [(Some(one_file), 2), (None, 3)] {
        let scratch = Scratch::new();
        let (root, limbo) = (&scratch.0, scratch.0.join(".atomdir/limbo"));
        create(root);
        let store = open(root, history);
        put_files(&store);
        let transaction = begin(&store);
        survive(&store, &transaction);
        let before = remove_files(&store);
        let held = kept_after(&store, before[0]);
        let (least, most) = (
            files * FILE_BYTES as u64,
            files * FILE_BYTES as u64 + 20_000,
        );
        assert!((least..most).contains(&held), "{held}, {files} files");
        // A transaction that began later needs less.
        let later = kept_after(&store, before[1]);
        let (least, most) = (least - FILE_BYTES as u64, most - FILE_BYTES as u64);
        assert!((least..most).contains(&later), "{later}, {files} files");

        // The store counts the same after it is opened again.
        drop((transaction, store));
        let store = open(root, history);
        assert_eq!(kept_after(&store, before[0]), held);

        let taken = bytes_below(&limbo);
        for transaction in store.transactions() {
            store.abort(&transaction);
        }
        store.checkpoint().expect("nothing is in the way");
        let freed = taken - bytes_below(&limbo);
        assert!(freed >= files * FILE_BYTES as u64, "{freed}");
        // `held` includes the records of the past.
        assert!((freed..freed + 20_000).contains(&held), "{held}, {freed}");
        assert_eq!(kept_after(&store, before[0]), 0);
    }
}

#[test]
fn space_within_the_limits_of_the_history_is_not_reported_as_held() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0, Some(EVERYTHING));
    put_files(&store);
    let transaction = begin(&store);
    survive(&store, &transaction);
    let before = remove_files(&store);
    assert_eq!(kept_after(&store, before[0]), 0);
    // Without a history, everything is kept for the transaction.
    store.set_history(None).expect("nothing is in the way");
    assert!(kept_after(&store, before[0]) >= 3 * FILE_BYTES as u64);
}
