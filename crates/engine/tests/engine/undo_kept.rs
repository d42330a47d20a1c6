//! What an undo leaves in the tree: files that have gained or lost names since, entries that
//! outside writers have put into new directories, and directories that the undone commits both made
//! and removed.

use std::os::unix::fs::MetadataExt;

use crate::support::failing::FailingDisk;
use crate::support::{EVERYTHING, Scratch, begin, create_with, open_keeping};
use crate::undo_conflicts::{commit, conflict, land, node, put, read, store, undo, unlink};
use crate::undo_returned::{directory, remove_directory, rename, restore};
use atomdir_disk::RenameMode;
use atomdir_engine::{ChangedBy, Conflict, ConflictKind, NodeId, Sequence, UndoError};

#[test]
fn undo_of_a_link_does_not_take_the_last_name_of_a_file() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "a", 0, b"1"));
    commit(&store, |view| {
        let linked = view.link(node(view, "a"), NodeId::ROOT, b"b");
        linked.expect("the name is free");
    });
    let removed = commit(&store, |view| unlink(view, "a"));
    let found = conflict(&store, &[2]);
    assert_eq!(found, ("b".into(), ConflictKind::Removed, Some(removed)));
    land(&store, &[2, removed], &[]);
    assert_eq!(read(&scratch.0, "a"), b"1");
    assert!(!scratch.0.join("b").exists());
}

/// A later commit has written the outside writer's file whole, or has removed it and was undone.
/// Either changes the file's inode or its change time.
#[test]
fn outside_file_in_a_new_directory_conflicts_even_after_commits_changed_it() {
    for is_removed in [false, true] {
        let (scratch, store) = store();
        let root = &scratch.0;
        commit(&store, |view| directory(view, "d"));
        std::fs::write(root.join("d/f"), b"outside").expect("written");
        commit(&store, |view| match is_removed {
            true => unlink(view, "d/f"),
            false => put(view, "d/f", 0, b"written"),
        });
        if is_removed {
            land(&store, &[2], &[]);
        }
        let undone: &[u64] = if is_removed { &[1] } else { &[1, 2] };
        let Err(UndoError::Conflict(found)) = undo(&store, undone, &[]) else {
            panic!("the file would be lost");
        };
        let mut outside = found.iter().filter(|one| one.by == ChangedBy::Outside);
        assert!(outside.any(|one| one.path == b"d/f"), "{found:?}");
    }
}

/// Both have changed the change time, which shows writes from outside.
#[test]
fn outside_change_conflicts_even_after_a_removal_of_the_file_was_undone() {
    let (scratch, store) = store();
    std::fs::write(scratch.0.join("f"), "before").expect("written");
    commit(&store, |view| {
        let linked = view.link(node(view, "f"), NodeId::ROOT, b"other");
        linked.expect("the name is free");
        put(view, "f", 0, b"commit");
    });
    std::fs::write(scratch.0.join("f"), "outside").expect("written");
    commit(&store, |view| {
        unlink(view, "f");
        unlink(view, "other");
    });
    land(&store, &[2], &[]);
    let found = undo(&store, &[1], &[]);
    assert!(matches!(found, Err(UndoError::Conflict(_))));
    assert_eq!(read(&scratch.0, "f"), b"outside");
}

#[test]
fn directory_made_and_removed_by_the_undone_commits_stays_as_a_restore_left_it() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        directory(view, "d");
        put(view, "d/f", 0, b"1");
        put(view, "d/g", 0, b"1");
    });
    commit(&store, |view| {
        unlink(view, "d/f");
        put(view, "d/h", 0, b"1");
    });
    commit(&store, |view| {
        unlink(view, "d/g");
        unlink(view, "d/h");
        remove_directory(view, "d");
    });
    restore(&store, 2, "d");
    land(&store, &[1, 2, 3], &[]);
    assert!(!root.join("d/f").exists());
    assert!(root.join("d/g").exists());
    assert!(root.join("d/h").exists());
}

/// A file that was moved into such a directory goes back, although the directory stays.
#[test]
fn file_goes_back_out_of_a_directory_made_and_removed_by_the_undone_commits() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| put(view, "a", 0, b"1"));
    commit(&store, |view| {
        directory(view, "d");
        rename(view, "a", "d/a");
    });
    commit(&store, |view| {
        unlink(view, "d/a");
        remove_directory(view, "d");
    });
    restore(&store, 2, "d");
    land(&store, &[2, 3], &[]);
    assert_eq!(read(root, "a"), b"1");
    assert!(root.join("d").exists());
    assert!(!root.join("d/a").exists());
}

/// The undo takes the directory out of a removed one, and gives it the name that the file leaves.
#[test]
fn file_whose_place_a_directory_takes_keeps_no_name_in_limbo() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        directory(view, "d");
        put(view, "f", 0, b"1");
    });
    commit(&store, |view| {
        directory(view, "w");
        rename(view, "d", "w/d");
        rename(view, "f", "d");
    });
    commit(&store, |view| {
        remove_directory(view, "w/d");
        remove_directory(view, "w");
    });
    land(&store, &[2, 3], &[]);
    assert!(root.join("d").is_dir());
    let file = std::fs::metadata(root.join("f")).expect("it is there");
    assert_eq!(file.nlink(), 1);
}

/// The second removal, an undo, has taken the file out of the directory, because the file has
/// another name in another removed directory.
#[test]
fn directory_that_was_removed_again_with_other_contents_does_not_come_back() {
    let (_scratch, store) = store();
    commit(&store, |view| {
        directory(view, "d");
        put(view, "d/f", 0, b"1");
    });
    commit(&store, |view| {
        unlink(view, "d/f");
        remove_directory(view, "d");
    });
    land(&store, &[2], &[]);
    commit(&store, |view| {
        directory(view, "d/new");
        rename(view, "d/f", "d/new/g");
    });
    commit(&store, |view| {
        unlink(view, "d/new/g");
        remove_directory(view, "d/new");
    });
    land(&store, &[4, 5], &[]);
    land(&store, &[3], &[]);
    let Err(UndoError::Conflict(found)) = undo(&store, &[2], &[]) else {
        panic!("the file is not in it any more");
    };
    let is_by_undo = |one: &Conflict| {
        matches!(
            one.by,
            ChangedBy::Commit {
                sequence: Sequence(7),
                ..
            }
        )
    };
    assert!(found.iter().all(is_by_undo), "{found:?}");
}

/// After a recovery, modification times show whether an outside writer has put anything into a
/// directory.
#[test]
fn exchanged_directories_keep_their_modification_times() {
    let scratch = Scratch::new();
    let disk = FailingDisk::without_flushes().modifying_exchanged_directories();
    create_with(&disk, &scratch.0);
    let root = &scratch.0;
    for path in ["a/one", "b/two"] {
        std::fs::create_dir_all(root.join(path)).expect("the base takes it");
    }
    let modified = |path: &str| {
        let stat = std::fs::metadata(root.join(path)).expect("it is there");
        (stat.mtime(), stat.mtime_nsec())
    };
    let store = open_keeping(disk, root, Some(EVERYTHING)).expect("the store opens");
    let (one, two) = (modified("a/one"), modified("b/two"));
    let view = begin(&store);
    let [a, b] = ["a", "b"].map(|path| {
        let found = view.resolve(path.as_bytes()).expect("the path resolves");
        found.expect("it is there")
    });
    let exchanged = view.rename(a, b"one", b, b"two", RenameMode::Exchange);
    exchanged.expect("both are there");
    store.commit(&view).expect("nobody is in the way");
    assert_eq!((modified("b/two"), modified("a/one")), (one, two));
}
