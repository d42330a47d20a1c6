//! Root takes rights away from a listed user right before the user's commit is applied, or before a
//! recovery applies it again. The commit then does nothing that the kernel would refuse the user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::sync::mpsc::channel;

use crate::support::failing::FailingDisk;
use crate::support::{Scratch, begin, create, open_with, options};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{
    BeginOptions, Caller, Credentials, Durability, NewNode, NodeId, SetAttributes, Store,
    Transaction,
};
use atomdir_testing::skip;

const ROOT: NodeId = NodeId::ROOT;
const USER: u32 = 12_345;
/// Another group of the user.
const GROUP: u32 = 23_456;
const CALLER: Caller = Caller {
    user: USER,
    group: USER,
};
const LIST: &str = "system.posix_acl_access";
/// user::rw-, user:34567:rw-, group::---, mask::rw-, other::---
const LIST_VALUE: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 6, 0, 0x07, 0x87, 0, 0, 4, 0, 0, 0, 255, 255,
    255, 255, 0x10, 0, 6, 0, 255, 255, 255, 255, 0x20, 0, 0, 0, 255, 255, 255, 255,
];

type View = Transaction<FailingDisk>;

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn write(view: &View, path: &str, bytes: &[u8]) {
    let written = view.write(node(view, path), 0, bytes, true);
    written.expect("the view allows it");
}

fn set(view: &View, path: &str, change: SetAttributes) {
    let set = view.set_attributes(node(view, path), change, CALLER);
    set.expect("the view allows it");
}

fn set_mode(view: &View, path: &str, mode: u32) {
    let mode = Some(mode);
    set(
        view,
        path,
        SetAttributes {
            mode,
            ..SetAttributes::default()
        },
    );
}

fn make(view: &View, directory: &str, name: &str) {
    let made = view.create(
        node(view, directory),
        name.as_bytes(),
        NewNode::File,
        0o644,
        0,
        CALLER,
    );
    made.expect("the name is free");
}

/// Does nothing if the commit has moved it already.
fn take_over(path: &Path) {
    let _ = chown(path, Some(0), Some(0));
}

