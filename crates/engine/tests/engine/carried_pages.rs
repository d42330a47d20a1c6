//! Pages that are changed in place beside a large new file: the record carries them.

use std::fs;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_with};
use atomdir_disk::Errno;
use atomdir_engine::{CARRIED_BYTES_MAX, NewNode, NodeId};

#[test]
fn pages_beside_a_large_new_file_need_no_flush_of_their_own() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let (known, other) = (scratch.0.join("known"), scratch.0.join("other"));
    fs::write(&known, "old").expect("a fresh directory takes a file");
    // A file with two names is changed in place.
    fs::hard_link(&known, other).expect("the file system has links");
    let disk = FailingDisk::new(Errno::IO, true);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let transaction = begin(&store);
    let file = transaction.lookup(NodeId::ROOT, b"known");
    let file = file.expect("it is there").node;
    transaction
        .write(file, 0, b"new", false)
        .expect("it is written");
    let large = transaction.create(NodeId::ROOT, b"large", NewNode::File, 0o644, 0, caller());
    let large = large.expect("the name is free").node;
    let contents = vec![7; CARRIED_BYTES_MAX as usize + 1];
    transaction
        .write(large, 0, &contents, false)
        .expect("it is written");
    disk.take_changes();
    store.commit(&transaction).expect("nobody is in the way");
    let changes = disk.take_changes();
    let flushed = changes.iter().filter(|change| **change == "sync").count();
    // The flush of the large file.
    assert_eq!(flushed, 1, "{changes:?}");
    assert_eq!(fs::read(&known).expect("it is read"), b"new");
    assert_eq!(
        fs::read(scratch.0.join("large")).expect("it is read"),
        contents
    );
}
