//! Calls wait for locks of transactions: which calls for which locks, and how the wait ends.

use atomdir_disk::{Errno, NewNode, RenameMode, SetAttributes};
use atomdir_engine::{Credentials, LockError, LockMode, LockRequest, LockScope, Patience};
use atomdir_fuse::{Filesystem, Request};
use std::sync::Arc;
use std::time::Duration;

use crate::program::{Files, ROOT};
use crate::world::{Open, World, options};

pub const KINDS: [&str; 18] = [
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
    "move above",
    "link",
    "make",
    "make new",
    "remove directory",
];
const FILE: [&str; 14] = [
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
    "move above",
];
const NAMES: [&str; 9] = [
    "unlink",
    "rename from",
    "rename over",
    "exchange",
    "move above",
    "link",
    "make",
    "make new",
    "remove directory",
];
const FIRST_PAGE: [&str; 8] = [
    "write",
    "cut off",
    "allocate",
    "unlink",
    "rename from",
    "rename over",
    "exchange",
    "move above",
];

pub fn request(unique: u64) -> Request {
    Request {
        unique,
        user: 0,
        group: 0,
        process: 0,
    }
}

/// A tree, and the nodes of some of its objects.
pub struct Tree {
    pub world: World,
    pub d: u64,
    pub f: u64,
}

impl Tree {
    pub fn new() -> Tree {
        let world = World::new();
        let root = world.root();
        std::fs::create_dir_all(root.join("d/empty")).expect("made");
        std::fs::write(root.join("d/f"), vec![b'o'; 12_288]).expect("written");
        std::fs::write(root.join("d/x"), "x").expect("written");
        std::fs::create_dir(root.join("e")).expect("made");
        std::fs::write(root.join("e/y"), "y").expect("written");
        let guarded = &world.guarded;
        let (d, _) = guarded.find(ROOT, b"d").expect("found");
        let (f, _) = guarded.find(d, b"f").expect("found");
        guarded
            .set_xattr(&request(1), f, b"user.old", b"1", 0, false)
            .expect("set");
        Tree { world, d, f }
    }

    pub fn begin(&self) -> Open {
        self.world.store.begin(options()).expect("it begins")
    }

