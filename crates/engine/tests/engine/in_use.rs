//! Other programs have a file open for writing, have mapped it or have locked it. Whatever a
//! transaction does to its contents and attributes, the file stays the one that they use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use atomdir_engine::{
    BeginOptions, CommitError, ConflictKind, Durability, NewNode, NodeId, SetAttributes, Store,
    Transaction,
};
use atomdir_testing::{Usage, Using};

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{EVERYTHING, Scratch, create, open_keeping, options};
use atomdir_disk::{Errno, RenameMode};

const ROOT: NodeId = NodeId::ROOT;
/// Not a whole number of pages.
const LENGTH: usize = 3 * 4096 + 100;

type View = Transaction<FailingDisk>;

/// Something that a transaction does to the file.
struct Change {
    name: &'static str,
    make: fn(&View),
    /// The new contents.
    after: fn(Vec<u8>) -> Vec<u8>,
}

const CHANGES: &[Change] = &[
    Change {
        name: "append",
        make: |view| write(view, LENGTH as u64, b"appended"),
        after: |old| [&old[..], b"appended"].concat(),
    },
    Change {
        name: "overwrite",
        make: |view| write(view, 5000, b"overwritten"),
        after: |mut old| {
            old[5000..5011].copy_from_slice(b"overwritten");
            old
        },
    },
    Change {
        name: "write anew, longer",
        make: |view| write_anew(view, &longer()),
        after: |_| longer(),
    },
    Change {
        name: "write anew, shorter",
        make: |view| write_anew(view, &contents()[..5000]),
        after: |old| old[..5000].to_vec(),
    },
    Change {
        name: "write anew, as it was",
        make: |view| write_anew(view, &contents()),
        after: |old| old,
    },
    Change {
        name: "truncate",
        make: |view| set_length(view, 4097),
        after: |old| old[..4097].to_vec(),
    },
    Change {
        name: "truncate and extend",
        make: |view| {
            set_length(view, 4097);
            set_length(view, 9000);
        },
        after: |mut old| {
            old.truncate(4097);
            old.resize(9000, 0);
            old
        },
    },
    Change {
        name: "chmod",
        make: |view| {
            let mode = SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            };
            let changed = view.set_attributes(file(view), mode, caller());
            changed.expect("it is changed");
        },
        after: |old| old,
    },
];

fn contents() -> Vec<u8> {
    (0..LENGTH).map(|at| (at / 7 % 251) as u8).collect()
}

fn longer() -> Vec<u8> {
    let mut longer = contents();
    longer[9000] ^= 1;
    longer.resize(2 * LENGTH, 7);
    longer
}

fn file(view: &View) -> NodeId {
    view.lookup(ROOT, b"file").expect("it is there").node
}

fn write(view: &View, offset: u64, bytes: &[u8]) {
    let written = view.write(file(view), offset, bytes, false);
    written.expect("it is written");
}

fn set_length(view: &View, length: u64) {
    let change = SetAttributes {
        length: Some(length),
        ..SetAttributes::default()
    };
    let changed = view.set_attributes(file(view), change, caller());
    changed.expect("it is changed");
}

fn write_anew(view: &View, bytes: &[u8]) {
    set_length(view, 0);
    write(view, 0, bytes);
}

fn prepared() -> (Scratch, FailingDisk, Store<FailingDisk>) {
    let scratch = Scratch::new();
    fs::write(scratch.0.join("file"), contents()).expect("it is written");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_keeping(disk.clone(), &scratch.0, Some(EVERYTHING));
    (scratch, disk, store.expect("the store opens"))
}

fn begin(store: &Store<FailingDisk>, durability: Durability) -> Arc<View> {
    let transaction = store.begin(BeginOptions {
        durability,
        ..options()
    });
    transaction.expect("a transaction begins")
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).expect("it is there").ino()
}

#[test]
fn a_file_that_others_use_keeps_its_inode_when_a_commit_changes_it() {
    for usage in Usage::ALL {
        for durability in [Durability::Durable, Durability::Lazy] {
            for change in CHANGES {
                keeps_inode(usage, durability, change);
            }
        }
    }
}

fn keeps_inode(usage: Usage, durability: Durability, change: &Change) {
    let case = format!("{usage:?}, {durability:?}, {}", change.name);
    let (scratch, _, store) = prepared();
    let path = scratch.0.join("file");
    let before = inode(&path);
    let mut using = Using::begin(usage, &path);
    let reader = begin(&store, Durability::Durable);
    let node = file(&reader);
    let transaction = begin(&store, durability);
    (change.make)(&transaction);
    store.commit(&transaction).expect("nobody is in the way");
    store.sync().expect("it is applied");
    let found = fs::read(&path).expect("it is read");
    assert!(found == (change.after)(contents()), "{case}: the contents");
    let mut old = vec![0; 2 * LENGTH];
    let read = reader.read(node, 0, &mut old, caller());
    let read = read.expect("the older snapshot shows it");
    assert!(old[..read] == contents(), "{case}: the older snapshot");
    if usage.needs_inode() {
        assert_eq!(inode(&path), before, "{case}");
    }
    let newest = store.status().sequence;
    let undo = store.undo(&[newest], &[], options());
    let undo = undo.unwrap_or_else(|error| panic!("{case}: {error}"));
    store.commit(&undo).expect("it can be undone");
    let found = fs::read(&path).expect("it is read");
    assert!(found == contents(), "{case}: what the undo left");
    if usage.needs_inode() {
        assert_eq!(inode(&path), before, "{case}, undone");
        assert!(using.has(&path), "{case}: it is another file");
    }
    assert_eq!(store.check().problems, Vec::<String>::new(), "{case}");
}

