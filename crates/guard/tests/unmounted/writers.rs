//! Calls wait for transactions that have written what they change, if the store is set so.

use std::sync::{Arc, Condvar, Mutex};

use atomdir_disk::{Errno, NewNode, RenameMode, SetAttributes};
use atomdir_engine::{BeginOptions, Credentials, Durability, LockMode, LockRequest, LockScope};
use atomdir_engine::{Patience, Portion};
use atomdir_fuse::{Filesystem, Request};

use crate::program::{Files, ROOT};
use crate::waits::{KINDS, Tree, request};
use crate::world::{Open, options};

fn waiting_tree() -> Tree {
    let tree = Tree::new();
    tree.world.store.wait_for_writers(true);
    tree
}

fn found(open: &Open, path: &str) -> u64 {
    let names = path.split('/');
    names.fold(ROOT, |node, name| {
        open.find(node, name.as_bytes()).expect("found").0
    })
}

fn change(open: &Open, what: &str) {
    let (d, f) = (found(open, "d"), found(open, "d/f"));
    let files: &dyn Files = &**open;
    match what {
        "write" => files.write(f, Some(8192), b"mine"),
        "append" => files.write(f, None, b"mine"),
        "mode" => files.change(
            f,
            SetAttributes {
                mode: Some(0o644),
                ..SetAttributes::default()
            },
        ),
        "remove" => files.unlink(d, b"f"),
        "replace" => files.rename((d, b"x"), (d, b"f"), RenameMode::Replace),
        "make" => files.create(d, b"new", NewNode::File, 0o644),
        "elsewhere" => files.write(found(open, "e/y"), Some(0), b"mine"),
        _ => panic!("{what}"),
    }
    .expect("changed");
}

/// Which calls wait for a transaction that has done what.
fn written() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut file = vec![
        "write",
        "write far",
        "append",
        "cut off",
        "cut off far",
        "allocate",
        "mode",
        "attribute",
        "no attribute",
        "unlink",
        "rename from",
        "rename over",
        "exchange",
        "link",
    ];
    let all = ["write", "append", "mode"].map(|what| (what, file.clone()));
    let mut written = all.to_vec();
    // The directory with the entry.
    file.push("move above");
    written.push(("remove", file.clone()));
    written.push(("replace", file));
    written.push(("make", vec!["make new", "move above"]));
    written.push(("elsewhere", Vec::new()));
    written
}

#[test]
fn calls_wait_for_transactions_that_have_written_what_they_change() {
    let mut unique = 100;
    for (what, waiting) in written() {
        for (number, kind) in KINDS.iter().enumerate() {
            let both = format!("{kind}, after {what}");
            let tree = waiting_tree();
            let writer = tree.begin();
            change(&writer, what);
            unique += 1;
            let called = tree.call(kind, unique);
            if !waiting.contains(kind) {
                assert_eq!(called, Ok(()), "{both}");
                continue;
            }
            assert_eq!(called, Err(Errno::INPROGRESS), "{both}");
            assert_eq!(tree.call(kind, unique), Err(Errno::INPROGRESS), "{both}");
            assert_eq!(tree.world.guarded.waiting(), 1);
            // One that writes later is not waited for.
            let later = tree.begin();
            change(&later, what);
            if number % 2 == 0 {
                tree.world.store.abort(&writer);
                assert_eq!(tree.call(kind, unique), Ok(()), "{both}");
            } else {
                // The call did nothing, so there is no conflict.
                tree.world.store.commit(&writer).expect("it commits");
                assert_ne!(tree.call(kind, unique), Err(Errno::INPROGRESS), "{both}");
            }
            assert_eq!(tree.world.guarded.waiting(), 0);
        }
    }
}

#[test]
fn calls_win_unless_the_store_is_set_otherwise() {
    let tree = Tree::new();
    let writer = tree.begin();
    change(&writer, "write");
    assert_eq!(tree.call("write far", 2), Ok(()));
    let committed = tree.world.store.commit(&writer);
    assert!(committed.is_err(), "{committed:?}");
    tree.world.store.abort(&writer);
    // What was written before counts as well, and nobody waits any more once that is over.
    let writer = tree.begin();
    change(&writer, "write");
    tree.world.store.wait_for_writers(true);
    assert_eq!(tree.call("cut off", 3), Err(Errno::INPROGRESS));
    tree.world.store.wait_for_writers(false);
    assert_eq!(tree.call("cut off", 3), Ok(()));
    assert!(tree.world.store.commit(&writer).is_err());
}

/// Nested transactions, forks, and those with a newer snapshot or savepoints. Parts that have landed
/// are over.
#[test]
fn calls_wait_for_every_kind_of_transaction() {
    let tree = waiting_tree();
    let store = &tree.world.store;
    let waits = |unique| tree.call("write", unique) == Err(Errno::INPROGRESS);
    let outer = tree.begin();
    let nested = store.begin_nested(&outer, options()).expect("it begins");
    change(&nested, "write");
    assert!(waits(2));
    store.commit(&nested).expect("it commits");
    assert!(waits(2));
    let fork = store.fork(&outer, options()).expect("it begins");
    tree.world.guarded.gave_up(2);
    store.abort(&outer);
    assert!(waits(3), "the fork has written it as well");
    // Others change the directory above, so the file has another place in the new snapshot.
    let other = tree.begin();
    let (from, to): ((_, &[u8]), (_, &[u8])) = ((ROOT, b"d"), (ROOT, b"moved"));
    Files::rename(&*other, from, to, RenameMode::NoReplace).expect("renamed");
    store.commit(&other).expect("it commits");
    store.refresh(&fork).expect("refreshed");
    assert!(waits(4));
    fork.set_savepoint(b"here").expect("set");
    fork.roll_back(b"here").expect("it was set");
    assert!(waits(4));
    let paths = [b"moved/f".to_vec()];
    store
        .commit_portion(&fork, Portion::part(&paths), &mut |_| {})
        .expect("it lands");
    assert!(!waits(3) && !waits(4) && !waits(5));
    assert_eq!(tree.world.guarded.waiting(), 0);
}

