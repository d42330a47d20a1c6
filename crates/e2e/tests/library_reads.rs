//! What counts as read in a serializable transaction of the library. With `own_reads_only` that is
//! the same through the service as in the program's own process.

use atomdir::{CommitError, Door, Isolation, OpenOptions, Store, StoreOptions, Transaction};
use atomdir_testing::{call_here, for_each_user_of_a_store};

const PAGE: usize = 4096;

type Act = fn(&Transaction);

/// What one transaction reads, what another one commits meanwhile, and whether they are in conflict.
const CASES: [(&str, Act, Act, bool); 21] = [
    (
        "another page",
        |tx| read(tx, "long", 0),
        |tx| change(tx, "long", 5),
        false,
    ),
    (
        "the next page",
        |tx| read(tx, "long", 0),
        |tx| change(tx, "long", 1),
        false,
    ),
    (
        "the same page",
        |tx| read(tx, "long", 5),
        |tx| change(tx, "long", 5),
        true,
    ),
    (
        "one of two pages",
        read_two,
        |tx| change(tx, "long", 7),
        true,
    ),
    (
        "between two pages",
        read_two,
        |tx| change(tx, "long", 3),
        false,
    ),
    (
        "the end",
        |tx| read(tx, "long", 8),
        |tx| append(tx, "long"),
        true,
    ),
    ("the length", length, |tx| append(tx, "long"), true),
    (
        "the length, of a written file",
        length,
        |tx| change(tx, "long", 5),
        false,
    ),
    (
        "a page, of a longer file",
        |tx| read(tx, "long", 0),
        |tx| append(tx, "long"),
        false,
    ),
    ("times", metadata, |tx| change(tx, "long", 5), true),
    (
        "times, by name",
        |tx| drop(tx.metadata("long")),
        |tx| change(tx, "long", 5),
        true,
    ),
    (
        "an attribute",
        |tx| drop(tx.xattr("long", "user.one")),
        set_xattr,
        true,
    ),
    (
        "a page, beside an attribute",
        |tx| read(tx, "long", 0),
        |tx| change(tx, "other", 0),
        false,
    ),
    (
        "a page, of a removed file",
        |tx| read(tx, "long", 0),
        |tx| remove(tx, "long"),
        true,
    ),
    (
        "a page, of a replaced file",
        |tx| read(tx, "many/5", 0),
        |tx| put(tx, "many/5"),
        true,
    ),
    (
        "a page, of a file written in full",
        |tx| read(tx, "long", 2),
        |tx| tx.write("long", vec![b'x'; 8 * PAGE]).expect("written"),
        true,
    ),
    (
        "a missing name",
        |tx| drop(tx.open("none")),
        |tx| put(tx, "none"),
        true,
    ),
    (
        "a listing",
        |tx| drop(tx.read_dir("")),
        |tx| put(tx, "none"),
        true,
    ),
    (
        "before it was renamed",
        read_and_rename,
        |tx| change(tx, "long", 5),
        true,
    ),
    (
        "a new file, in place of an old one",
        read_new,
        |tx| change(tx, "other", 0),
        false,
    ),
    (
        "one of many files",
        read_many,
        |tx| change(tx, "many/3", 0),
        true,
    ),
];

fn read(tx: &Transaction, name: &str, page: usize) {
    let file = tx.open(name).expect("opened");
    file.read_at(&mut [0; 16], (page * PAGE) as u64)
        .expect("read");
}

fn read_two(tx: &Transaction) {
    read(tx, "long", 1);
    read(tx, "long", 7);
}

fn length(tx: &Transaction) {
    let file = tx.open("long").expect("opened");
    assert_eq!(file.length().expect("known"), 8 * PAGE as u64);
}

fn metadata(tx: &Transaction) {
    let file = tx.open("long").expect("opened");
    file.metadata().expect("known");
}

fn read_and_rename(tx: &Transaction) {
    read(tx, "long", 5);
    tx.rename("long", "moved").expect("renamed");
    tx.write("long", "new").expect("written");
}

fn read_new(tx: &Transaction) {
    tx.write("fresh", "new").expect("written");
    assert_eq!(tx.read("fresh").expect("read"), b"new");
}

/// More files than the library keeps open until the commit.
fn read_many(tx: &Transaction) {
    for number in 0..300 {
        read(tx, &format!("many/{number}"), 0);
    }
}

fn in_place(tx: &Transaction, name: &str, at: u64) {
    let mut options = OpenOptions::new();
    options.write(true).in_place(true);
    let file = tx.open_with(name, &options).expect("opened");
    file.write_all_at(b"changed", at).expect("written");
}

fn change(tx: &Transaction, name: &str, page: usize) {
    in_place(tx, name, (page * PAGE) as u64);
}

fn append(tx: &Transaction, name: &str) {
    let length = tx.metadata(name).expect("known").len;
    in_place(tx, name, length);
}

fn set_xattr(tx: &Transaction) {
    tx.set_xattr("long", "user.one", "1").expect("set");
}

fn put(tx: &Transaction, name: &str) {
    tx.write(name, "new").expect("written");
}

fn remove(tx: &Transaction, name: &str) {
    tx.remove_file(name).expect("removed");
}

fn prepare(store: &Store) {
    let tx = store.begin().expect("begun");
    for name in ["none", "moved", "fresh", "mine"] {
        let _ = tx.remove_file(name);
    }
    for name in ["long", "other"] {
        tx.write(name, vec![b'.'; 8 * PAGE]).expect("written");
    }
    if !tx.exists("many").expect("known") {
        tx.create_dir("many").expect("made");
        for number in 0..300 {
            tx.write(format!("many/{number}"), "old").expect("written");
        }
    }
    tx.commit().expect("nobody is in the way");
}

fn check(store: &Store) {
    for (name, reads, changes, is_conflict) in CASES {
        prepare(store);
        let options = store.transaction().isolation(Isolation::Serializable);
        let reader = options.own_reads_only(true).begin().expect("begun");
        reads(&reader);
        let writer = store.begin().expect("begun");
        changes(&writer);
        writer.commit().expect("it is first");
        put(&reader, "mine");
        match reader.commit() {
            Ok(_) => assert!(!is_conflict, "{name}"),
            Err(CommitError::Conflict { .. }) => assert!(is_conflict, "{name}"),
            Err(error) => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn own_reads_conflict_alike_embedded_and_through_the_service() {
    let name = "own_reads_conflict_alike_embedded_and_through_the_service";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        let open = |door| StoreOptions::new().door(door).open(base);
        let embedded = open(Door::Embedded).expect("opened");
        check(&embedded);
        embedded.close().expect("closed");
        call_here(base, &["service", "start"]).expect(0);
        check(&open(Door::Service).expect("it runs"));
        call_here(base, &["service", "stop"]).expect(0);
    });
}
