//! Files with names that no record of the log mentions.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open, open_with};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{CommitError, NewNode, NodeId, SetAttributes, Transaction};

fn write(transaction: &Transaction<FailingDisk>, name: &[u8]) {
    let file = transaction.lookup(NodeId::ROOT, name).expect("it is there");
    transaction
        .write(file.node, 0, b"new", false)
        .expect("it is written");
}

/// After a crash the file may not be found by the name in the log. So the logged changes of the
/// file must be applied and durable before the file loses that name.
#[test]
fn logged_changes_of_a_file_are_durable_before_it_loses_a_name() {
    for in_one_commit in [true, false] {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::write(scratch.0.join("known"), "old").expect("a fresh directory takes a file");
        fs::hard_link(scratch.0.join("known"), scratch.0.join("unknown"))
            .expect("the file system has links");
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let mut transaction = begin(&store);
        write(&transaction, b"known");
        if !in_one_commit {
            store.commit(&transaction).expect("nobody is in the way");
            transaction = begin(&store);
        }
        transaction
            .unlink(NodeId::ROOT, b"known")
            .expect("the name goes");
        disk.take_changes();
        store.commit(&transaction).expect("nobody is in the way");
        let changes = disk.take_changes();
        let first = |call| changes.iter().position(|change| *change == call);
        let (flush, unlink) = (first("sync_file_system"), first("unlink"));
        assert!(flush.is_some() && flush < unlink, "{changes:?}");

        let file = scratch.0.join("unknown");
        assert_eq!(fs::metadata(&file).expect("it is there").nlink(), 1);
        drop((transaction, store));
        open_with(disk, &scratch.0).expect("the store is recovered");
        assert_eq!(fs::read_to_string(&file).expect("it is read"), "new");
    }
}

/// In round n an outside writer links a file right before the n-th change of a commit. Then both
/// names lead to one file, or the commit conflicts. Only a link that is made when the record is
/// about to be written, or later, keeps the old contents.
#[test]
fn outside_link_at_any_step_of_a_commit_stays_one_file() {
    for changes in 0.. {
        let scratch = Scratch::new();
        create(&scratch.0);
        let (known, other) = (scratch.0.join("known"), scratch.0.join("other"));
        fs::write(&known, "old").expect("a fresh directory takes a file");
        let disk = FailingDisk::new(Errno::IO, true);
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let transaction = begin(&store);
        write(&transaction, b"known");
        disk.take_changes();
        let (from, to) = (known.clone(), other.clone());
        let link = move || fs::hard_link(from, to).expect("the name is free");
        disk.intrude_before(changes, link);
        let committed = store.commit(&transaction);
        if disk.awaits_intruder() {
            return;
        }
        let read = |path| fs::read_to_string(path).expect("it is read");
        let is_one = fs::metadata(&known).expect("it is there").nlink() == 2;
        match committed {
            Err(CommitError::Conflict(_)) => {
                assert_eq!((read(&known), is_one), ("old".into(), true))
            }
            Err(error) => panic!("{error}"),
            Ok(_) => {
                assert_eq!(read(&known), "new");
                let made = disk.take_changes();
                let reserved = made.iter().position(|call| *call == "allocate");
                let is_late = reserved.is_some_and(|reserved| reserved <= changes);
                assert!(is_one || is_late, "before change {changes} of {made:?}");
            }
        }
    }
}

/// A new directory takes one of a file's names. The exchange leaves a link to the file in limbo,
/// which must be removed before the commit ends.
#[test]
fn a_directory_in_place_of_a_linked_file_leaves_no_link_behind() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("b"), "file").expect("a fresh directory takes a file");
    fs::hard_link(scratch.0.join("b"), scratch.0.join("d")).expect("the file system has links");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let (root, mode) = (NodeId::ROOT, RenameMode::NoReplace);
    transaction.unlink(root, b"b").expect("the name goes");
    let made = transaction.create(root, b"b", NewNode::Directory, 0o755, 0, caller());
    made.expect("the name is free");
    transaction
        .rename(root, b"d", root, b"e", mode)
        .expect("the name is free");
    store.commit(&transaction).expect("nobody is in the way");
    let links = fs::metadata(scratch.0.join("e"))
        .expect("it is there")
        .nlink();
    assert_eq!(links, 1);
    let transaction = begin(&store);
    transaction
        .remove_directory(root, b"b")
        .expect("it is empty");
    let committed = store.commit(&transaction).expect("nobody is in the way");
    assert_eq!(committed.stalled, None);
    assert!(!scratch.0.join("b").exists());
}

/// An empty file that a transaction empties once more keeps what another one has written to it.
#[test]
fn emptying_an_empty_file_takes_nothing_from_others() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let known = scratch.0.join("known");
    fs::write(&known, "").expect("a fresh directory takes a file");
    fs::hard_link(&known, scratch.0.join("other")).expect("the file system has links");
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk, &scratch.0).expect("the store opens");
    let (emptying, writing) = (begin(&store), begin(&store));
    let file = emptying.lookup(NodeId::ROOT, b"known");
    let change = SetAttributes {
        length: Some(0),
        ..SetAttributes::default()
    };
    let node = file.expect("it is there").node;
    let emptied = emptying.set_attributes(node, change, caller());
    emptied.expect("it is changed");
    write(&writing, b"known");
    store.commit(&writing).expect("nobody is in the way");
    // A conflict would be right as well.
    let _ = store.commit(&emptying);
    assert_eq!(fs::read_to_string(&known).expect("it is read"), "new");
}
