//! An undo skips changes that another undo has taken back already. It must not skip a change that
//! is in effect, and must still notice outside writers.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::undo_conflicts::{
    View, commit, conflict, land, node, put, read, set_mode, store, undo, unlink,
};
use crate::undo_returned::rename;
use atomdir_engine::{CommitError, ConflictKind, NodeId};

/// A file of this length is changed in place.
const LENGTH: u64 = 2 << 20;

type Change = fn(&View, u8);

/// Commit 3 changes what 2 has changed. 4 undoes 3, and 5 undoes 2. An undo of 4 alone would bring
/// back 3 without 2.
#[test]
fn undo_of_an_undo_conflicts_with_the_undo_of_an_earlier_commit() {
    let changes: [(Change, _); 2] = [
        (
            |view, turn| put(view, "f", 0, &[turn; 4096]),
            ConflictKind::Contents,
        ),
        (
            |view, turn| set_mode(view, "f", 0o600 + u32::from(turn)),
            ConflictKind::Attributes,
        ),
    ];
    for (change, kind) in changes {
        let (scratch, store) = store();
        let root = &scratch.0;
        std::fs::write(root.join("f"), vec![b'x'; LENGTH as usize]).expect("written");
        commit(&store, |view| put(view, "other", 0, b"1"));
        commit(&store, |view| change(view, 2));
        commit(&store, |view| change(view, 3));
        land(&store, &[3], &[]);
        land(&store, &[2], &[]);
        assert_eq!(conflict(&store, &[1, 4]), ("f".into(), kind, Some(5)));
        // Undone together, 4 and 5 bring back both changes.
        land(&store, &[4, 5], &[]);
        let (contents, mode) = (
            read(root, "f")[0],
            std::fs::metadata(root.join("f")).expect("there").mode() & 0o7,
        );
        assert!(contents == 3 || mode == 3, "{contents} {mode}");
    }
}

#[test]
fn commits_to_a_database_are_undone_one_by_one() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "x", 0, b"1");
        put(view, "x-wal", 0, b"1");
    });
    commit(&store, |view| put(view, "x-wal", 0, b"2"));
    commit(&store, |view| put(view, "x", 0, b"2"));
    land(&store, &[3], &[]);
    land(&store, &[2], &[]);
    assert_eq!(
        (read(root, "x"), read(root, "x-wal")),
        (b"1".into(), b"1".into())
    );
}

#[test]
fn conflict_with_an_outside_writer_after_an_undo_names_no_commit() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| put(view, "f", 0, b"1"));
    commit(&store, |view| put(view, "f", 0, b"2"));
    land(&store, &[2], &[]);
    std::fs::write(root.join("new"), "outside").expect("written");
    std::fs::rename(root.join("new"), root.join("f")).expect("renamed");
    let found = conflict(&store, &[1]);
    assert_eq!(found, ("f".into(), ConflictKind::Entry, None));
}

#[test]
fn file_does_not_lose_its_last_name_by_an_undo_that_was_open_meanwhile() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "f", 0, b"1"));
    commit(&store, |view| {
        let linked = view.link(node(view, "f"), NodeId::ROOT, b"second");
        linked.expect("the name is free");
    });
    let kept = undo(&store, &[2], &["second"]).unwrap_or_else(|error| panic!("{error}"));
    commit(&store, |view| unlink(view, "f"));
    let landed = store.commit(&kept);
    assert!(matches!(landed, Err(CommitError::Conflict(_))));
    assert_eq!(read(&scratch.0, "second"), b"1");
}

/// The commit writes contents and also sets the mode, to what it was.
#[test]
fn attributes_that_a_commit_did_not_change_are_not_taken_back() {
    let (scratch, store) = store();
    let file = scratch.0.join("f");
    std::fs::write(&file, vec![b'x'; LENGTH as usize]).expect("written");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&file, mode).expect("it is there");
    let written = commit(&store, |view| {
        put(view, "f", 0, b"2");
        set_mode(view, "f", 0o644);
    });
    commit(&store, |view| set_mode(view, "f", 0o600));
    land(&store, &[written], &[]);
    assert_eq!(read(&scratch.0, "f")[0], b'x');
    let mode = std::fs::metadata(&file).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The change before the rename belongs to the file's old name.
#[test]
fn undo_of_several_conflicts_with_a_rename_between_them() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "f", 0, b"x"));
    commit(&store, |view| set_mode(view, "f", 0o600));
    commit(&store, |view| rename(view, "f", "g"));
    commit(&store, |view| set_mode(view, "g", 0o640));
    let found = conflict(&store, &[2, 4]);
    assert_eq!(found, ("g".into(), ConflictKind::Contents, Some(3)));
    land(&store, &[4], &[]);
    land(&store, &[2], &[]);
    let found = std::fs::metadata(scratch.0.join("g")).expect("there");
    assert_eq!(found.permissions().mode() & 0o777, 0o644);
}
