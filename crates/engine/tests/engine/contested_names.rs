//! Outside writers change a name after apply has looked at it, and before apply changes it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, create, open, open_with, options};
use atomdir_disk::RenameMode;
use atomdir_engine::{BeginOptions, Durability, NewNode, NodeId, Transaction};

const ROOT: NodeId = NodeId::ROOT;

type View = Transaction<FailingDisk>;

fn make(view: &View, name: &[u8]) {
    let made = view.create(ROOT, name, NewNode::File, 0o644, 0, caller());
    let made = made.expect("the name is free").node;
    let written = view.write(made, 0, b"ours", false);
    written.expect("it is written");
}

fn make_new(view: &View) {
    make(view, b"new");
}

fn make_new_directory(view: &View) {
    let made = view.create(ROOT, b"new", NewNode::Directory, 0o755, 0, caller());
    made.expect("the name is free");
}

fn move_to_new(view: &View) {
    let moved = view.rename(ROOT, b"moved", ROOT, b"new", RenameMode::NoReplace);
    moved.expect("the name is free");
}

fn remove_old(view: &View) {
    view.unlink(ROOT, b"old").expect("it is there");
}

fn replace_old(view: &View) {
    remove_old(view);
    make(view, b"old");
}

fn move_over_old(view: &View) {
    let moved = view.rename(ROOT, b"moved", ROOT, b"old", RenameMode::Replace);
    moved.expect("it is replaced");
}

fn put_file(name: &Path) {
    fs::write(name, "theirs").expect("it is written");
}

fn put_directory(name: &Path) {
    fs::create_dir(name).expect("the name is free");
}

fn take_away(name: &Path) {
    fs::remove_file(name).expect("it is there");
}

fn put_directory_instead(name: &Path) {
    take_away(name);
    put_directory(name);
}

/// The outside writer does one action right after each lookup of the name, until none is left.
fn intrude(disk: FailingDisk, path: PathBuf, actions: &'static [fn(&Path)]) {
    let Some((act, later)) = actions.split_first() else {
        return;
    };
    let name = path.file_name().expect("it has one").to_owned();
    disk.clone()
        .intrude_after_lookup(name.as_encoded_bytes(), move || {
            act(&path);
            intrude(disk, path, later);
        });
}

#[derive(Debug, PartialEq)]
enum Found {
    Nothing,
    Directory,
    File(&'static str),
}

use Found::{Directory, File, Nothing};

fn assert_found(path: &Path, expected: &Found, when: &str) {
    let found = match expected {
        Nothing => !path.exists(),
        Directory => path.is_dir(),
        File(contents) => fs::read(path).is_ok_and(|bytes| bytes == contents.as_bytes()),
    };
    assert!(found, "{when}: {path:?} is not {expected:?}");
}

/// What the outside writer has lost its name for is kept.
fn assert_kept(root: &Path, name: &str, expected: usize, when: &str) {
    let limbo = root.join(".atomdir/limbo");
    let entries = fs::read_dir(limbo).expect("it can be listed");
    let names = entries.map(|entry| entry.expect("it is there").path());
    let displaced: Vec<_> = names
        .filter(|path| {
            let kept = path.file_name().expect("it has one").to_string_lossy();
            kept.starts_with("displaced-") && kept.ends_with(name)
        })
        .collect();
    assert_eq!(displaced.len(), expected, "{when}: {displaced:?}");
    for path in displaced {
        let is_theirs = path.is_dir() || fs::read(&path).is_ok_and(|bytes| bytes == b"theirs");
        assert!(is_theirs, "{when}: {path:?}");
    }
}

struct Case {
    change: fn(&View),
    name: &'static str,
    actions: &'static [fn(&Path)],
    expected: Found,
    /// How many objects of the outside writer are displaced.
    displaced: usize,
}

/// Commits while the outside writer acts. If `is_kept`, an older view may still read what the
/// commit removes.
fn check(case: &Case, is_kept: bool, when: &str) {
    let scratch = Scratch::new();
    for name in ["moved", "old"] {
        fs::write(scratch.0.join(name), name).expect("it is written");
    }
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let older = is_kept.then(|| begin(&store));
    let lazy = BeginOptions {
        durability: Durability::Lazy,
        ..options()
    };
    let transaction = store.begin(lazy).expect("it begins");
    (case.change)(&transaction);
    make(&transaction, b"applied first");
    store.commit(&transaction).expect("nobody is in the way");
    let path = scratch.0.join(case.name);
    let (writer, at, actions) = (disk.clone(), path.clone(), case.actions);
    disk.intrude_at_apply(move || intrude(writer, at, actions));
    let synced = store.sync();
    synced.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_found(&path, &case.expected, when);
    assert_found(&scratch.0.join("applied first"), &File("ours"), when);
    assert_kept(&scratch.0, case.name, case.displaced, when);
    drop((older, transaction, store));
    drop(open(&scratch.0));
    assert_found(&path, &case.expected, when);
    assert_kept(&scratch.0, case.name, case.displaced, when);
}

#[test]
fn outside_changes_of_a_name_during_apply_do_not_stall_the_store() {
    type Row = (fn(&View), &'static str, &'static [fn(&Path)], Found, usize);
    let rows: [Row; 13] = [
        (make_new, "new", &[put_file], File("ours"), 1),
        (make_new, "new", &[put_directory], File("ours"), 1),
        (
            make_new,
            "new",
            &[put_file, take_away, put_file],
            File("ours"),
            1,
        ),
        (make_new_directory, "new", &[put_file], Directory, 1),
        (make_new_directory, "new", &[put_directory], Directory, 1),
        (move_to_new, "new", &[put_file], File("moved"), 1),
        (move_to_new, "new", &[put_directory], File("moved"), 1),
        (replace_old, "old", &[take_away], File("ours"), 0),
        (
            replace_old,
            "old",
            &[put_directory_instead],
            File("ours"),
            1,
        ),
        (move_over_old, "old", &[take_away], File("moved"), 0),
        (
            move_over_old,
            "old",
            &[put_directory_instead],
            File("moved"),
            1,
        ),
        (remove_old, "old", &[take_away], Nothing, 0),
        (remove_old, "old", &[put_directory_instead], Directory, 0),
    ];
    for (number, (change, name, actions, expected, displaced)) in rows.into_iter().enumerate() {
        let case = Case {
            change,
            name,
            actions,
            expected,
            displaced,
        };
        check(&case, false, &format!("case {number}"));
        check(&case, true, &format!("case {number}, beside an older view"));
    }
}

#[test]
fn recovery_restores_an_outside_directory_that_a_killed_apply_moved_to_limbo() {
    let scratch = Scratch::new();
    let old = scratch.0.join("old");
    fs::write(&old, "old").expect("it is written");
    create(&scratch.0);
    let disk = FailingDisk::without_flushes();
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let older = begin(&store);
    let transaction = begin(&store);
    remove_old(&transaction);
    make(&transaction, b"applied first");
    let (writer, path) = (disk.clone(), old.clone());
    disk.intrude_at_apply(move || {
        let killed = writer.clone();
        writer.intrude_after_lookup(b"old", move || {
            put_directory_instead(&path);
            // Apply still renames the directory to limbo, and does nothing after that.
            killed.fail_after(1);
        });
    });
    store.commit(&transaction).expect_err("it was killed");
    assert!(disk.has_failed());
    assert_found(&old, &Nothing, "after the kill");
    drop((older, transaction, store));
    drop(open(&scratch.0));
    assert_found(&old, &Directory, "after recovery");
}
