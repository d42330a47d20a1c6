//! Files with names that no record of the log speaks of.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;

use atomdir_disk::Errno;
use atomdir_engine::{NodeId, Transaction};
use support::failing::FailingDisk;
use support::{Scratch, begin, create, open_with};

fn write(transaction: &Transaction<FailingDisk>, name: &[u8]) {
    let file = transaction.lookup(NodeId::ROOT, name).expect("it is there");
    transaction
        .write(file.node, 0, b"new", false)
        .expect("it is written");
}

/// After a crash the file may not be found by the name that the log has, so
/// what the log says of it must be in it before it loses that name.
#[test]
fn what_the_log_says_of_a_file_is_durable_before_it_loses_a_name() {
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
