//! What outside writers have changed of that which commits left is reported, and nothing else.

use std::fs;
use std::path::Path;

use crate::support::failing::FailingDisk;
use crate::support::script::{inside, outside};
use crate::support::{EVERYTHING, Scratch, begin, create_with, open_keeping, options};
use atomdir_engine::{Sequence, Store};

type Act = fn(&Path, &str);

/// What an outside writer does to a file.
const ACTS: [(&str, Act); 6] = [
    ("write in place", |root, path| {
        outside(root, &["put", path, "outside"])
    }),
    ("append", |root, path| {
        outside(root, &["append", path, "outside"])
    }),
    ("replace", |root, path| {
        outside(root, &["renew", path, "outside"])
    }),
    ("remove", |root, path| outside(root, &["rm", path])),
    ("chmod", |root, path| outside(root, &["chmod", path, "600"])),
    ("rename", |root, path| {
        outside(root, &["mv", path, "elsewhere"])
    }),
];

/// The files that the commits 1 to 3 leave: a new one, an old one, one in a new directory, one that
/// was renamed.
const FILES: [&str; 4] = ["new", "old", "made/inner", "renamed"];

fn commit(store: &Store<FailingDisk>, steps: &[&[&str]]) {
    let view = begin(store);
    steps.iter().for_each(|words| inside(&view, words));
    store.commit(&view).expect("nobody is in the way");
}

fn reported(store: &Store<FailingDisk>, commits: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let view = begin(store);
    let commits = Sequence(*commits.start())..=Sequence(*commits.end());
    let found = store.changed_outside(&view, commits, options());
    let found = found.expect("the history is kept").into_iter();
    store.abort(&view);
    found
        .map(|one| String::from_utf8(one.path).expect("a plain path"))
        .collect()
}

fn made(scratch: &Scratch) -> Store<FailingDisk> {
    let disk = FailingDisk::without_flushes();
    create_with(&disk, &scratch.0);
    fs::write(scratch.0.join("old"), "before").expect("made");
    fs::write(scratch.0.join("from"), "before").expect("made");
    fs::write(scratch.0.join("stranger"), "before").expect("made");
    let store = open_keeping(disk, &scratch.0, Some(EVERYTHING)).expect("it opens");
    commit(&store, &[&["put", "new", "1"], &["append", "old", "1"]]);
    commit(&store, &[&["mkdir", "made"], &["put", "made/inner", "2"]]);
    commit(&store, &[&["mv", "from", "renamed"]]);
    store
}

#[test]
fn outside_changes_of_what_commits_left_are_reported() {
    for (number, (what, act)) in ACTS.into_iter().enumerate() {
        for file in FILES {
            let scratch = Scratch::new();
            let store = made(&scratch);
            // The commits are in the log, or in the past.
            if number % 2 == 1 {
                store.checkpoint().expect("nothing is in the way");
            }
            assert_eq!(reported(&store, 1..=3), [""; 0], "nobody else has written");
            outside(&scratch.0, &["put", "stranger", "outside"]);
            act(&scratch.0, file);
            let found = reported(&store, 1..=3);
            // What is missing in a new directory shows in that.
            let is_it = |path: &String| path == file || file.starts_with(&format!("{path}/"));
            assert!(
                found.iter().any(is_it) && found.iter().all(is_it),
                "{what} {file}: {found:?}"
            );
        }
    }
}

/// A later commit keeps what it replaces, so that is known, unless an outside writer came between.
#[test]
fn what_later_commits_have_replaced_is_known_unless_outside_writers_came_between() {
    for is_between in [false, true] {
        let scratch = Scratch::new();
        let store = made(&scratch);
        if is_between {
            outside(&scratch.0, &["append", "new", "outside"]);
            outside(&scratch.0, &["append", "old", "outside"]);
        }
        commit(&store, &[&["put", "new", "4"], &["append", "old", "4"]]);
        if !is_between {
            outside(&scratch.0, &["put", "new", "outside"]);
        }
        let found = reported(&store, 1..=3);
        match is_between {
            false => assert_eq!(found, [""; 0]),
            true => assert_eq!(found, ["new", "old"]),
        }
    }
}

/// What was undone is as the undo has left it.
#[test]
fn undone_commits_are_reported_no_more() {
    let scratch = Scratch::new();
    let store = made(&scratch);
    let undo = store
        .undo(&[Sequence(1)], &[], options())
        .expect("it can be undone");
    store.commit(&undo).expect("nobody is in the way");
    outside(&scratch.0, &["append", "old", "outside"]);
    assert_eq!(reported(&store, 1..=3), [""; 0]);
    assert_eq!(reported(&store, 4..=4), ["old"]);
}
