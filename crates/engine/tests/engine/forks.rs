//! Forks of transactions: second ones that begin with the state of the first, and are independent.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::sync::Arc;

use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{
    BeginOptions, CommitError, Conflicts, ForkError, Isolation, NewNode, NodeId, Portion, Store,
    Transaction,
};

use crate::support::model::{Model, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open, options, seeds};

type Open = Arc<Transaction<LinuxDisk>>;

fn fork(store: &Store<LinuxDisk>, of: &Open) -> Open {
    store.fork(of, options()).expect("a fork begins")
}

/// Plays with several transactions, each of which is a fork of an earlier one, in turns. Each shows
/// what its own model says all the time, and so does the base after the one that is committed.
#[test]
fn forks_match_models_of_their_own() {
    for seed in seeds(60) {
        println!("ATOMDIR_SEED={seed}");
        let mut random = Random::new(seed);
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open(&scratch.0);
        let mut model = Model::new();
        for _ in 0..4 {
            let mut all = vec![(begin(&store), model.clone())];
            for _ in 0..3 + random.below(8) {
                let chosen = random.below(all.len());
                let (transaction, model) = &mut all[chosen];
                if random.below(6) == 0 {
                    transaction.set_savepoint(b"here").expect("it is set");
                }
                for _ in 0..random.below(10) {
                    model.step(&mut random, transaction);
                }
                if random.below(3) == 0 {
                    let forked = (fork(&store, transaction), model.clone());
                    all.push(forked);
                }
                if all.len() > 1 && random.below(8) == 0 {
                    let ended = all.remove(random.below(all.len()));
                    store.abort(&ended.0);
                }
                for (transaction, model) in &all {
                    assert_eq!(tree_of_view(transaction), model.tree(), "seed {seed}");
                }
            }
            let (chosen, after) = all.remove(random.below(all.len()));
            store.commit(&chosen).expect("nobody is in the way");
            model = after;
            for (left, model) in &all {
                assert_eq!(tree_of_view(left), model.tree(), "seed {seed}");
                store.abort(left);
            }
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        }
        drop(store);
        store = open(&scratch.0);
        assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
    }
}

fn write(view: &Open, name: &[u8], contents: &[u8]) {
    let node = match view.lookup(NodeId::ROOT, name) {
        Ok(found) => found.node,
        Err(_) => {
            let made = view.create(NodeId::ROOT, name, NewNode::File, 0o644, 0, caller());
            made.expect("a file is made").node
        }
    };
    view.write(node, 0, contents, false)
        .expect("a file is written");
}

/// Both forks of one state can land: what they have in common is no conflict, what they have changed
/// differently is.
#[test]
fn of_two_forks_the_first_to_commit_wins() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let (first, mut others) = (begin(&store), Vec::new());
    write(&first, b"common", b"the same");
    for name in [&b"alone"[..], b"differs"] {
        let other = fork(&store, &first);
        write(&other, name, b"of a fork");
        others.push(other);
    }
    write(&first, b"differs", b"of the first");
    store.commit(&first).expect("nobody is in the way");
    store
        .commit(&others[0])
        .expect("what is in both is the same");
    let refused = store.commit(&others[1]);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    let read = |name: &str| fs::read(scratch.0.join(name)).expect("it is there");
    assert_eq!(read("common"), b"the same");
    assert_eq!(read("alone"), b"of a fork");
    assert_eq!(read("differs"), b"of the first");
}

/// A fork shows the snapshot of the first transaction, also when that one has ended.
#[test]
fn a_fork_keeps_the_snapshot_of_a_transaction_that_has_ended() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("old"), "before").expect("written");
    let store = open(&scratch.0);
    let first = begin(&store);
    let other = begin(&store);
    write(&other, b"old", b"after!");
    store.commit(&other).expect("nobody is in the way");
    let forked = fork(&store, &first);
    store.abort(&first);
    let found = forked.lookup(NodeId::ROOT, b"old").expect("it is there");
    let mut contents = vec![0; 6];
    forked
        .read(found.node, 0, &mut contents, caller())
        .expect("read");
    assert_eq!(contents, b"before");
}