fn close(path: &Path, mode: u32) {
    let _ = fs::set_permissions(path, Permissions::from_mode(mode));
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

fn has_list(path: &Path) -> bool {
    rustix::fs::getxattr(path, LIST, &mut [0; 256]).is_ok()
}

struct Case {
    /// What the user's transaction does.
    change: fn(&View),
    /// What root does before it is applied.
    root: fn(&Path),
    /// What must be true of the base afterwards.
    holds: fn(&Path) -> bool,
}

const CASES: [Case; 17] = [
    Case {
        change: |view| set_mode(view, "d/f", 0o4755),
        root: |root| take_over(&root.join("d/f")),
        holds: |root| mode(&root.join("d/f")) & 0o6000 == 0,
    },
    Case {
        change: |view| {
            write(view, "d/f", b"new");
            set_mode(view, "d/f", 0o6755);
        },
        root: |root| take_over(&root.join("d/f")),
        holds: |root| {
            let meta = fs::metadata(root.join("d/f")).expect("it is there");
            meta.uid() == USER || meta.mode() & 0o6000 == 0
        },
    },
    Case {
        change: |view| set_mode(view, "d/linked", 0o2755),
        root: |root| chown(root.join("d/linked"), None, Some(0)).expect("root may"),
        holds: |root| mode(&root.join("d/linked")) & 0o2000 == 0,
    },
    Case {
        change: |view| set_mode(view, "d/f", 0o666),
        root: |root| {
            take_over(&root.join("d/f"));
            close(&root.join("d/f"), 0o600);
        },
        holds: |root| mode(&root.join("d/f")) == 0o600,
    },
    Case {
        change: |view| write(view, "open", b"new"),
        root: |root| close(&root.join("open"), 0o600),
        holds: |root| fs::read(root.join("open")).expect("root may") == b"old",
    },
    Case {
        change: |view| write(view, "d/linked", b"new"),
        root: |root| {
            take_over(&root.join("d/linked"));
            close(&root.join("d/linked"), 0o600);
        },
        holds: |root| fs::read(root.join("d/linked")).expect("root may") == b"old",
    },
    Case {
        change: |view| make(view, "d", "new"),
        root: |root| take_over(&root.join("d")),
        holds: |root| !root.join("d/new").exists(),
    },
    Case {
        change: |view| {
            let moved = view.rename(
                node(view, "d"),
                b"f",
                node(view, "e"),
                b"f",
                RenameMode::NoReplace,
            );
            moved.expect("the name is free");
        },
        root: |root| take_over(&root.join("e")),
        holds: |root| root.join("d/f").exists() && !root.join("e/f").exists(),
    },
    Case {
        change: |view| {
            let moved = view.rename(
                node(view, "d"),
                b"f",
                node(view, "e"),
                b"f",
                RenameMode::NoReplace,
            );
            moved.expect("the name is free");
        },
        root: |root| take_over(&root.join("d")),
        holds: |root| root.join("d/f").exists() && !root.join("e/f").exists(),
    },
    Case {
        change: |view| {
            let linked = view.link(node(view, "d/f"), node(view, "e"), b"f");
            linked.expect("the name is free");
        },
        root: |root| take_over(&root.join("e")),
        holds: |root| !root.join("e/f").exists(),
    },
    Case {
        change: |view| view.unlink(node(view, "d"), b"f").expect("it is there"),
        root: |root| take_over(&root.join("d")),
        holds: |root| root.join("d/f").exists(),
    },
    Case {
        change: |view| view.unlink(node(view, "d"), b"f").expect("it is there"),
        root: |root| {
            take_over(&root.join("d"));
            take_over(&root.join("d/f"));
            close(&root.join("d"), 0o1777);
        },
        holds: |root| root.join("d/f").exists(),
    },
    Case {
        change: |view| {
            let removed = view.remove_directory(node(view, "d"), b"empty");
            removed.expect("it is empty");
        },
        root: |root| take_over(&root.join("d")),
        holds: |root| root.join("d/empty").exists(),
    },
    // The directory above is closed.
    Case {
        change: |view| make(view, "above/theirs", "new"),
        root: |root| close(&root.join("above"), 0o700),
        holds: |root| !root.join("above/theirs/new").exists(),
    },
    Case {
        change: |view| write(view, "above/theirs/f", b"new"),
        root: |root| close(&root.join("above"), 0o700),
        holds: |root| fs::read(root.join("above/theirs/f")).expect("root may") == b"old",
    },
    Case {
        change: |view| {
            let change = SetAttributes {
                group: Some(GROUP),
                ..SetAttributes::default()
            };
            set(view, "d/f", change);
        },
        root: |root| take_over(&root.join("d/f")),
        holds: |root| fs::metadata(root.join("d/f")).expect("it is there").gid() == 0,
    },
    Case {
        change: |view| {
            let set = view.set_xattr(node(view, "d/f"), LIST.as_bytes(), &LIST_VALUE, 0, false);
            set.expect("the view allows it");
        },
        root: |root| take_over(&root.join("d/f")),
        holds: |root| !has_list(&root.join("d/f")),
    },
];

fn prepare() -> Scratch {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.join(name);
    for directory in ["d", "e", "d/empty", "above", "above/theirs"] {
        fs::create_dir(path(directory)).expect("the name is free");
        close(&path(directory), 0o755);
    }
    for file in [
        "d/f",
        "d/linked",
        "open",
        "above/theirs/f",
        "e/beside",
        "roots",
    ] {
        fs::write(path(file), "old").expect("it is written");
        close(&path(file), 0o644);
    }
    close(&path("open"), 0o666);
    close(&scratch.0, 0o755);
    for (file, other) in [
        ("d/linked", "e/same"),
        ("open", "opened"),
        ("above/theirs/f", "above/theirs/g"),
    ] {
        fs::hard_link(path(file), path(other)).expect("the name is free");
    }
    for theirs in [
        "d",
        "e",
        "d/empty",
        "above/theirs",
        "d/f",
        "d/linked",
        "above/theirs/f",
        "e/beside",
    ] {
        chown(path(theirs), Some(USER), Some(USER)).expect("root may");
    }
    scratch
}

fn begin_as_user(store: &Store<FailingDisk>) -> std::sync::Arc<View> {
    let options = BeginOptions {
        owner: USER,
        durability: Durability::Lazy,
        ..options()
    };
    let view = store.begin(options).expect("a transaction begins");
    let restricted = view.restrict_to(Credentials {
        user: USER,
        groups: vec![GROUP, USER],
    });
    restricted.expect("it is open");
    view
}

/// The store goes on, and the rest of the commit is there.
fn assert_goes_on(store: &Store<FailingDisk>, root: &Path, case: usize) {
    let status = store.status();
    assert_eq!(
        (status.stalled, status.poisoned),
        (None, None),
        "case {case}"
    );
    let next = begin(store);
    write(&next, "roots", b"more");
    let committed = store.commit(&next);
    committed.unwrap_or_else(|error| panic!("case {case}: {error}"));
    assert_eq!(fs::read(root.join("roots")).expect("root may"), b"more");
}

#[test]
fn rights_taken_away_before_apply_are_not_used() {
    let test = "rights_taken_away_before_apply_are_not_used";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can act as two users");
    }
    for (number, case) in CASES.into_iter().enumerate() {
        let scratch = prepare();
        let root = scratch.0.clone();
        create(&root);
        // A thread that apply does not let act as the user.
        let (ask, asked) = channel::<()>();
        let (answer, answered) = channel();
        let intrudes = case.root;
        let at = root.clone();
        let intruder = std::thread::spawn(move || {
            for () in asked {
                intrudes(&at);
                answer.send(()).expect("the other thread waits for it");
            }
        });
        let disk = FailingDisk::without_flushes();
        let store = open_with(disk.clone(), &root).expect("the store opens");
        let view = begin_as_user(&store);
        (case.change)(&view);
        write(&view, "e/beside", b"new");
        store.commit(&view).expect("nobody is in the way");
        disk.intrude_at_apply(move || {
            ask.send(()).expect("the other thread waits for it");
            answered.recv().expect("the other thread answers");
        });
        let synced = store.sync();
        synced.unwrap_or_else(|error| panic!("case {number}: {error}"));
        intruder.join().expect("root may do all of this");
        assert!((case.holds)(&root), "case {number}");
        let closes_beside = fs::metadata(root.join("e")).expect("it is there").uid() != USER;
        let beside = fs::read(root.join("e/beside")).expect("it is there");
        assert!(closes_beside || beside == b"new", "case {number}");
        assert_goes_on(&store, &root, number);
        drop((view, store));
        let store = open_with(disk, &root);
        store.unwrap_or_else(|error| panic!("case {number}: {error}"));
        assert!((case.holds)(&root), "case {number}, after a recovery");
    }
}

