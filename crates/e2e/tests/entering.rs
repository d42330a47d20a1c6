#![cfg(test)]

//! One process works in several transactions in turn, through the library. This test is
//! in a file of its own because the current directory belongs to the whole process.

use std::fs;

use atomdir::StartService;
use atomdir::client::{BeginOptions, Connection, Others, Portion};
use atomdir_testing::{Fixture, binary};

#[test]
fn one_process_switches_between_transactions() {
    let fixture = Fixture::new("entering", "echo old > file");
    let store = atomdir::find(&fixture.base).expect("it is a store");
    let start = StartService::with_program(binary(), &store);
    let connect = || Connection::open(&store, &start).expect("the service answers");
    let mut connection = connect();
    let mut begin = || {
        let begun = connection.begin(&BeginOptions::default());
        begun.expect("a transaction begins")
    };
    let (one, two) = (begin(), begin());
    let home = std::env::current_dir().expect("there is one");
    let read = || fs::read_to_string("file").expect("it is there");

    let entered = one.enter().expect("entered");
    fs::write("file", "one").expect("written");
    entered.suspend().expect("suspended");
    assert_eq!(std::env::current_dir().expect("there is one"), home);
    {
        let _entered = two.enter().expect("entered");
        assert_eq!(read(), "old\n");
        fs::write("other", "two").expect("written");
    }
    let resumed = one.enter().expect("resumed");
    assert_eq!(read(), "one");
    drop(resumed);
    assert_eq!(std::env::current_dir().expect("there is one"), home);

    // Each connection holds the transaction by itself. It ends when the last one leaves.
    let mut other = connect();
    other.attach(one.id).expect("attached");
    let status = other.status(one.id).expect("it has a status");
    assert_eq!(status.holders, [std::process::id(); 2]);
    let refused = connection.commit(one.id, &mut |_| {});
    assert!(refused.expect_err("another holds it").is_in_use());
    assert!(!connection.detach(one.id).expect("detached"));
    assert!(other.detach(one.id).expect("detached"), "it is aborted");
    assert!(other.status(one.id).is_err());

    other.attach(two.id).expect("attached");
    let forced = connection.commit_portion(two.id, &Portion::All, Others::End, &mut |_| {});
    forced.expect("committed");
    let committed = fs::read_to_string(fixture.base.join("other"));
    assert_eq!(committed.expect("committed"), "two");
    assert_eq!(
        fs::read_to_string(fixture.base.join("file")).expect("there"),
        "old\n"
    );
    drop((connection, other));
    fixture.store.assert_at_rest();
}