/// The file is opened or locked after the check. A durable commit is tried again at once, and a lazy
/// one is set aside until its next try.
#[test]
fn a_file_that_others_begin_to_use_during_a_commit_keeps_its_inode() {
    for usage in Usage::ALL.into_iter().filter(|usage| usage.needs_inode()) {
        for durability in [Durability::Durable, Durability::Lazy] {
            let (scratch, disk, store) = prepared();
            let path = scratch.0.join("file");
            let before = inode(&path);
            let (send, sent) = std::sync::mpsc::channel();
            let used = path.clone();
            disk.intrude_after_flush(move || {
                send.send(Sent(Using::begin(usage, &used)))
                    .expect("the test waits for it");
            });
            let transaction = begin(&store, durability);
            write(&transaction, 5000, b"overwritten");
            store.commit(&transaction).expect("nobody is in the way");
            store.sync().expect("the store goes on");
            if transaction.is_open() {
                assert!(store.retry_set_aside(&transaction), "{usage:?}");
                store.sync().expect("it is applied");
            }
            let mut using = sent.try_recv().expect("it was used").0;
            let found = fs::read(&path).expect("it is read");
            assert_eq!(&found[5000..5011], b"overwritten", "{usage:?}");
            assert_eq!(inode(&path), before, "{usage:?}");
            assert!(using.has(&path), "{usage:?}");
        }
    }
}

struct Sent(Using);

// SAFETY: it is moved to another thread, not shared.
unsafe impl Send for Sent {}

/// The log gets neither the whole file nor what was there before.
#[test]
fn a_change_of_a_large_file_in_use_writes_what_differs() {
    let (scratch, _, store) = prepared();
    let path = scratch.0.join("large");
    let mut contents = vec![7; 8 << 20];
    fs::write(&path, &contents).expect("it is written");
    let before = inode(&path);
    let mut using = Using::begin(Usage::Append, &path);
    let transaction = begin(&store, Durability::Durable);
    contents[4 << 20] = 8;
    contents.extend_from_slice(b"appended");
    let large = transaction.lookup(ROOT, b"large").expect("it is there");
    let cut = SetAttributes {
        length: Some(0),
        ..SetAttributes::default()
    };
    let changed = transaction.set_attributes(large.node, cut, caller());
    changed.expect("it is changed");
    let written = transaction.write(large.node, 0, &contents, false);
    written.expect("it is written");
    let log = store.status().log_bytes;
    store.commit(&transaction).expect("nobody is in the way");
    let kept = store.status().history.expect("it is kept").bytes;
    let grown = store.status().log_bytes - log;
    assert!(grown < 64 << 10 && kept < 64 << 10, "{grown}, {kept}");
    assert_eq!(inode(&path), before);
    assert!(fs::read(&path).expect("it is read") == contents);
    assert!(using.has(&path));
}

/// So does a rename without a transaction.
#[test]
fn a_file_that_the_transaction_replaces_by_another_gets_that_ones_inode() {
    for usage in Usage::ALL {
        let (scratch, _, store) = prepared();
        let path = scratch.0.join("file");
        let _using = Using::begin(usage, &path);
        let transaction = begin(&store, Durability::Durable);
        let made = transaction.create(ROOT, b"new", NewNode::File, 0o644, 0, caller());
        let made = made.expect("the name is free");
        let written = transaction.write(made.node, 0, b"new", false);
        written.expect("it is written");
        let renamed = transaction.rename(ROOT, b"new", ROOT, b"file", RenameMode::Replace);
        if usage == Usage::RecordLock {
            assert_eq!(renamed, Err(Errno::BUSY), "a database's user has it locked");
            continue;
        }
        renamed.expect("both are there");
        let before = inode(&path);
        store.commit(&transaction).expect("nobody is in the way");
        assert_ne!(inode(&path), before, "{usage:?}");
        assert_eq!(fs::read(&path).expect("it is read"), b"new", "{usage:?}");
    }
}

/// A program that has locked itself, as `flock` in a script does.
#[test]
fn a_program_that_runs_and_is_locked_is_a_conflict() {
    let (scratch, _, store) = prepared();
    let path = scratch.0.join("file");
    fs::copy("/bin/sleep", &path).expect("it is copied");
    let mut running = std::process::Command::new(&path)
        .arg("60")
        .spawn()
        .expect("it runs");
    let using = Using::begin(Usage::Flock, &path);
    let transaction = begin(&store, Durability::Durable);
    write(&transaction, 5000, b"overwritten");
    let refused = store
        .commit(&transaction)
        .expect_err("it cannot be changed");
    let CommitError::Conflict(conflicts) = &refused else {
        panic!("{refused}");
    };
    assert_eq!(conflicts[0].what, ConflictKind::LockedAndRunning);
    assert!(transaction.is_open());
    drop(using);
    store.commit(&transaction).expect("it is replaced");
    running.kill().expect("it ran on");
    running.wait().expect("it has ended");
}