#[test]
fn rights_taken_away_before_recovery_are_not_used() {
    let test = "rights_taken_away_before_recovery_are_not_used";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can act as two users");
    }
    for (number, case) in CASES.into_iter().enumerate() {
        for changes_left in [0, 1, 2, 3, i64::MAX] {
            let scratch = prepare();
            let root = scratch.0.clone();
            create(&root);
            let disk = FailingDisk::new(Errno::IO, true).flushing_nothing();
            let store = open_with(disk.clone(), &root).expect("the store opens");
            let view = begin_as_user(&store);
            (case.change)(&view);
            store.commit(&view).expect("nobody is in the way");
            let dying = disk.clone();
            disk.intrude_at_apply(move || dying.fail_after(changes_left));
            let _ = store.sync();
            drop((view, store));
            (case.root)(&root);
            // Otherwise the commit was applied before.
            if (case.holds)(&root) {
                // Without the applied mark, recovery applies the whole log again.
                fs::write(root.join(".atomdir/applied"), "").expect("it is root's");
                let disk = FailingDisk::without_flushes();
                let store = open_with(disk, &root);
                let store =
                    store.unwrap_or_else(|error| panic!("case {number}, {changes_left}: {error}"));
                assert!((case.holds)(&root), "case {number}, {changes_left}");
                assert_goes_on(&store, &root, number);
            }
        }
    }
}

