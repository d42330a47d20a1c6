//! A commit that writes a file whole may give it a new inode. An undo gives the file its old inode
//! back, under all of its names, or is refused.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::undo_conflicts::{View, commit, conflict, land, node, put, read, store, undo};
use crate::undo_returned::rename;
use atomdir_disk::LinuxDisk;
use atomdir_engine::{ChangedBy, CommitError, Conflict, ConflictKind, NodeId, Store, UndoError};

fn inode(root: &Path, path: &str) -> u64 {
    std::fs::metadata(root.join(path)).expect("there").ino()
}

fn link(view: &View, from: &str, name: &str) {
    let linked = view.link(node(view, from), NodeId::ROOT, name.as_bytes());
    linked.expect("the name is free");
}

/// Commit 1 makes `a`; 2 renames it to `b` and writes it whole. Returns the old and the new inode.
fn renamed_and_written(store: &Store<LinuxDisk>, root: &Path) -> (u64, u64) {
    commit(store, |view| put(view, "a", 0, b"before"));
    let old = inode(root, "a");
    commit(store, |view| {
        rename(view, "a", "b");
        put(view, "b", 0, b"after!");
    });
    let new = inode(root, "b");
    assert_ne!(new, old);
    (old, new)
}

#[test]
fn rename_with_a_whole_write_is_undone_and_done_again() {
    let (scratch, store) = store();
    let root = &scratch.0;
    let (old, new) = renamed_and_written(&store, root);
    land(&store, &[2], &[]);
    assert_eq!((inode(root, "a"), read(root, "a")), (old, b"before".into()));
    assert!(!root.join("b").exists());
    land(&store, &[3], &[]);
    assert_eq!((inode(root, "b"), read(root, "b")), (new, b"after!".into()));
    assert!(!root.join("a").exists());
}

#[test]
fn hard_link_to_a_file_that_was_renamed_and_written_conflicts_with_the_undo() {
    let (scratch, store) = store();
    renamed_and_written(&store, &scratch.0);
    let linked = commit(&store, |view| link(view, "b", "c"));
    let found = conflict(&store, &[2]);
    assert_eq!(found, ("a".into(), ConflictKind::Contents, Some(linked)));
    land(&store, &[2, linked], &[]);
    // A link also conflicts after the undo, which gave the file its old inode back.
    let linked = commit(&store, |view| link(view, "a", "d"));
    let found = conflict(&store, &[4]);
    let wanted = ("b".into(), ConflictKind::Contents, Some(linked));
    assert_eq!(found, wanted);
}

#[test]
fn hard_link_that_lands_before_an_open_undo_conflicts_with_it() {
    let (scratch, store) = store();
    renamed_and_written(&store, &scratch.0);
    let undone = undo(&store, &[2], &[]).unwrap_or_else(|error| panic!("{error}"));
    commit(&store, |view| link(view, "b", "c"));
    let Err(CommitError::Conflict(found)) = store.commit(&undone) else {
        panic!("one file would become two");
    };
    assert!(found.iter().any(|one| one.path == b"b"), "{found:?}");
    store.abort(&undone);
    assert_eq!(inode(&scratch.0, "b"), inode(&scratch.0, "c"));
}

#[test]
fn undo_of_a_rename_over_a_file_keeps_a_later_hard_link() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "a", 0, b"1");
        put(view, "b", 0, b"2");
    });
    let before = (inode(root, "a"), inode(root, "b"));
    commit(&store, |view| rename(view, "a", "b"));
    commit(&store, |view| link(view, "b", "c"));
    land(&store, &[2], &[]);
    assert_eq!((inode(root, "a"), inode(root, "b")), before);
    assert_eq!(inode(root, "c"), before.0);
}

#[test]
fn undo_of_one_path_takes_both_ends_of_a_rename_with_a_whole_write() {
    for path in ["a", "b"] {
        let (scratch, store) = store();
        let root = &scratch.0;
        commit(&store, |view| put(view, "a", 0, b"before"));
        commit(&store, |view| {
            rename(view, "a", "b");
            put(view, "b", 0, b"after!");
            put(view, "c", 0, b"new");
        });
        land(&store, &[2], &[path]);
        assert_eq!(read(root, "a"), b"before");
        assert!(!root.join("b").exists());
        assert_eq!(read(root, "c"), b"new");
    }
}

/// An undo of both would lose the outside writer's contents, which the second commit has kept.
#[test]
fn outside_change_before_a_new_file_was_written_whole_is_a_conflict() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "file", 0, b"12345"));
    std::fs::write(scratch.0.join("file"), b"12three").expect("written");
    commit(&store, |view| put(view, "file", 0, b"one"));
    let found = conflict(&store, &[1, 2]);
    assert_eq!(found, ("file".into(), ConflictKind::Contents, None));
    land(&store, &[2], &[]);
    assert_eq!(read(&scratch.0, "file"), b"12three");
}

/// Commit 2 gives the file a new inode, and 3 undoes that. 4 writes the old inode in place, because
/// the file gets a second name, and 5 undoes that.
#[test]
fn file_that_was_replaced_before_another_commit_wrote_it_in_place_is_a_conflict() {
    let (_scratch, store) = store();
    commit(&store, |view| put(view, "file", 0, b"one"));
    commit(&store, |view| put(view, "file", 0, b"two"));
    land(&store, &[2], &[]);
    commit(&store, |view| {
        link(view, "file", "other");
        put(view, "file", 0, b"six");
    });
    land(&store, &[4], &[]);
    let Err(UndoError::Conflict(found)) = undo(&store, &[2, 3, 5], &[]) else {
        panic!("the other commit came between");
    };
    let is_by_4 =
        |one: &Conflict| matches!(&one.by, ChangedBy::Commit { sequence, .. } if sequence.0 == 4);
    assert!(found.iter().all(is_by_4), "{found:?}");
}
