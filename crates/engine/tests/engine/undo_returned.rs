//! An undo brings back objects that have no name. If another undo or a restore has brought one back
//! meanwhile, the undo or its commit conflicts, and the store goes on.

use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{begin, options};
use crate::undo_conflicts::{
    View, commit, conflict, land, make, node, put, read, store, undo, unlink,
};
use atomdir_disk::{LinuxDisk, RenameMode};
use atomdir_engine::{CommitError, ConflictKind, NewNode, NodeId, Sequence, Store, UndoError};

pub(super) fn directory(view: &View, path: &str) {
    make(view, path, NewNode::Directory);
}

pub(super) fn rename(view: &View, from: &str, to: &str) {
    let place = |path: &str| {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        (node(view, parent), name.as_bytes().to_vec())
    };
    let ((from_parent, from), (to_parent, to)) = (place(from), place(to));
    let renamed = view.rename(from_parent, &from, to_parent, &to, RenameMode::Replace);
    renamed.expect("nothing is in the way");
}

pub(super) fn remove_directory(view: &View, path: &str) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    let removed = view.remove_directory(node(view, parent), name.as_bytes());
    removed.expect("it is empty");
}

/// Brings a path back as it was after a commit.
pub(super) fn restore(store: &Store<LinuxDisk>, commit: u64, path: &str) {
    let restored = store.restore(Sequence(commit), &[path.into()], options());
    let restored = restored.unwrap_or_else(|error| panic!("{error}"));
    store.commit(&restored).expect("nobody is in the way");
}

/// Which of the commits is undone already, and the commit that undid it.
fn undone_already(store: &Store<LinuxDisk>, commits: &[u64]) -> (u64, u64) {
    match undo(store, commits, &[]) {
        Err(UndoError::AlreadyUndone { commit, by }) => (commit.0, by.0),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it is undone twice"),
    }
}

/// The store still takes commits, and opens again.
fn goes_on(store: &Store<LinuxDisk>) {
    commit(store, |view| put(view, "after", 0, b"1"));
    let status = store.status();
    assert!(status.stalled.is_none(), "{status:?}");
}

/// Commit 1 makes `f/b`, 2 renames it to `g`, and 3 removes `g`.
fn moved_and_removed(store: &Store<LinuxDisk>) {
    commit(store, |view| {
        directory(view, "f");
        directory(view, "f/b");
    });
    commit(store, |view| rename(view, "f/b", "g"));
    commit(store, |view| remove_directory(view, "g"));
}

#[test]
fn undo_of_a_range_is_refused_if_its_last_commit_is_undone_already() {
    let (_scratch, store) = store();
    moved_and_removed(&store);
    land(&store, &[3], &[]);
    assert_eq!(undone_already(&store, &[2, 3]), (3, 4));
    goes_on(&store);
    // The range can be undone together with the undo.
    land(&store, &[2, 3, 4], &[]);
    let view = begin(&store);
    node(&view, "f/b");
}

#[test]
fn commit_is_undone_once_even_if_its_directory_was_moved_since() {
    let (_scratch, store) = store();
    commit(&store, |view| {
        directory(view, "f");
        directory(view, "f/b");
    });
    commit(&store, |view| remove_directory(view, "f/b"));
    land(&store, &[2], &[]);
    commit(&store, |view| rename(view, "f/b", "g"));
    assert_eq!(undone_already(&store, &[2]), (2, 3));
    goes_on(&store);
}

#[test]
fn undo_gives_no_second_name_to_a_file_that_a_restore_brought_back() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "a", 0, b"1"));
    commit(&store, |view| rename(view, "a", "b"));
    commit(&store, |view| unlink(view, "b"));
    restore(&store, 2, "b");
    let found = conflict(&store, &[2, 3]);
    assert_eq!(found, ("a".into(), ConflictKind::Returned, Some(4)));
    assert_eq!(read(&scratch.0, "b"), b"1");
    assert!(!scratch.0.join("a").exists());
}

/// Two undos are open at the same time, and the first one lands.
fn second_undo_conflicts(first: &[u64], second: &[u64], path: &[u8]) {
    let (_scratch, store) = store();
    moved_and_removed(&store);
    let kept = undo(&store, second, &[]).unwrap_or_else(|error| panic!("{error}"));
    land(&store, first, &[]);
    let Err(CommitError::Conflict(found)) = store.commit(&kept) else {
        panic!("it conflicts");
    };
    assert!(found.iter().any(|one| one.path == path), "{found:?}");
    store.abort(&kept);
    goes_on(&store);
}