    pub fn lock(&self, open: &Open, mode: LockMode, scope: LockScope, path: &str) -> bool {
        let request = LockRequest {
            mode,
            scope,
            paths: vec![path.as_bytes().to_vec()],
        };
        let root = Credentials {
            user: 0,
            groups: vec![0],
        };
        let mut patience = Patience {
            wake: Arc::new(|| {}),
            wait: &mut || false,
        };
        match self.world.store.lock(open, &request, &root, &mut patience) {
            Ok(()) => true,
            Err(LockError::Held(_)) => false,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub fn call(&self, kind: &str, unique: u64) -> Result<(), Errno> {
        let (guarded, request) = (&self.world.guarded, &request(unique));
        let (d, f) = (self.d, self.f);
        let change = |change: SetAttributes| guarded.set_attributes(request, f, change).map(drop);
        let rename = |from: (u64, &[u8]), to: (u64, &[u8]), mode| {
            Filesystem::rename(guarded, request, from, to, mode)
        };
        let make = |name: &[u8], what| {
            Filesystem::create(guarded, request, d, name, what, 0o755, 0).map(drop)
        };
        match kind {
            "write" => Filesystem::write(guarded, request, f, 100, b"new", false),
            "write far" => Filesystem::write(guarded, request, f, 8192, b"new", false),
            "append" => guarded.append(request, f, 12_288, b"new", false),
            "cut off" => change(SetAttributes {
                length: Some(10),
                ..SetAttributes::default()
            }),
            "cut off far" => change(SetAttributes {
                length: Some(8192),
                ..SetAttributes::default()
            }),
            "allocate" => guarded.allocate(request, f, 0, 0, 20_000),
            "mode" => change(SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            }),
            "attribute" => guarded.set_xattr(request, f, b"user.a", b"1", 0, false),
            "no attribute" => guarded.remove_xattr(request, f, b"user.old"),
            "unlink" => Filesystem::unlink(guarded, request, d, b"f"),
            "rename from" => rename((d, b"f"), (d, b"g"), RenameMode::Replace),
            "rename over" => rename((d, b"x"), (d, b"f"), RenameMode::Replace),
            "exchange" => rename((d, b"x"), (d, b"f"), RenameMode::Exchange),
            "move above" => rename((ROOT, b"d"), (ROOT, b"moved"), RenameMode::NoReplace),
            "link" => Filesystem::link(guarded, request, f, d, b"l").map(drop),
            "make" => make(b"made", NewNode::Directory),
            "make new" => make(b"new", NewNode::File),
            "remove directory" => Filesystem::remove_directory(guarded, request, d, b"empty"),
            _ => panic!("{kind}"),
        }
    }
}

/// Which calls wait for a lock on what.
fn locks() -> Vec<(&'static str, LockScope, Vec<&'static str>)> {
    let first = LockScope::Bytes {
        start: 0,
        end: 4096,
    };
    let mut file = FILE.to_vec();
    file.push("link");
    vec![
        ("d/f", LockScope::Object, file),
        ("d/f", first, FIRST_PAGE.to_vec()),
        ("d", LockScope::Object, NAMES.to_vec()),
        ("d", LockScope::Subtree, KINDS.to_vec()),
        ("d/new", LockScope::Object, vec!["make new", "move above"]),
        ("e", LockScope::Subtree, Vec::new()),
        ("e/y", LockScope::Object, Vec::new()),
    ]
}

#[test]
fn calls_wait_for_locks_on_what_they_change() {
    let mut unique = 100;
    for (path, scope, waiting) in locks() {
        for mode in [LockMode::Shared, LockMode::Exclusive] {
            for (number, kind) in KINDS.iter().enumerate() {
                let what = format!("{kind}, {mode:?} lock on {path}, {scope:?}");
                if path == "d/new" && mode == LockMode::Shared {
                    continue;
                }
                let tree = Tree::new();
                let holder = tree.begin();
                assert!(tree.lock(&holder, mode, scope, path), "{what}");
                unique += 1;
                let called = tree.call(kind, unique);
                if !waiting.contains(kind) {
                    assert_eq!(called, Ok(()), "{what}");
                    continue;
                }
                assert_eq!(called, Err(Errno::INPROGRESS), "{what}");
                assert_eq!(tree.call(kind, unique), Err(Errno::INPROGRESS), "{what}");
                assert_eq!(tree.world.guarded.waiting(), 1);
                // Reads do not wait.
                let guarded = &tree.world.guarded;
                assert_eq!(guarded.contents(tree.f, 2), Ok(b"oo".to_vec()), "{what}");
                assert_eq!(guarded.names(tree.d).map(|names| names.len()), Ok(3));
                match number % 3 {
                    0 => drop(tree.world.store.abort(&holder)),
                    1 => drop(tree.world.store.commit(&holder).expect("it commits")),
                    _ => assert_eq!(tree.world.store.unlock(&holder, None), 1),
                }
                assert_eq!(tree.call(kind, unique), Ok(()), "{what}");
                assert_eq!(tree.world.guarded.waiting(), 0);
            }
        }
    }
}

#[test]
fn mapped_writes_do_not_wait() {
    let tree = Tree::new();
    let holder = tree.begin();
    assert!(tree.lock(&holder, LockMode::Exclusive, LockScope::Object, "d/f"));
    let guarded = &tree.world.guarded;
    let written = guarded.write_back(&request(2), tree.f, 0, b"new", false);
    assert_eq!(written, Ok(()));
}

/// Requests for locks and calls take their turns as they came.
#[test]
fn neither_locks_nor_calls_starve() {
    let tree = Tree::new();
    let (first, second) = (tree.begin(), tree.begin());
    let lock = |open: &Open| tree.lock(open, LockMode::Exclusive, LockScope::Object, "d/f");
    assert!(lock(&first));
    assert_eq!(tree.call("cut off", 2), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("write", 3), Err(Errno::INPROGRESS));
    // One that came later does not overtake the calls, even when nobody holds the lock any more.
    tree.world.store.unlock(&first, None);
    assert!(!lock(&second));
    assert_eq!(tree.call("write", 3), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("cut off", 2), Ok(()));
    assert!(!lock(&second));
    // The other one is interrupted.
    tree.world.guarded.gave_up(3);
    assert!(lock(&second));
    assert_eq!(tree.world.guarded.waiting(), 0);
    tree.world.store.abort(&second);
    assert_eq!(tree.call("write", 4), Ok(()));
}

#[test]
fn the_kernel_looks_again_if_a_commit_has_changed_what_it_has_checked() {
    let tree = Tree::new();
    let lock = |open: &Open| tree.lock(open, LockMode::Exclusive, LockScope::Subtree, "d");
    let guarded = &tree.world.guarded;
    // Another object has the name.
    let holder = tree.begin();
    assert!(lock(&holder));
    assert_eq!(tree.call("unlink", 2), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("make new", 3), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("remove directory", 4), Err(Errno::INPROGRESS));
    let (d, _) = holder.find(ROOT, b"d").expect("found");
    Files::rename(&*holder, (d, b"x"), (d, b"f"), RenameMode::Replace).expect("renamed");
    Files::create(&*holder, d, b"new", NewNode::File, 0o644).expect("made");
    tree.world.store.commit(&holder).expect("it commits");
    assert_eq!(tree.call("unlink", 2), Err(Errno::STALE));
    assert_eq!(tree.call("make new", 3), Err(Errno::STALE));
    assert_eq!(tree.call("remove directory", 4), Ok(()));
    assert_eq!(guarded.find(tree.d, b"new").map(drop), Ok(()));
    // Another mode.
    let tree = Tree::new();
    let holder = tree.begin();
    assert!(tree.lock(&holder, LockMode::Exclusive, LockScope::Object, "d/f"));
    assert_eq!(tree.call("attribute", 2), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("write", 3), Err(Errno::INPROGRESS));
    let (d, _) = holder.find(ROOT, b"d").expect("found");
    let (f, _) = holder.find(d, b"f").expect("found");
    let change = SetAttributes {
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    Files::change(&*holder, f, change).expect("changed");
    tree.world.store.commit(&holder).expect("it commits");
    assert_eq!(tree.call("attribute", 2), Err(Errno::STALE));
    assert_eq!(tree.call("attribute", 4), Ok(()));
    // The program has the file open.
    assert_eq!(tree.call("write", 3), Ok(()));
}

#[test]
fn waits_that_hold_up_others_are_limited() {
    let tree = Tree::new();
    let guarded = &tree.world.guarded;
    let holder = tree.begin();
    assert!(tree.lock(&holder, LockMode::Exclusive, LockScope::Subtree, "d"));
    // The kernel begins no other rename between directories meanwhile.
    let name: &[u8] = b"f";
    let (from, to) = ((tree.d, name), (ROOT, name));
    let renamed = Filesystem::rename(guarded, &request(2), from, to, RenameMode::Replace);
    assert_eq!(renamed, Err(Errno::BUSY));
    // Names.
    guarded.limit_waits(Duration::ZERO);
    assert_eq!(tree.call("unlink", 3), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("mode", 4), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("unlink", 3), Err(Errno::BUSY));
    assert_eq!(tree.call("mode", 4), Err(Errno::INPROGRESS));
    // The number of each user's.
    let as_user = |user: u32, unique: u64| {
        let request = Request {
            user,
            ..request(unique)
        };
        Filesystem::write(guarded, &request, tree.f, 0, b"new", false)
    };
    let waits = |user: u32| {
        let mut numbers = 0..1000_u64;
        let refused = numbers.find(|number| {
            as_user(user, 10_000 * u64::from(user) + number) != Err(Errno::INPROGRESS)
        });
        let refused = refused.expect("there is a limit");
        assert_eq!(as_user(user, 77), Err(Errno::BUSY));
        refused
    };
    assert_eq!((waits(5), waits(6)), (64, 64));
    assert_eq!(guarded.waiting(), 129);
    tree.world.store.abort(&holder);
    assert_eq!(tree.call("mode", 4), Ok(()));
}

#[test]
fn no_process_waits_for_itself() {
    let tree = Tree::new();
    let holder = tree.begin();
    let id = holder.id();
    let guarded = &tree.world.guarded;
    guarded.tell_holders(Box::new(move |transaction, process| {
        transaction == id && process == std::process::id()
    }));
    assert!(tree.lock(&holder, LockMode::Shared, LockScope::Object, "d/f"));
    let own = Request {
        process: std::process::id(),
        ..request(2)
    };
    let written = |request: &Request| Filesystem::write(guarded, request, tree.f, 0, b"n", false);
    assert_eq!(written(&own), Err(Errno::DEADLK));
    assert_eq!(guarded.waiting(), 0);
    // Nor does one of its threads.
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            assert_ne!(thread.unsigned_abs(), std::process::id());
            let own = Request {
                process: thread.unsigned_abs(),
                ..request(4)
            };
            assert_eq!(written(&own), Err(Errno::DEADLK));
        });
        thread.join().expect("it does not panic");
    });
    assert_eq!(written(&request(3)), Err(Errno::INPROGRESS));
}