/// What a user may do is done, with exactly the result that the view has shown.
#[test]
fn a_users_commit_is_applied_with_their_rights() {
    let test = "a_users_commit_is_applied_with_their_rights";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can act as two users");
    }
    for crashes in [false, true] {
        let scratch = prepare();
        let root = scratch.0.clone();
        create(&root);
        let disk = FailingDisk::without_flushes();
        let store = open_with(disk.clone(), &root).expect("the store opens");
        let view = begin_as_user(&store);
        for case in &CASES[..3] {
            (case.change)(&view);
        }
        make(&view, "d", "new");
        let closed = view.create(
            node(&view, "d"),
            b"sub",
            NewNode::Directory,
            0o755,
            0,
            CALLER,
        );
        closed.expect("the name is free");
        make(&view, "d/sub", "in");
        set_mode(&view, "d/sub", 0o555);
        write(&view, "open", b"new");
        let removed = view.remove_directory(node(&view, "d"), b"empty");
        removed.expect("it is empty");
        let moved = view.rename(ROOT, b"d", ROOT, b"d2", RenameMode::NoReplace);
        assert!(moved.is_ok(), "the engine leaves this check to the kernel");
        let back = view.rename(ROOT, b"d2", ROOT, b"d", RenameMode::NoReplace);
        back.expect("the name is free");
        store.commit(&view).expect("nobody is in the way");
        if crashes {
            disk.fail_after(0);
        }
        let _ = store.sync();
        drop((view, store));
        let store = open_with(FailingDisk::without_flushes(), &root).expect("the store opens");
        assert_eq!(mode(&root.join("d/f")), 0o6755);
        assert_eq!(mode(&root.join("d/linked")), 0o2755);
        assert_eq!(mode(&root.join("d/sub")), 0o555);
        assert!(root.join("d/sub/in").exists() && root.join("d/new").exists());
        assert!(!root.join("d/empty").exists());
        assert_eq!(fs::read(root.join("open")).expect("root may"), b"new");
        assert!(store.check().problems.is_empty());
    }
}

/// The kernel refuses the user some calls by which apply does what that user may do by others: to
/// exchange a directory with one that goes, and to link a file from a directory into limbo.
#[test]
fn a_users_commit_is_applied_by_detours() {
    let test = "a_users_commit_is_applied_by_detours";
    if !rustix::process::geteuid().is_root() {
        return skip(test, "only root can act as two users");
    }
    let scratch = prepare();
    let root = scratch.0.clone();
    for (directory, owner) in [("e/mine", USER), ("shared", 0), ("shared/x", 0)] {
        fs::create_dir(root.join(directory)).expect("the name is free");
        close(&root.join(directory), 0o755);
        chown(root.join(directory), Some(owner), Some(owner)).expect("root may");
    }
    close(&root.join("shared"), 0o777);
    fs::write(root.join("above/own"), "own").expect("it is written");
    chown(root.join("above/own"), Some(USER), Some(USER)).expect("root may");
    create(&root);
    let store = open_with(FailingDisk::without_flushes(), &root).expect("the store opens");
    let view = begin_as_user(&store);
    let removed = view.remove_directory(node(&view, "shared"), b"x");
    removed.expect("it is empty");
    let moved = view.rename(
        node(&view, "e"),
        b"mine",
        node(&view, "shared"),
        b"x",
        RenameMode::NoReplace,
    );
    moved.expect("the name is free");
    let removed = view.unlink(node(&view, "e"), b"beside");
    removed.expect("it is there");
    let linked = view.link(node(&view, "above/own"), node(&view, "e"), b"beside");
    linked.expect("the name is free");
    store.commit(&view).expect("nobody is in the way");
    store.sync().expect("nothing is in the way");
    let moved = fs::metadata(root.join("shared/x")).expect("it is there");
    assert!(moved.uid() == USER && !root.join("e/mine").exists());
    let linked = fs::read(root.join("e/beside")).expect("root may");
    assert!(linked == b"own" && root.join("above/own").exists());
    assert!(store.check().problems.is_empty());
}
