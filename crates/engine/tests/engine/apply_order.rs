//! What a commit closes is closed before it puts anything there, and what it opens is opened last:
//! nobody can use a name or contents for a moment that neither the old nor the new rights allow.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open_with};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{NewNode, NodeId, SetAttributes, Transaction};

const ROOT: NodeId = NodeId::ROOT;
const OTHERS: u32 = 0o077;

type View = Transaction<FailingDisk>;

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn set_mode(view: &View, path: &str, mode: u32) {
    let change = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    let set = view.set_attributes(node(view, path), change, caller());
    set.expect("it is ours");
}

fn make(view: &View, directory: &str, name: &str) {
    let directory = node(view, directory);
    let made = view.create(
        directory,
        name.as_bytes(),
        NewNode::File,
        0o644,
        0,
        caller(),
    );
    let made = made.expect("the name is free").node;
    let written = view.write(made, 0, b"a secret", false);
    written.expect("it is written");
}

fn is_open(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & OTHERS != 0)
}

fn holds_secret(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"a secret"))
}

struct Case {
    change: fn(&View),
    /// Whether others can read a secret.
    is_exposed: fn(&Path) -> bool,
}

const CASES: [Case; 8] = [
    Case {
        change: |view| {
            set_mode(view, "open", 0o700);
            make(view, "open", "secret");
        },
        is_exposed: |root| is_open(&root.join("open")) && root.join("open/secret").exists(),
    },
    Case {
        change: |view| {
            set_mode(view, "open", 0o700);
            let moved = view.rename(
                node(view, "closed"),
                b"secret",
                node(view, "open/below"),
                b"secret",
                RenameMode::NoReplace,
            );
            moved.expect("the name is free");
        },
        is_exposed: |root| is_open(&root.join("open")) && root.join("open/below/secret").exists(),
    },
    Case {
        change: |view| {
            set_mode(view, "open", 0o700);
            let moved = view.rename(
                ROOT,
                b"closed",
                node(view, "open"),
                b"c",
                RenameMode::NoReplace,
            );
            moved.expect("the name is free");
            set_mode(view, "open/c", 0o755);
        },
        is_exposed: |root| {
            let (open, closed) = (root.join("open"), root.join("closed"));
            is_open(&closed) || is_open(&open) && is_open(&open.join("c"))
        },
    },
    // Changed in place, since they have several names.
    Case {
        change: |view| {
            let written = view.write(node(view, "public"), 0, b"a secret", false);
            written.expect("it is written");
            set_mode(view, "public", 0o600);
        },
        is_exposed: |root| is_open(&root.join("public")) && holds_secret(&root.join("public")),
    },
    Case {
        change: |view| {
            let written = view.write(node(view, "private"), 0, b"no more.", false);
            written.expect("it is written");
            set_mode(view, "private", 0o644);
        },
        is_exposed: |root| is_open(&root.join("private")) && holds_secret(&root.join("private")),
    },
    Case {
        change: |view| {
            let closed = node(view, "closed");
            view.unlink(closed, b"secret").expect("it is there");
            set_mode(view, "closed", 0o755);
        },
        is_exposed: |root| is_open(&root.join("closed")) && root.join("closed/secret").exists(),
    },
    Case {
        change: |view| {
            let written = view.write(node(view, "closed/many"), 0, b"no more.", false);
            written.expect("it is written");
            set_mode(view, "closed", 0o755);
        },
        is_exposed: |root| is_open(&root.join("closed")) && holds_secret(&root.join("closed/many")),
    },
    Case {
        change: |view| {
            make(view, "open", "secret");
            set_mode(view, "open/secret", 0o600);
        },
        is_exposed: |root| is_open(&root.join("open/secret")),
    },
];

fn prepare() -> Scratch {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.join(name);
    for directory in ["open", "open/below", "closed"] {
        fs::create_dir(path(directory)).expect("the name is free");
    }
    for (file, mode, other) in [
        ("public", 0o644, "public2"),
        ("private", 0o600, "private2"),
        ("closed/many", 0o644, "closed/many2"),
    ] {
        fs::write(path(file), "a secret").expect("it is written");
        fs::set_permissions(path(file), Permissions::from_mode(mode)).expect("it is ours");
        fs::hard_link(path(file), path(other)).expect("the name is free");
    }
    fs::write(path("public"), "no secret").expect("it is written");
    fs::write(path("closed/secret"), "a secret").expect("it is written");
    for (directory, mode) in [("closed", 0o700), ("open", 0o755), ("open/below", 0o755)] {
        fs::set_permissions(path(directory), Permissions::from_mode(mode)).expect("it is ours");
    }
    create(&scratch.0);
    scratch
}

/// Looks before each later change.
fn watch(disk: &FailingDisk, root: PathBuf, is_exposed: fn(&Path) -> bool, seen: Arc<Mutex<bool>>) {
    let next = disk.clone();
    disk.intrude_before(0, move || {
        *seen.lock().expect("no test panics with it") |= is_exposed(&root);
        watch(&next, root, is_exposed, seen);
    });
}

#[test]
fn what_a_commit_closes_is_closed_first_and_what_it_opens_is_opened_last() {
    for (number, case) in CASES.into_iter().enumerate() {
        for dies_after in [None, Some(0), Some(1), Some(2)] {
            let scratch = prepare();
            let root = scratch.0.clone();
            assert!(!(case.is_exposed)(&root), "case {number}");
            let disk = FailingDisk::new(Errno::IO, true).flushing_nothing();
            let store = open_with(disk.clone(), &root).expect("the store opens");
            let view = begin(&store);
            (case.change)(&view);
            let seen = Arc::default();
            watch(&disk, root.clone(), case.is_exposed, Arc::clone(&seen));
            if let Some(changes) = dies_after {
                let dying = disk.clone();
                disk.intrude_at_apply(move || dying.fail_after(changes));
            }
            let committed = store.commit(&view);
            assert!(committed.is_ok() || dies_after.is_some(), "{committed:?}");
            drop((view, store));
            // Without the applied mark, recovery applies the whole log.
            fs::write(root.join(".atomdir/applied"), "").expect("it is ours");
            let disk = FailingDisk::new(Errno::IO, true).flushing_nothing();
            watch(&disk, root.clone(), case.is_exposed, Arc::clone(&seen));
            drop(open_with(disk, &root).expect("the store opens"));
            let seen = *seen.lock().expect("no test panics with it");
            assert!(
                !seen && !(case.is_exposed)(&root),
                "case {number}, {dies_after:?}"
            );
        }
    }
}