#[test]
fn second_of_two_concurrent_undos_conflicts() {
    second_undo_conflicts(&[2, 3], &[3], b"g");
    second_undo_conflicts(&[3], &[2, 3], b"f/b");
}

#[test]
fn restored_directory_that_another_undo_brought_back_conflicts() {
    let (_scratch, store) = store();
    moved_and_removed(&store);
    let restored = store.restore(Sequence(2), &[b"g".to_vec()], options());
    let restored = restored.unwrap_or_else(|error| panic!("{error}"));
    land(&store, &[2, 3], &[]);
    assert!(matches!(
        store.commit(&restored),
        Err(CommitError::Conflict(_))
    ));
    store.abort(&restored);
    goes_on(&store);
}

/// A restore puts a removed directory into a new directory, which a later commit removes, and so
/// on. All of it is undone at once.
#[test]
fn directory_that_moved_through_new_ones_goes_back_to_its_first_place() {
    let (scratch, store) = store();
    for path in ["p", "p/db", "p/db/d", "p/db/d/X", "p/n"] {
        std::fs::create_dir(scratch.0.join(path)).expect("made");
    }
    let remove = |view: &View, paths: &[&str]| {
        for path in paths {
            remove_directory(view, path);
        }
    };
    commit(&store, |view| {
        rename(view, "p/db", "q");
        remove(view, &["q/d/X", "q/d"]);
    });
    restore(&store, 0, "p/db");
    commit(&store, |view| remove(view, &["p/db/d/X", "p/db/d", "p/db"]));
    restore(&store, 0, "p/db");
    land(&store, &[1, 2, 3, 4], &[]);
    let list = |path: &str| {
        let entries = std::fs::read_dir(scratch.0.join(path)).expect("it is there");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names.filter(|name| name != ".atomdir").collect();
        names.sort();
        names
    };
    assert_eq!(list(""), ["p"]);
    assert_eq!(list("p"), ["db", "n"]);
    assert_eq!(list("p/db"), ["d"]);
    assert_eq!(list("p/db/d"), ["X"]);
    goes_on(&store);
}

/// A commit moves a directory into a new one and changes it; another removes the tree above both.
#[test]
fn directory_removed_inside_a_new_one_comes_back() {
    let (scratch, store) = store();
    std::fs::create_dir_all(scratch.0.join("a/dw")).expect("made");
    std::fs::write(scratch.0.join("a/dw/in"), "at").expect("written");
    commit(&store, |view| {
        unlink(view, "a/dw/in");
        directory(view, "a/e");
        rename(view, "a/dw", "a/e/b");
    });
    commit(&store, |view| {
        for path in ["a/e/b", "a/e", "a"] {
            remove_directory(view, path);
        }
    });
    let past = store.past(Sequence(0), options());
    let past = past.unwrap_or_else(|error| panic!("{error}"));
    node(&past.transaction, "a/dw/in");
    store.abort(&past.transaction);
    land(&store, &[1, 2], &[]);
    assert_eq!(read(&scratch.0, "a/dw/in"), b"at");
    goes_on(&store);
}

/// Puts an object into a new directory, which takes the object's old path.
fn wrap(view: &View, path: &str, name: &str) {
    directory(view, "new");
    rename(view, path, &format!("new/{name}"));
    rename(view, "new", path);
}

/// An undo takes a directory out of a removed one. A later undo, or a view of the past, brings the
/// removed directory back with it.
#[test]
fn removed_directory_comes_back_with_what_another_undo_took_out_of_it() {
    let (scratch, store) = store();
    commit(&store, |view| directory(view, "f"));
    commit(&store, |view| {
        wrap(view, "f", "in");
        put(view, "f/in/file", 0, b"1");
    });
    let wrapped = tree_of_base(&scratch.0);
    land(&store, &[1, 2], &[]);
    land(&store, &[2, 3], &[]);
    land(&store, &[1, 2, 3, 4], &[]);
    assert_eq!(undone_already(&store, &[3]), (3, 5));
    let past = store.past(Sequence(2), options());
    let past = past.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(tree_of_view(&past.transaction), wrapped);
    store.abort(&past.transaction);
    land(&store, &[3, 4, 5], &[]);
    assert_eq!(tree_of_base(&scratch.0), wrapped);
    goes_on(&store);
}