/// It also has what the first one has landed, and does not conflict with that.
#[test]
fn a_fork_of_a_transaction_that_has_landed_a_part() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let first = begin(&store);
    write(&first, b"landed", b"one");
    write(&first, b"left", b"two");
    store
        .commit_portion(&first, Portion::part(&[b"landed".to_vec()]), &mut |_| {})
        .expect("a part lands");
    let forked = fork(&store, &first);
    store.abort(&first);
    write(&forked, b"landed", b"ONE");
    store.commit(&forked).expect("nobody is in the way");
    let read = |name: &str| fs::read(scratch.0.join(name)).expect("it is there");
    assert_eq!(
        (read("landed"), read("left")),
        (b"ONE".to_vec(), b"two".to_vec())
    );
}

fn has(view: &Open, name: &[u8]) -> bool {
    view.lookup(NodeId::ROOT, name).is_ok()
}

fn land(store: &Store<LinuxDisk>, of: &Open, name: &[u8]) {
    store
        .commit_portion(of, Portion::part(&[name.to_vec()]), &mut |_| {})
        .expect("a part lands");
}

/// Each of the two finds at a name what it has there, whichever has looked first, and whatever the
/// other one has landed there since.
#[test]
fn names_that_one_of_two_forks_lands_are_found_by_that_one_alone() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let first = begin(&store);
    let forked = fork(&store, &first);
    write(&first, b"of the first", b"one");
    write(&forked, b"of the fork", b"two");
    for (one, other, name) in [
        (&first, &forked, &b"of the first"[..]),
        (&forked, &first, b"of the fork"),
    ] {
        land(&store, one, name);
        assert!(!has(other, name));
        assert!(has(one, name));
        let before = other.lookup(NodeId::ROOT, name).err();
        assert_eq!(before, Some(Errno::NOENT));
    }
}

fn page(view: &Open, name: &[u8], page: u64) -> u8 {
    let node = view.lookup(NodeId::ROOT, name).expect("it is there").node;
    let mut byte = [0];
    let read = view.read(node, page * 4096, &mut byte, caller());
    read.expect("read");
    byte[0]
}

fn write_page(view: &Open, name: &[u8], page: u64, byte: u8) {
    let node = view.lookup(NodeId::ROOT, name).expect("it is there").node;
    view.write(node, page * 4096, &[byte; 4096], false)
        .expect("written");
}

/// A file of which a fork has changed a part shows the rest as in the fork's snapshot, even if the
/// first one has landed another part, or has got a newer snapshot, and then changed it again.
#[test]
fn a_changed_file_shows_what_its_own_fork_began_with() {
    for lands in [true, false] {
        let scratch = Scratch::new();
        create(&scratch.0);
        fs::write(scratch.0.join("old"), vec![b'o'; 3 * 4096]).expect("written");
        let store = open(&scratch.0);
        let first = begin(&store);
        let forked = fork(&store, &first);
        write_page(&forked, b"old", 0, b'f');
        match lands {
            true => {
                write_page(&first, b"old", 2, b'1');
                land(&store, &first, b"old");
            }
            false => {
                let other = begin(&store);
                write_page(&other, b"old", 2, b'1');
                store.commit(&other).expect("nobody is in the way");
                store.refresh(&first).expect("refreshed");
            }
        }
        write_page(&first, b"old", 1, b'1');
        let shown = |view: &Open| [0, 1, 2].map(|number| page(view, b"old", number));
        assert_eq!(shown(&first), *b"o11", "lands: {lands}");
        assert_eq!(shown(&forked), *b"foo", "lands: {lands}");
    }
}

fn serializable() -> BeginOptions {
    BeginOptions {
        isolation: Isolation::Serializable,
        ..options()
    }
}

/// Checks that the fork's commit is refused once another transaction has changed the file `read`.
fn assert_has_read(store: &Store<LinuxDisk>, forked: &Open) {
    let other = begin(store);
    write(&other, b"read", b"after!");
    store.commit(&other).expect("nobody is in the way");
    let refused = store.commit(forked);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
}