/// A call would be in the way of a lazy commit that is not in the base yet.
#[test]
fn calls_wait_until_lazy_commits_are_in_the_base() {
    let tree = waiting_tree();
    let store = &tree.world.store;
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let writer = store.begin(lazy).expect("it begins");
    change(&writer, "write");
    store.commit(&writer).expect("it commits");
    for unique in [2, 3] {
        assert_eq!(tree.call("write", unique), Err(Errno::INPROGRESS));
    }
    store.sync().expect("applied");
    for unique in [2, 3] {
        // Nobody has the file open, so it may be another one now.
        assert_ne!(tree.call("write", unique), Err(Errno::INPROGRESS));
    }
    assert!(store.set_aside().is_empty());
    let (f, _) = tree.world.guarded.find(tree.d, b"f").expect("found");
    let read = tree.world.guarded.contents(f, 8196).expect("read");
    assert_eq!(&read[8192..], b"mine");
}

struct Bell(Mutex<bool>, Condvar);

/// Asks for a lock, and waits for it until the test rings.
fn lock_waiting(tree: &Tree, open: &Open, path: &str, bell: &Arc<Bell>) -> bool {
    let request = LockRequest {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        paths: vec![path.as_bytes().to_vec()],
    };
    let root = Credentials {
        user: 0,
        groups: vec![0],
    };
    let woken = bell.clone();
    let mut patience = Patience {
        wake: Arc::new(move || {
            *woken.0.lock().expect("unlocked") = true;
            woken.1.notify_all();
        }),
        wait: &mut || {
            let mut rung = bell.0.lock().expect("unlocked");
            while !std::mem::take(&mut *rung) {
                rung = bell.1.wait(rung).expect("unlocked");
            }
            true
        },
    };
    let locked = tree.world.store.lock(open, &request, &root, &mut patience);
    locked.is_ok()
}

/// A writer that asks for a lock never waits for a call that waits for it, and a call waits for the locks
/// that are held when the writers that were there before it have ended.
#[test]
fn no_transaction_waits_for_a_call_that_waits_for_it() {
    let tree = waiting_tree();
    let (holder, writer) = (tree.begin(), tree.begin());
    assert!(tree.lock(&holder, LockMode::Shared, LockScope::Object, "d/f"));
    change(&writer, "write");
    assert_eq!(tree.call("cut off", 2), Err(Errno::INPROGRESS));
    tree.world.store.unlock(&holder, None);
    assert!(tree.lock(&writer, LockMode::Exclusive, LockScope::Object, "d/f"));
    tree.world.store.commit(&writer).expect("it commits");
    assert!(tree.lock(&holder, LockMode::Shared, LockScope::Object, "d/x"));
    assert_ne!(tree.call("cut off", 2), Err(Errno::INPROGRESS));
    let tree = waiting_tree();
    let (holder, writer) = (tree.begin(), tree.begin());
    change(&writer, "write");
    assert_eq!(tree.call("cut off", 3), Err(Errno::INPROGRESS));
    assert!(tree.lock(&holder, LockMode::Shared, LockScope::Object, "d/f"));
    tree.world.store.abort(&writer);
    assert_eq!(tree.call("cut off", 3), Err(Errno::INPROGRESS));
    tree.world.store.abort(&holder);
    assert_eq!(tree.call("cut off", 3), Ok(()));
}

const A: u32 = 4_000_000_001;
const B: u32 = 4_000_000_002;

fn of(process: u32, unique: u64) -> Request {
    Request {
        process,
        ..request(unique)
    }
}

#[test]
fn no_process_waits_for_itself_by_way_of_others() {
    let tree = waiting_tree();
    let guarded = &tree.world.guarded;
    let (of_a, of_b) = (tree.begin(), tree.begin());
    let (a, b) = (of_a.id(), of_b.id());
    guarded.tell_holders(Box::new(move |transaction, process| {
        (transaction, process) == (a, A) || (transaction, process) == (b, B)
    }));
    let (e, _) = guarded.find(ROOT, b"e").expect("found");
    let (y, _) = guarded.find(e, b"y").expect("found");
    let write = |node, request: Request| Filesystem::write(guarded, &request, node, 0, b"n", false);
    change(&of_a, "elsewhere");
    change(&of_b, "write");
    // Each waits for what the other has written.
    assert_eq!(write(tree.f, of(A, 2)), Err(Errno::INPROGRESS));
    assert_eq!(write(y, of(B, 3)), Err(Errno::DEADLK));
    assert_eq!(write(y, of(A, 4)), Err(Errno::DEADLK));
    guarded.gave_up(2);
    assert_eq!(write(y, of(B, 5)), Err(Errno::INPROGRESS));
    guarded.gave_up(5);
    // Its transaction waits for a lock of the process whose call waits for it.
    assert!(tree.lock(&of_a, LockMode::Exclusive, LockScope::Object, "d/x"));
    assert_eq!(write(tree.f, of(A, 6)), Err(Errno::INPROGRESS));
    std::thread::scope(|scope| {
        let bell = Arc::new(Bell(Mutex::default(), Condvar::new()));
        let (tree, of_b) = (&tree, &of_b);
        let thread = scope.spawn(move || lock_waiting(tree, of_b, "d/x", &bell));
        while tree.world.store.locks(of_b).is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(write(tree.f, of(A, 6)), Err(Errno::DEADLK));
        tree.world.store.abort(&of_a);
        assert!(thread.join().expect("no panic"));
    });
}
