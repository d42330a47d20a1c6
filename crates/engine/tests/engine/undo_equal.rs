//! Files of outside writers that the caller of an undo has found to be equal to those that the
//! commits left.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::options;
use crate::undo_conflicts::{commit, put, read, store};
use atomdir_disk::{LinuxDisk, RenameMode, Timestamp};
use atomdir_engine::{EqualFile, NodeId, Sequence, Store, UndoError};

/// Puts a file of its own in the place of this one, as programs outside do.
fn replace(root: &Path, path: &str, contents: &str) -> EqualFile {
    fs::write(root.join("beside"), contents).expect("written");
    fs::rename(root.join("beside"), root.join(path)).expect("renamed");
    seen(root, path)
}

fn seen(root: &Path, path: &str) -> EqualFile {
    let stat = fs::symlink_metadata(root.join(path)).expect("it is there");
    EqualFile {
        path: path.into(),
        inode: stat.ino(),
        changed: Timestamp::of_fields(stat.ctime(), stat.ctime_nsec()),
    }
}

fn undo(store: &Store<LinuxDisk>, commit: u64, equal: &[EqualFile]) -> Result<(), UndoError> {
    let undone = store.undo_with(&[Sequence(commit)], (&[], equal), options())?;
    store.commit(&undone).expect("nobody is in the way");
    Ok(())
}

/// A commit replaces the file, and an outside writer replaces it once more.
#[test]
fn an_equal_file_is_replaced_as_the_one_that_the_commit_left() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "index", 0, b"before");
        put(view, "other", 0, b"before");
    });
    let done = commit(&store, |view| {
        put(view, "index.lock", 0, b"left");
        let root = NodeId::ROOT;
        view.rename(root, b"index.lock", root, b"index", RenameMode::Replace)
            .expect("renamed");
        put(view, "other", 0, b"left by");
    });
    let equal = replace(root, "index", "left, too");
    let refused = |equal: &[EqualFile]| match undo(&store, done, equal) {
        Err(UndoError::Conflict(conflicts)) => assert_eq!(conflicts[0].path, b"index"),
        other => panic!("{other:?}"),
    };
    refused(&[]);
    let elsewhere = EqualFile {
        path: b"other".to_vec(),
        ..equal.clone()
    };
    refused(&[elsewhere]);

    // It was changed after it was compared.
    let older = equal;
    let equal = replace(root, "index", "left as well");
    refused(&[older]);
    undo(&store, done, &[equal]).expect("it counts as left");
    assert_eq!(
        (read(root, "index"), read(root, "other")),
        (b"before".to_vec(), b"before".to_vec())
    );

    // That undo is a commit as others are.
    let equal = seen(root, "index");
    undo(&store, done + 1, &[equal]).expect("nothing came later");
    assert_eq!(read(root, "index"), b"left as well");
    assert_eq!(read(root, "other"), b"left by");
}