#[test]
fn directory_that_moved_between_two_removals_comes_back_once() {
    let (_scratch, store) = store();
    commit(&store, |view| directory(view, "x"));
    commit(&store, |view| remove_directory(view, "x"));
    restore(&store, 1, "x");
    commit(&store, |view| rename(view, "x", "y"));
    commit(&store, |view| remove_directory(view, "y"));
    let found = undo(&store, &[2, 5], &[]);
    assert!(matches!(found, Err(UndoError::Conflict(_))));
    land(&store, &[2, 3, 4, 5], &[]);
    goes_on(&store);
}

#[test]
fn undo_of_a_removal_conflicts_if_the_file_was_brought_back_and_removed_again() {
    let (_scratch, store) = store();
    commit(&store, |view| put(view, "a", 0, b"1"));
    commit(&store, |view| unlink(view, "a"));
    restore(&store, 1, "a");
    commit(&store, |view| put(view, "a", 0, b"2"));
    commit(&store, |view| unlink(view, "a"));
    let found = conflict(&store, &[2]);
    assert_eq!(found, ("a".into(), ConflictKind::Entry, Some(5)));
}

/// While names are exchanged, the file waits in limbo. Its name there is removed once the file has
/// all its other names.
#[test]
fn file_that_waited_in_limbo_leaves_no_name_there() {
    use std::os::unix::fs::MetadataExt;
    let (scratch, store) = store();
    commit(&store, |view| put(view, "b", 0, b"1"));
    commit(&store, |view| {
        rename(view, "b", "d");
        directory(view, "b");
        let linked = view.link(node(view, "d"), node(view, "b"), b"g");
        linked.expect("the name is free");
    });
    land(&store, &[2], &[]);
    let file = std::fs::metadata(scratch.0.join("b")).expect("it is there");
    assert_eq!(file.nlink(), 1);
    commit(&store, |view| wrap(view, "b", "g"));
    let last = commit(&store, |view| wrap(view, "b/g", "b"));
    land(&store, &[last], &[]);
    assert_eq!(read(&scratch.0, "b/g"), b"1");
    goes_on(&store);
}

#[test]
fn directory_is_not_taken_for_the_log_of_a_database() {
    let (scratch, store) = store();
    commit(&store, |view| {
        directory(view, "x-wal");
        put(view, "x", 0, b"1");
    });
    let second = commit(&store, |view| put(view, "x", 0, b"2"));
    commit(&store, |view| put(view, "x-wal/f", 0, b"3"));
    land(&store, &[second], &[]);
    assert_eq!(read(&scratch.0, "x"), b"1");
}

/// A file that is written whole gets a new inode. An undo must not give the old inode to only some
/// of the file's names.
#[test]
fn names_of_one_file_do_not_become_names_of_two() {
    use std::os::unix::fs::MetadataExt;
    let link = |view: &View, from: &str, name: &[u8]| {
        let linked = view.link(node(view, from), NodeId::ROOT, name);
        linked.expect("the name is free");
    };
    let (scratch, store) = store();
    let root = &scratch.0;
    let inode = |path: &str| std::fs::metadata(root.join(path)).expect("there").ino();
    commit(&store, |view| put(view, "file", 0, b"before"));
    let old = inode("file");
    let written = commit(&store, |view| put(view, "file", 0, b"after!"));
    assert_ne!(inode("file"), old);
    let linked = commit(&store, |view| link(view, "file", b"other"));
    let found = conflict(&store, &[written]);
    assert_eq!(found, ("file".into(), ConflictKind::Contents, Some(linked)));
    land(&store, &[written, linked], &[]);
    assert_eq!((inode("file"), read(root, "file")), (old, b"before".into()));
    assert!(!root.join("other").exists());

    commit(&store, |view| link(view, "file", b"other"));
    let unlinked = commit(&store, |view| unlink(view, "other"));
    let written = commit(&store, |view| put(view, "file", 0, b"after!"));
    assert_ne!(inode("file"), old);
    let found = conflict(&store, &[unlinked]);
    let wanted = ("other".into(), ConflictKind::Contents, Some(written));
    assert_eq!(found, wanted);
    land(&store, &[unlinked, written], &[]);
    assert_eq!((inode("file"), inode("other")), (old, old));
    // Both names lead to one file.
    commit(&store, |view| put(view, "other", 0, b"both"));
    assert_eq!(read(root, "file"), b"bothre");
}
