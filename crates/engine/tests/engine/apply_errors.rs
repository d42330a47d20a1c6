//! A call of apply fails with an error that the owner of an object or of a directory can cause. The
//! commit goes on without that object, nothing old is lost, and the store opens again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open, open_with};
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::{CommitError, NewNode, NodeId, SetAttributes, Transaction};

const ROOT: NodeId = NodeId::ROOT;

type View = Transaction<FailingDisk>;

/// What projects, encryption, folded names, limits of names and of attributes return.
const ERRORS: [Errno; 7] = [
    Errno::XDEV,
    Errno::MLINK,
    Errno::NOKEY,
    Errno::INVAL,
    Errno::NAMETOOLONG,
    Errno::LOOP,
    Errno::OPNOTSUPP,
];

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the view resolves");
    found.expect("it is there")
}

fn prepare() -> Scratch {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.join(name);
    for directory in ["d", "e", "d/moved", "d/removed"] {
        fs::create_dir(path(directory)).expect("the name is free");
    }
    for file in ["d/old", "d/linked", "e/replaced", "beside", "d/moved/in"] {
        fs::write(path(file), file).expect("it is written");
    }
    fs::hard_link(path("d/linked"), path("e/linked")).expect("the name is free");
    create(&scratch.0);
    scratch
}

const CHANGES: [fn(&View); 8] = [
    |view| {
        let made = view.create(node(view, "d"), b"new", NewNode::File, 0o644, 0, caller());
        let made = made.expect("the name is free").node;
        view.write(made, 0, b"new", false).expect("it is written");
    },
    |view| {
        let linked = view.link(node(view, "beside"), node(view, "d"), b"more");
        linked.expect("the name is free");
    },
    |view| {
        let (d, e) = (node(view, "d"), node(view, "e"));
        let moved = view.rename(d, b"moved", e, b"moved", RenameMode::NoReplace);
        moved.expect("the name is free");
    },
    |view| {
        let (d, e) = (node(view, "d"), node(view, "e"));
        let moved = view.rename(d, b"old", e, b"replaced", RenameMode::Exchange);
        moved.expect("both are there");
    },
    |view| {
        let (d, e) = (node(view, "d"), node(view, "e"));
        let moved = view.rename(d, b"old", e, b"replaced", RenameMode::Replace);
        moved.expect("it is a file");
        let removed = view.remove_directory(d, b"removed");
        removed.expect("it is empty");
    },
    |view| {
        let linked = node(view, "d/linked");
        view.write(linked, 0, b"D", false).expect("it is written");
        let change = SetAttributes {
            mode: Some(0o600),
            ..SetAttributes::default()
        };
        let set = view.set_attributes(linked, change, caller());
        set.expect("it is ours");
    },
    |view| {
        let (d, e) = (node(view, "d"), node(view, "e"));
        let out = view.rename(d, b"moved", ROOT, b"d2", RenameMode::NoReplace);
        out.expect("the name is free");
        let into = view.rename(ROOT, b"d", node(view, "d2"), b"d", RenameMode::NoReplace);
        into.expect("the name is free");
        let back = view.rename(ROOT, b"d2", e, b"d2", RenameMode::NoReplace);
        back.expect("the name is free");
    },
    |view| {
        let (d, e) = (node(view, "d"), node(view, "e"));
        let moved = view.rename(d, b"old", e, b"older", RenameMode::NoReplace);
        moved.expect("the name is free");
        let made = view.create(d, b"old", NewNode::File, 0o644, 0, caller());
        let made = made.expect("the name is free").node;
        view.write(made, 0, b"new", false).expect("it is written");
    },
];

/// Inodes of all files outside and inside the control directory, by contents.
fn files(directory: &Path, found: &mut Vec<(u64, Vec<u8>)>) {
    for entry in fs::read_dir(directory).expect("it is ours") {
        let entry = entry.expect("it is ours");
        match entry.file_type().expect("it is there").is_dir() {
            true => files(&entry.path(), found),
            false => {
                let inode = entry.metadata().expect("it is there").ino();
                found.push((inode, fs::read(entry.path()).expect("it is ours")));
            }
        }
    }
}

#[test]
fn errors_of_one_object_do_not_stall_the_store() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        for error in ERRORS {
            for after in 0.. {
                let scratch = prepare();
                let mut before = Vec::new();
                for directory in ["d", "e"] {
                    files(&scratch.0.join(directory), &mut before);
                }
                let disk = FailingDisk::new(error, false).flushing_nothing();
                let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
                let view = begin(&store);
                change(&view);
                let failing = disk.clone();
                disk.intrude_at_apply(move || failing.fail_after(after));
                let committed = store.commit(&view);
                let has_failed = disk.has_failed();
                disk.fail_after(i64::MAX);
                let at = format!("change {number}, {error:?} after {after} calls");
                assert!(
                    matches!(&committed, Ok(committed) if committed.stalled.is_none()),
                    "{at}: {committed:?}"
                );
                let status = store.status();
                assert_eq!((status.stalled, status.poisoned), (None, None), "{at}");
                let next = begin(&store);
                let written = next.write(node(&next, "beside"), 0, b"more", false);
                written.expect("it is written");
                let landed = store.commit(&next);
                assert!(
                    !matches!(landed, Err(CommitError::Logged(_))),
                    "{at}: {landed:?}"
                );
                drop((view, next, store));
                drop(open(&scratch.0));
                if !has_failed {
                    break;
                }
                let mut now = Vec::new();
                files(&scratch.0, &mut now);
                for (inode, contents) in before {
                    // What the commit itself removes or changes may be gone.
                    let is_kept = now.iter().any(|(other, _)| *other == inode);
                    let is_changed = contents == b"e/replaced" || contents == b"d/linked";
                    assert!(
                        is_kept || is_changed,
                        "{at}: {:?} is lost",
                        contents.escape_ascii()
                    );
                }
            }
        }
    }
}