/// Locks that `user.atomdir.lock` grants: it can be changed all the same, and then nothing waits for them.
#[test]
fn what_lets_others_lock_can_be_taken_back() {
    let tree = Tree::new();
    let guarded = &tree.world.guarded;
    let name: &[u8] = b"user.atomdir.lock";
    let other = Credentials {
        user: 5,
        groups: vec![7],
    };
    let lock = |open: &Open| {
        let request = LockRequest {
            mode: LockMode::Exclusive,
            scope: LockScope::Object,
            paths: vec![b"d/f".to_vec()],
        };
        let mut patience = Patience {
            wake: Arc::new(|| {}),
            wait: &mut || false,
        };
        tree.world.store.lock(open, &request, &other, &mut patience)
    };
    assert!(lock(&tree.begin()).is_err());
    let let_lock =
        |unique: u64, who: &[u8]| guarded.set_xattr(&request(unique), tree.f, name, who, 0, false);
    let_lock(2, b"4,@7").expect("set");
    let holder = tree.begin();
    lock(&holder).expect("it may");
    assert_eq!(tree.call("write", 3), Err(Errno::INPROGRESS));
    assert_eq!(tree.call("attribute", 4), Err(Errno::INPROGRESS));
    // One that changes this attribute alone does not wait for them, but for those with a right.
    let_lock(5, b"4").expect("it does not wait");
    assert_eq!(tree.call("write", 3), Ok(()));
    let_lock(6, b"5").expect("it does not wait");
    assert_eq!(tree.call("attribute", 4), Ok(()), "it is over for good");
    tree.world.store.abort(&holder);
    let holder = tree.begin();
    assert!(tree.lock(&holder, LockMode::Exclusive, LockScope::Object, "d/f"));
    assert_eq!(let_lock(7, b"4"), Err(Errno::INPROGRESS));
}
