//! A commit may give a file a new inode while another transaction looks the file up for the
//! first time.

use atomdir_disk::Errno;
use atomdir_engine::{NodeId, Transaction};

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create_with, open_with};

fn write(transaction: &Transaction<FailingDisk>, contents: &[u8]) {
    let file = transaction.lookup(NodeId::ROOT, b"file").expect("found");
    let change = atomdir_engine::SetAttributes {
        length: Some(0),
        ..Default::default()
    };
    let changed = transaction.set_attributes(file.node, change, caller());
    changed.expect("emptied");
    let written = transaction.write(file.node, 0, contents, false);
    written.expect("written");
}

/// The reader looks the old inode up. A commit replaces it before the view has found out which
/// object it is.
#[test]
fn a_file_that_is_replaced_during_its_first_lookup_is_read_as_of_the_snapshot() {
    let scratch = Scratch::new();
    std::fs::write(scratch.0.join("file"), "old").expect("written");
    let disk = FailingDisk::new(Errno::IO, false);
    create_with(&disk, &scratch.0);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let (reader, writer) = (begin(&store), begin(&store));
    write(&writer, b"new");
    let other = store.clone();
    disk.intrude_after_lookup(b"file", move || {
        other.commit(&writer).expect("committed");
    });
    let file = reader.lookup(NodeId::ROOT, b"file").expect("found");
    let present = std::fs::read(scratch.0.join("file")).expect("read");
    assert_eq!(present, b"new", "the commit came between");
    assert_eq!(file.attributes.length, 3);
    let mut contents = [0; 8];
    let length = reader.read(file.node, 0, &mut contents, caller());
    let length = length.expect("the snapshot still has it");
    assert_eq!(&contents[..length], b"old");
}
