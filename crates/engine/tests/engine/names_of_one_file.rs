//! A changed file can be undone, landed or dropped by any of its names. `ATOMDIR_SEED=n` replays
//! one run.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::model::{Model, caller};
use crate::support::trees::tree_of_view;
use crate::support::{Random, Scratch, begin, create, open_history, options, seeds};
use crate::undo_conflicts::{View, commit, land, make, node, put, read, store, undo, unlink};
use crate::undo_returned::rename;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{
    CommitError, DropError, NewNode, NodeId, Portion, Sequence, Store, UndoError,
};

fn link(view: &View, from: &str, directory: &str, name: &str) {
    let linked = view.link(node(view, from), node(view, directory), name.as_bytes());
    linked.expect("the name is free");
}

/// Commit 1 makes a file with the names `a`, `b` and `d/c`, another file, and a symlink to `a`.
fn file_with_three_names(store: &Store<LinuxDisk>) {
    commit(store, |view| {
        put(view, "a", 0, b"before");
        make(view, "d", NewNode::Directory);
        link(view, "a", "", "b");
        link(view, "a", "d", "c");
        put(view, "other", 0, b"before");
        let target = NewNode::Symlink(b"a".to_vec());
        let made = view.create(NodeId::ROOT, b"symlink", target, 0o777, 0, caller());
        made.expect("the name is free");
    });
}

/// Commit 2 writes both files.
fn written_through_a(store: &Store<LinuxDisk>) -> u64 {
    commit(store, |view| {
        put(view, "a", 0, b"after!");
        put(view, "other", 0, b"after!");
    })
}

fn is_untouched(found: &Result<std::sync::Arc<View>, UndoError>, path: &str) -> bool {
    matches!(found, Err(UndoError::Untouched { path: found }) if found == path)
}

#[test]
fn changed_file_is_undone_by_any_of_its_names() {
    for path in ["a", "b", "d/c"] {
        let (scratch, store) = store();
        file_with_three_names(&store);
        let written = written_through_a(&store);
        land(&store, &[written], &[path]);
        for name in ["a", "b", "d/c"] {
            assert_eq!(read(&scratch.0, name), b"before", "{name}, asked: {path}");
        }
        assert_eq!(read(&scratch.0, "other"), b"after!");
    }
}

#[test]
fn paths_that_are_no_names_of_the_changed_file_select_nothing() {
    let (_scratch, store) = store();
    file_with_three_names(&store);
    let written = commit(&store, |view| put(view, "a", 0, b"after!"));
    // Another file gets one of its names.
    commit(&store, |view| {
        unlink(view, "b");
        put(view, "b", 0, b"before");
    });
    for path in ["b", "other", "symlink", "none", "other/none", "d/none"] {
        let found = undo(&store, &[written], &[path]);
        assert!(is_untouched(&found, path), "{path}: {:?}", found.err());
    }
    // The directory contains a name of the file, but only a name itself selects the file.
    assert!(is_untouched(&undo(&store, &[written], &["d"]), "d"));
    let found = undo(&store, &[written], &["d/c", "other"]);
    assert!(is_untouched(&found, "other"), "{:?}", found.err());
}

#[test]
fn changed_file_is_undone_by_a_name_that_it_got_later() {
    let (scratch, store) = store();
    file_with_three_names(&store);
    let written = written_through_a(&store);
    commit(&store, |view| {
        unlink(view, "a");
        rename(view, "b", "later");
    });
    land(&store, &[written], &["later"]);
    assert_eq!(read(&scratch.0, "later"), b"before");
    assert_eq!(read(&scratch.0, "d/c"), b"before");
}

#[test]
fn file_in_a_directory_that_was_renamed_since_is_undone_by_its_present_path() {
    let (scratch, store) = store();
    commit(&store, |view| {
        make(view, "d", NewNode::Directory);
        put(view, "d/file", 0, &[1; 3 << 20]);
    });
    let written = commit(&store, |view| put(view, "d/file", 5, b"new"));
    commit(&store, |view| rename(view, "d", "e"));
    land(&store, &[written], &["e/file"]);
    assert_eq!(read(&scratch.0, "e/file"), [1; 3 << 20]);
}

/// A new name of a file and the changes of the file itself are undone together.
#[test]
fn file_that_was_written_and_linked_is_undone_whole() {
    for path in ["a", "b", "d/c", "new"] {
        let (scratch, store) = store();
        file_with_three_names(&store);
        let changed = commit(&store, |view| {
            put(view, "b", 0, b"after!");
            link(view, "d/c", "", "new");
        });
        land(&store, &[changed], &[path]);
        assert_eq!(read(&scratch.0, "a"), b"before", "asked: {path}");
        assert!(!scratch.0.join("new").exists(), "asked: {path}");
    }
}

