//! An outside writer changes something between the check of a commit and its apply. The commit
//! conflicts, and nobody's change is lost.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::trees::tree_of_base;
use crate::support::{EVERYTHING, Scratch, create, open_keeping, options};
use atomdir_disk::RenameMode;
use atomdir_engine::{
    BeginOptions, ChangedBy, CommitError, Durability, NewNode, NodeId, SetAttributes, Store,
    Transaction,
};

const ROOT: NodeId = NodeId::ROOT;

type View = Transaction<FailingDisk>;

struct Case {
    change: fn(&View),
    outside: fn(&Path),
    /// The path of the conflict, if there is one.
    conflict: Option<&'static str>,
}

const CASES: &[Case] = &[
    Case {
        change: |view| write(view, "file", b"NEW"),
        outside: |root| append(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| write(view, "two/names", b"NEW"),
        outside: |root| append(&root.join("two/same")),
        conflict: Some("two/names"),
    },
    Case {
        change: |view| write(view, "file", b"NEW"),
        outside: |root| replace(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| rename(view, "beside", "file", RenameMode::Replace),
        outside: |root| append(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| rename(view, "beside", "file", RenameMode::Replace),
        outside: |root| replace(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| rename(view, "beside", "file", RenameMode::Exchange),
        outside: |root| fs::remove_file(root.join("file")).expect("it is there"),
        conflict: Some("file"),
    },
    Case {
        change: |view| make(view, "new"),
        outside: |root| fs::write(root.join("new"), "outside").expect("it is written"),
        conflict: Some("new"),
    },
    Case {
        change: |view| rename(view, "file", "new", RenameMode::NoReplace),
        outside: |root| fs::create_dir(root.join("new")).expect("the name is free"),
        conflict: Some("new"),
    },
    Case {
        change: |view| view.unlink(ROOT, b"file").expect("it is there"),
        outside: |root| append(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| {
            let directory = node(view, "d");
            view.unlink(directory, b"in").expect("it is there");
            view.remove_directory(ROOT, b"d").expect("it is empty");
        },
        outside: |root| fs::write(root.join("d/outside"), "outside").expect("it is written"),
        conflict: Some("d"),
    },
    Case {
        change: |view| {
            let mode = SetAttributes {
                mode: Some(0o600),
                ..SetAttributes::default()
            };
            let changed = view.set_attributes(node(view, "file"), mode, caller());
            changed.expect("it is changed");
        },
        outside: |root| append(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| rename(view, "file", "new", RenameMode::NoReplace),
        outside: |root| replace(&root.join("file")),
        conflict: Some("file"),
    },
    Case {
        change: |view| rename(view, "d", "new", RenameMode::NoReplace),
        outside: |root| fs::rename(root.join("d"), root.join("two/d")).expect("it is there"),
        conflict: Some("d"),
    },
    // A change of something that the commit does not touch is no conflict.
    Case {
        change: |view| {
            let two = node(view, "two");
            let moved = view.rename(two, b"same", ROOT, b"same", RenameMode::NoReplace);
            moved.expect("the name is free");
        },
        outside: |root| fs::remove_file(root.join("two/names")).expect("it is there"),
        conflict: None,
    },
    Case {
        change: |view| rename(view, "file", "new", RenameMode::NoReplace),
        outside: |root| append(&root.join("file")),
        conflict: None,
    },
    Case {
        change: |view| make(view, "new"),
        outside: |root| fs::write(root.join("d/outside"), "outside").expect("it is written"),
        conflict: None,
    },
];

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn write(view: &View, path: &str, bytes: &[u8]) {
    let written = view.write(node(view, path), 0, bytes, false);
    written.expect("it is written");
}

fn make(view: &View, name: &str) {
    let made = view.create(ROOT, name.as_bytes(), NewNode::File, 0o644, 0, caller());
    made.expect("the name is free");
}

fn rename(view: &View, from: &str, to: &str, mode: RenameMode) {
    let renamed = view.rename(ROOT, from.as_bytes(), ROOT, to.as_bytes(), mode);
    renamed.expect("both are there");
}

fn append(path: &Path) {
    let mut file = OpenOptions::new()
        .append(true)
        .open(path)
        .expect("it is there");
    file.write_all(b" outside").expect("it is written");
}

fn replace(path: &Path) {
    let new = path.with_extension("outside");
    fs::write(&new, "outside").expect("it is written");
    fs::rename(new, path).expect("it is there");
}

fn prepared() -> (Scratch, FailingDisk, Store<FailingDisk>) {
    let scratch = Scratch::new();
    for directory in ["d", "two"] {
        fs::create_dir(scratch.0.join(directory)).expect("the name is free");
    }
    for file in ["file", "beside", "d/in", "two/names"] {
        fs::write(scratch.0.join(file), file).expect("it is written");
    }
    let linked = fs::hard_link(scratch.0.join("two/names"), scratch.0.join("two/same"));
    linked.expect("the name is free");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_keeping(disk.clone(), &scratch.0, Some(EVERYTHING));
    (scratch, disk, store.expect("the store opens"))
}

fn begin(store: &Store<FailingDisk>, durability: Durability, change: fn(&View)) -> Arc<View> {
    let transaction = store.begin(BeginOptions {
        durability,
        ..options()
    });
    let transaction = transaction.expect("a transaction begins");
    change(&transaction);
    transaction
}

#[test]
fn outside_change_after_the_check_is_a_conflict() {
    for (number, case) in CASES.iter().enumerate() {
        let (scratch, disk, store) = prepared();
        let root = scratch.0.clone();
        let outside = case.outside;
        let (send, sent) = std::sync::mpsc::channel();
        disk.intrude_after_flush(move || {
            outside(&root);
            send.send(tree_of_base(&root))
                .expect("the test waits for it");
        });
        let transaction = begin(&store, Durability::Durable, case.change);
        let committed = store.commit(&transaction);
        let left = sent.try_recv().expect("the outside writer was there");
        let Some(path) = case.conflict else {
            committed.unwrap_or_else(|error| panic!("case {number}: {error}"));
            assert_eq!(store.check().problems, Vec::<String>::new());
            continue;
        };
        let is_expected = |error: &CommitError| {
            let CommitError::Conflict(conflicts) = error else {
                return false;
            };
            let mut conflicts = conflicts.iter();
            conflicts.any(|one| one.path == path.as_bytes() && one.by == ChangedBy::Outside)
        };
        let refused = committed.expect_err("the outside writer is in the way");
        assert!(is_expected(&refused), "case {number}: {refused}");
        assert_eq!(tree_of_base(&scratch.0), left, "case {number}");
        assert!(transaction.is_open() && store.status().stalled.is_none());
        let refused = store.commit(&transaction).expect_err("it still is");
        assert!(
            matches!(refused, CommitError::Conflict(_)),
            "case {number}: {refused}"
        );
        let other = begin(&store, Durability::Durable, |view| make(view, "other"));
        store.commit(&other).expect("nobody is in the way");
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
}

/// What an outside writer does before the commit, after its check, and the path of the conflict.
type Twice = (fn(&Path), fn(&Path), &'static str);

/// The file has other times and the same contents, or a new file is the same as the transaction's.
/// Neither is in the way of the commit until it changes once more.
#[test]
fn what_was_found_equal_must_stay_as_it_was_until_the_commit_is_applied() {
    let touch = |root: &Path| fs::write(root.join("file"), "file").expect("it is written");
    let make_it = |root: &Path| fs::write(root.join("new"), "").expect("it is written");
    let cases: [Twice; 4] = [
        (touch, |root| append(&root.join("file")), "file"),
        (touch, |root| replace(&root.join("file")), "file"),
        (make_it, |root| append(&root.join("new")), "new"),
        (
            make_it,
            |root| fs::remove_file(root.join("new")).expect("it is there"),
            "new",
        ),
    ];
    for (early, late, path) in cases {
        for is_late in [false, true] {
            let (scratch, disk, store) = prepared();
            let root = scratch.0.clone();
            let transaction = begin(&store, Durability::Durable, |view| {
                write(view, "file", b"NEW");
                make(view, "new");
            });
            early(&root);
            if is_late {
                disk.intrude_after_flush(move || late(&root));
            }
            let committed = store.commit(&transaction);
            let look = |path: &str| fs::read(scratch.0.join(path)).ok();
            if !is_late {
                committed.unwrap_or_else(|error| panic!("{path}: {error}"));
                assert_eq!(look("file").as_deref(), Some(&b"NEWe"[..]), "{path}");
                assert_eq!(look("new").as_deref(), Some(&b""[..]), "{path}");
                continue;
            }
            let Err(CommitError::Conflict(conflicts)) = committed else {
                panic!("{path}: the outside writer is in the way");
            };
            assert!(
                conflicts.iter().any(|one| one.path == path.as_bytes()),
                "{conflicts:?}"
            );
            assert_ne!(look("file").as_deref(), Some(&b"NEWe"[..]), "{path}");
            assert!(transaction.is_open(), "{path}");
            assert_eq!(store.check().problems, Vec::<String>::new());
        }
    }
}

/// The commit has returned already, so its transaction is set aside.
#[test]
fn outside_change_after_the_check_sets_a_lazy_commit_aside() {
    for (number, case) in CASES.iter().enumerate() {
        let (scratch, _, store) = prepared();
        let transaction = begin(&store, Durability::Lazy, case.change);
        store
            .commit(&transaction)
            .expect("nobody is in the way yet");
        (case.outside)(&scratch.0);
        let left = tree_of_base(&scratch.0);
        store.sync().expect("the store goes on");
        assert_eq!(
            transaction.is_open(),
            case.conflict.is_some(),
            "case {number}"
        );
        if case.conflict.is_some() {
            assert_eq!(tree_of_base(&scratch.0), left, "case {number}");
            assert!(!store.retry_set_aside(&transaction), "case {number}");
            let aside = store.set_aside();
            assert!(aside.len() == 1 && !aside[0].is_retried, "{aside:?}");
        }
    }
}