/// What the first transaction has read counts for the fork, which shows what followed from it.
#[test]
fn a_fork_of_a_serializable_transaction_has_its_reads() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("read"), "before").expect("written");
    let store = open(&scratch.0);
    let first = store.begin(serializable()).expect("begun");
    let found = first.lookup(NodeId::ROOT, b"read").expect("it is there");
    let mut contents = [0; 6];
    first
        .read(found.node, 0, &mut contents, caller())
        .expect("read");
    write(&first, b"copy", &contents);
    let forked = fork(&store, &first);
    store.abort(&first);
    assert_has_read(&store, &forked);
}

/// So does what the transaction has read in which the first one is nested.
#[test]
fn a_fork_of_a_nested_serializable_transaction_has_the_reads_of_the_outer_one() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("read"), "before").expect("written");
    let store = open(&scratch.0);
    let outer = store.begin(serializable()).expect("begun");
    assert_eq!(page(&outer, b"read", 0), b'b');
    write(&outer, b"copy", b"before");
    let middle = store.begin_nested(&outer, serializable()).expect("begun");
    let nested = store.begin_nested(&middle, serializable()).expect("begun");
    let forked = fork(&store, &nested);
    store.abort(&outer);
    assert_has_read(&store, &forked);
}

#[test]
fn what_cannot_be_forked_says_so() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let refused = |of: &Open| store.fork(of, options()).err();
    let options = BeginOptions {
        conflicts: Conflicts::Early,
        ..options()
    };
    let early = store.begin(options).expect("begun");
    assert!(matches!(refused(&early), Some(ForkError::Early)));
    let frozen = begin(&store);
    frozen.freeze().expect("frozen");
    assert!(matches!(refused(&frozen), Some(ForkError::Frozen)));
    store.abort(&frozen);
    assert!(matches!(refused(&frozen), Some(ForkError::Ended)));
}

/// Objects of every kind, old and new, with all that belongs to them.
#[test]
fn a_fork_has_objects_of_every_kind() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::create_dir(scratch.0.join("dir")).expect("made");
    fs::write(scratch.0.join("dir/old"), vec![b'o'; 20_000]).expect("written");
    symlink("dir/old", scratch.0.join("link")).expect("made");
    let store = open(&scratch.0);
    let first = begin(&store);
    let at = |name: &[u8]| first.lookup(NodeId::ROOT, name).map(|found| found.node);
    let make = |name: &[u8], node: NewNode, mode: u32| {
        let made = first.create(NodeId::ROOT, name, node, mode, 0, caller());
        made.expect("made").node
    };
    let made = make(b"new", NewNode::Directory, 0o700);
    first
        .create(made, b"inner", NewNode::File, 0o600, 0, caller())
        .expect("made");
    make(b"pipe", NewNode::Fifo, 0o640);
    let file = make(b"marked", NewNode::File, 0o444);
    first
        .set_xattr(file, b"user.mark", b"yes", 0, false)
        .expect("marked");
    first
        .link(file, NodeId::ROOT, b"second name")
        .expect("linked");
    let dir = at(b"dir").expect("it is there");
    let old = first.lookup(dir, b"old").expect("it is there").node;
    first
        .write(old, 8000, b"in the middle", false)
        .expect("written");
    let forked = fork(&store, &first);
    assert_eq!(forked.changes(), first.changes());
    store.abort(&first);
    store.commit(&forked).expect("nobody is in the way");

    let path = |name: &str| scratch.0.join(name);
    let stat = |name: &str| fs::symlink_metadata(path(name)).expect("it is there");
    assert!(stat("pipe").file_type().is_fifo() && stat("link").is_symlink());
    assert_eq!(stat("new").mode() & 0o7777, 0o700);
    assert_eq!(stat("new/inner").mode() & 0o7777, 0o600);
    let marked = stat("marked");
    assert_eq!(
        (marked.nlink(), marked.ino()),
        (2, stat("second name").ino())
    );
    let mark = rustix::fs::getxattr(path("marked"), "user.mark", &mut [0; 8]);
    assert_eq!(mark, Ok(3));
    let contents = fs::read(path("dir/old")).expect("read");
    assert_eq!(contents[8000..8013], *b"in the middle");
    assert!(contents.len() == 20_000 && contents[8013] == b'o');
    assert_eq!(first.lookup(NodeId::ROOT, b"new").err(), Some(Errno::STALE));
}