#[test]
fn part_lands_by_any_name_of_the_changed_file() {
    for path in ["a", "b", "d/c"] {
        let (scratch, store) = store();
        file_with_three_names(&store);
        let view = begin(&store);
        put(&view, "d/c", 0, b"after!");
        put(&view, "other", 0, b"after!");
        let landed = store.commit_portion(&view, Portion::part(&[path.into()]), &mut |_| {});
        let landed = landed.unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(landed.landed.len(), 1, "{path}");
        assert_eq!(read(&scratch.0, "a"), b"after!", "{path}");
        assert_eq!(read(&scratch.0, "other"), b"before", "{path}");
        let left = view.changes().expect("listed");
        assert!(left.iter().all(|line| line.path == b"other"), "{left:?}");
        let again = store.commit_portion(&view, Portion::part(&[path.into()]), &mut |_| {});
        assert!(matches!(again, Err(CommitError::Unchanged { .. })));
        store.commit(&view).expect("nobody is in the way");
        assert_eq!(read(&scratch.0, "other"), b"after!", "{path}");
    }
}

#[test]
fn part_is_dropped_by_any_name_of_the_changed_file() {
    for path in ["a", "moved", "d/c"] {
        let (scratch, store) = store();
        file_with_three_names(&store);
        let view = begin(&store);
        put(&view, "d/c", 0, b"after!");
        put(&view, "other", 0, b"after!");
        rename(&view, "b", "moved");
        for none in ["b/none", "symlink", "d", "none"] {
            let refused = view.drop_part(&[none.into()]);
            let is_unchanged = matches!(refused, Err(DropError::Unchanged { .. }));
            assert!(is_unchanged, "{none}");
        }
        let dropped = view.drop_part(&[path.into()]);
        dropped.unwrap_or_else(|error| panic!("{path}: {error}"));
        store.commit(&view).expect("nobody is in the way");
        for name in ["a", "b", "d/c"] {
            assert_eq!(read(&scratch.0, name), b"before", "{name}, asked: {path}");
        }
        assert!(!scratch.0.join("moved").exists(), "{path}");
        assert_eq!(read(&scratch.0, "other"), b"after!", "{path}");
    }
}

/// The paths in the base.
fn listed(root: &Path) -> Vec<(String, Metadata)> {
    let mut found: Vec<(String, Metadata)> = Vec::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(root.join(&directory)).expect("listed") {
            let entry = entry.expect("listed");
            let name = entry.file_name().into_string().expect("the model's names");
            let path = format!("{directory}/{name}").trim_matches('/').to_owned();
            let metadata = entry.metadata().expect("it is there");
            if metadata.is_dir() && path != ".atomdir" {
                open.push(path.clone());
            }
            found.push((path, metadata));
        }
    }
    found
}

fn directories_of(root: &Path) -> Vec<String> {
    let directories = listed(root).into_iter().filter(|(_, found)| found.is_dir());
    directories.map(|(path, _)| path).collect()
}

/// The names of each file that has several.
fn names_of_files(root: &Path) -> Vec<Vec<String>> {
    let mut names: HashMap<u64, Vec<String>> = HashMap::new();
    for (path, found) in listed(root) {
        if !found.is_dir() && found.nlink() > 1 {
            names.entry(found.ino()).or_default().push(path);
        }
    }
    names.into_values().collect()
}

/// The tree that the view of an undo shows, or why there is no such view.
fn undone(store: &Store<LinuxDisk>, commit: Sequence, path: &str) -> String {
    match store.undo(&[commit], &[path.into()], options()) {
        Ok(view) => {
            let shown = format!("{:?}", tree_of_view(&view));
            store.abort(&view);
            shown
        }
        Err(UndoError::Untouched { .. }) => "untouched".into(),
        Err(error) => format!("{error}"),
    }
}

#[test]
fn every_name_of_a_file_undoes_the_same() {
    let (mut compared, mut changed) = (0, 0);
    for seed in seeds(150) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open_history(&scratch.0);
        let (mut random, mut model) = (Random::new(seed), Model::new());
        for _ in 0..6 {
            let transaction = begin(&store);
            for _ in 0..1 + random.below(12) {
                model.step(&mut random, &transaction);
            }
            let directories = directories_of(&scratch.0);
            let committed = store.commit(&transaction).expect("nobody is in the way");
            let Some(newest) = committed.sequence else {
                continue;
            };
            for mut names in names_of_files(&scratch.0) {
                // A path that was a directory before also selects what was in the directory.
                names.retain(|name| !directories.contains(name));
                let Some(first) = names.first() else { continue };
                let first = undone(&store, newest, first);
                for name in &names[1..] {
                    let other = undone(&store, newest, name);
                    assert_eq!(first, other, "seed {seed}, {newest:?}, {names:?}");
                    compared += 1;
                    changed += u32::from(other != "untouched");
                }
            }
        }
    }
    let is_whole = std::env::var_os("ATOMDIR_SEED").is_none();
    assert!(!is_whole || changed > 100, "only {changed} of {compared}");
}
