//! An undo takes back what the commits changed and nothing else. It conflicts with later changes of
//! the same parts, and with leaving out one of the files of a database.

use std::path::Path;
use std::sync::Arc;

use crate::support::model::caller;
use crate::support::{EVERYTHING, Scratch, begin, create, open_history, open_keeping, options};
use atomdir_disk::{LinuxDisk, RenameMode};
use atomdir_engine::{
    ChangedBy, Conflict, ConflictKind, HistoryLimits, NewNode, NodeId, Sequence, SetAttributes,
    Store, Transaction, UndoError,
};

const PAGE: u64 = 4096;

pub(super) type View = Transaction<LinuxDisk>;

pub(super) fn store() -> (Scratch, Store<LinuxDisk>) {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    (scratch, store)
}

pub(super) fn commit(store: &Store<LinuxDisk>, change: impl FnOnce(&View)) -> u64 {
    let transaction = begin(store);
    change(&transaction);
    let committed = store.commit(&transaction).expect("nobody is in the way");
    committed.sequence.expect("something has changed").0
}

pub(super) fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("paths resolve");
    found.unwrap_or_else(|| panic!("{path} is there"))
}

fn place(path: &str) -> (&str, &[u8]) {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    (parent, name.as_bytes())
}

pub(super) fn make(view: &View, path: &str, what: NewNode) -> NodeId {
    let (parent, name) = place(path);
    let mode = match what {
        NewNode::Directory => 0o755,
        _ => 0o644,
    };
    let made = view.create(node(view, parent), name, what, mode, 0, caller());
    made.expect("the name is free").node
}

pub(super) fn put(view: &View, path: &str, offset: u64, bytes: &[u8]) {
    let known = view.resolve(path.as_bytes()).expect("paths resolve");
    let file = known.unwrap_or_else(|| make(view, path, NewNode::File));
    view.write(file, offset, bytes, false).expect("written");
}

pub(super) fn unlink(view: &View, path: &str) {
    let (parent, name) = place(path);
    view.unlink(node(view, parent), name).expect("it is there");
}

pub(super) fn set_mode(view: &View, path: &str, mode: u32) {
    let change = SetAttributes {
        mode: Some(mode),
        ..Default::default()
    };
    let set = view.set_attributes(node(view, path), change, caller());
    set.expect("set");
}

pub(super) fn undo(
    store: &Store<LinuxDisk>,
    commits: &[u64],
    paths: &[&str],
) -> Result<Arc<View>, UndoError> {
    let commits: Vec<Sequence> = commits.iter().copied().map(Sequence).collect();
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    store.undo(&commits, &paths, options())
}

pub(super) fn land(store: &Store<LinuxDisk>, commits: &[u64], paths: &[&str]) {
    let undone = undo(store, commits, paths).unwrap_or_else(|error| panic!("{error}"));
    store.commit(&undone).expect("nobody is in the way");
}

fn conflicts(store: &Store<LinuxDisk>, commits: &[u64], paths: &[&str]) -> Vec<Conflict> {
    match undo(store, commits, paths) {
        Err(UndoError::Conflict(conflicts)) => conflicts,
        Err(error) => panic!("{error}"),
        Ok(undone) => panic!("undone: {:?}", undone.changes()),
    }
}

/// The path and the kind of the only conflict, and the commit that made the change.
pub(super) fn conflict(
    store: &Store<LinuxDisk>,
    commits: &[u64],
) -> (String, ConflictKind, Option<u64>) {
    let found = conflicts(store, commits, &[]);
    let [Conflict { path, what, by }] = &found[..] else {
        panic!("{found:?}");
    };
    let by = match by {
        ChangedBy::Commit { sequence, .. } => Some(sequence.0),
        _ => None,
    };
    (String::from_utf8_lossy(path).into_owned(), *what, by)
}

pub(super) fn read(root: &Path, path: &str) -> Vec<u8> {
    std::fs::read(root.join(path)).expect("it is there")
}

#[test]
fn later_commits_conflict_with_an_undo_of_the_same_parts_only() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "file", 0, &[b'a'; 4 * PAGE as usize]);
        let parent = NodeId::ROOT;
        let linked = view.link(node(view, "file"), parent, b"other");
        linked.expect("the name is free");
        make(view, "directory", NewNode::Directory);
    });
    let first = commit(&store, |view| {
        put(view, "file", 0, &[b'b'; PAGE as usize]);
        put(view, "directory/one", 0, b"1");
    });
    let beside = commit(&store, |view| {
        put(view, "file", 2 * PAGE, &[b'c'; PAGE as usize]);
        put(view, "directory/two", 0, b"2");
    });
    let over = commit(&store, |view| put(view, "file", 10, b"d"));
    let found = conflict(&store, &[first]);
    assert_eq!(found, ("file".into(), ConflictKind::Contents, Some(over)));
    // The two commits that wrote the page can be undone together.
    land(&store, &[first, over], &[]);
    let wanted = [b'a', b'a', b'c', b'a']
        .map(|byte| [byte; PAGE as usize])
        .concat();
    assert_eq!(read(root, "file"), wanted);
    assert_eq!(read(root, "other"), wanted);
    assert!(!root.join("directory/one").exists());
    land(&store, &[beside], &[]);
    assert_eq!(read(root, "file"), [b'a'; 4 * PAGE as usize]);
    assert!(!root.join("directory/two").exists());
}

#[test]
fn undo_brings_removed_objects_back_with_their_inodes() {
    use std::os::unix::fs::MetadataExt;
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        make(view, "d", NewNode::Directory);
        make(view, "d/e", NewNode::Directory);
        for number in 0..50 {
            put(view, &format!("d/e/{number}"), 0, &[b'x'; 100]);
        }
    });
    let inode = |path: &str| std::fs::metadata(root.join(path)).expect("there").ino();
    let before = (inode("d"), inode("d/e/7"));
    let removed = commit(&store, |view| {
        for number in 0..50 {
            unlink(view, &format!("d/e/{number}"));
        }
        view.remove_directory(node(view, "d"), b"e").expect("empty");
        view.remove_directory(NodeId::ROOT, b"d").expect("empty");
    });
    store.checkpoint().expect("nothing is in the way");
    land(&store, &[removed], &[]);
    assert_eq!((inode("d"), inode("d/e/7")), before);
    // A name that somebody has taken meanwhile is not overwritten.
    let again = commit(&store, |view| {
        view.rename(
            NodeId::ROOT,
            b"d",
            NodeId::ROOT,
            b"f",
            RenameMode::NoReplace,
        )
        .expect("the name is free");
    });
    std::fs::create_dir(root.join("d")).expect("made");
    let found = conflict(&store, &[again]);
    assert_eq!(found, ("d".into(), ConflictKind::Entry, None));
}

/// Where an outside writer changes something, and how.
type Change<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn outside_changes_conflict_with_an_undo() {
    let change_times = |path: &Path| {
        // Length and modification time stay the same. Only the change time shows the write.
        let before = std::fs::metadata(path).and_then(|before| before.modified());
        std::fs::write(path, b"OLD").expect("written");
        let file = std::fs::File::options().write(true).open(path);
        file.and_then(|file| file.set_modified(before?))
            .expect("set");
    };
    let changes: [Change; 8] = [
        ("", &|_| {}),
        ("new", &|root| change_times(&root.join("new"))),
        ("kept", &|root| change_times(&root.join("kept"))),
        ("linked", &|root| change_times(&root.join("linked"))),
        ("d", &|root| {
            std::fs::write(root.join("d/more"), b"").expect("made")
        }),
        ("d/inside", &|root| change_times(&root.join("d/inside"))),
        ("gone", &|root| {
            std::fs::write(root.join("gone"), b"").expect("made")
        }),
        ("dressed", &|root| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
            std::fs::set_permissions(root.join("dressed"), mode).expect("set")
        }),
    ];
    for (path, change) in changes {
        for then in ["checkpoint before", "nothing", "killed"] {
            let (scratch, mut store) = store();
            let root = &scratch.0;
            commit(&store, |view| {
                for path in ["kept", "gone", "linked", "dressed"] {
                    put(view, path, 0, b"one");
                }
                let linked = view.link(node(view, "linked"), NodeId::ROOT, b"other");
                linked.expect("the name is free");
            });
            let undone = commit(&store, |view| {
                for path in ["new", "kept", "linked"] {
                    put(view, path, 0, b"two");
                }
                make(view, "d", NewNode::Directory);
                put(view, "d/inside", 0, b"two");
                unlink(view, "gone");
                set_mode(view, "dressed", 0o700);
            });
            if then == "checkpoint before" {
                store.checkpoint().expect("nothing is in the way");
            }
            change(root);
            if then == "killed" {
                // Recovery sets change times, so the modification time must show the write.
                if ["new", "kept", "linked", "d/inside"].contains(&path) {
                    std::fs::write(root.join(path), b"OLD").expect("written");
                }
                drop(store);
                store = open_history(root);
            }
            if path.is_empty() {
                undo(&store, &[undone], &[]).expect("nothing came later");
                continue;
            }
            let found = conflicts(&store, &[undone], &[]);
            let is_at = |conflict: &Conflict| {
                conflict.path.starts_with(path.as_bytes()) && conflict.by == ChangedBy::Outside
            };
            assert!(found.iter().any(is_at), "{path}, {then}: {found:?}");
            assert_eq!(read(root, "kept").len(), 3);
        }
    }
}

#[test]
fn outside_change_before_a_later_commit_conflicts_with_an_undo() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "file", 0, &[b'a'; 4 * PAGE as usize]);
        let linked = view.link(node(view, "file"), NodeId::ROOT, b"other");
        linked.expect("the name is free");
    });
    let first = commit(&store, |view| put(view, "file", 0, b"first"));
    std::fs::write(root.join("file"), [b'z'; 4 * PAGE as usize]).expect("written");
    commit(&store, |view| put(view, "file", 2 * PAGE, b"second"));
    let found = conflict(&store, &[first]);
    assert_eq!(found, ("file".into(), ConflictKind::Contents, None));
}

#[test]
fn a_database_and_its_log_are_undone_together_or_not_at_all() {
    let (scratch, store) = store();
    let root = &scratch.0;
    let both = |view: &View, byte: u8| {
        put(view, "data.db", 0, &[byte; PAGE as usize]);
        put(view, "data.db-wal", 0, &[byte; 100]);
    };
    commit(&store, |view| both(view, b'a'));
    let second = commit(&store, |view| both(view, b'b'));
    // Asking for one of the files undoes both.
    land(&store, &[second], &["data.db"]);
    assert_eq!(read(root, "data.db-wal"), [b'a'; 100]);
    assert_eq!(read(root, "data.db"), [b'a'; PAGE as usize]);
    let database = commit(&store, |view| put(view, "data.db", 0, b"only the database"));
    let log = commit(&store, |view| put(view, "data.db-wal", 0, b"only the log"));
    let found = conflict(&store, &[database]);
    assert_eq!(
        found,
        ("data.db-wal".into(), ConflictKind::Contents, Some(log))
    );
    land(&store, &[database, log], &[]);
    // SQLite outside any transaction has written to the log since.
    let again = commit(&store, |view| put(view, "data.db", 0, b"once more"));
    std::fs::write(root.join("data.db-wal"), [b'c'; 200]).expect("written");
    let found = conflict(&store, &[again]);
    assert_eq!(found, ("data.db-wal".into(), ConflictKind::Contents, None));
    assert_eq!(read(root, "data.db")[..9], *b"once more");
}

#[test]
fn undo_of_a_path_includes_what_it_depends_on() {
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        make(view, "d", NewNode::Directory);
        put(view, "d/x", 0, b"x");
        put(view, "a", 0, b"a");
        put(view, "b", 0, b"b");
    });
    let changed = commit(&store, |view| {
        view.rename(
            NodeId::ROOT,
            b"a",
            NodeId::ROOT,
            b"c",
            RenameMode::NoReplace,
        )
        .expect("the name is free");
        put(view, "b", 0, b"B");
    });
    let gone = commit(&store, |view| unlink(view, "d/x"));
    let removed = commit(&store, |view| {
        view.remove_directory(NodeId::ROOT, b"d").expect("empty");
    });
    // This undoes both ends of the rename, and nothing else.
    land(&store, &[changed], &["a"]);
    assert!(root.join("a").exists() && !root.join("c").exists());
    assert_eq!(read(root, "b"), b"B");
    // A name needs the directory that it was in.
    land(&store, &[gone, removed], &["d/x"]);
    assert_eq!(read(root, "d/x"), b"x");
    let error = undo(&store, &[changed], &["nowhere"]).err();
    assert!(
        matches!(error, Some(UndoError::Untouched { .. })),
        "{error:?}"
    );
}

#[test]
fn undo_brings_attributes_back() {
    use std::os::unix::fs::PermissionsExt;
    let (scratch, store) = store();
    let root = &scratch.0;
    commit(&store, |view| {
        put(view, "file", 0, b"contents");
        make(view, "d", NewNode::Directory);
    });
    let mode = |path: &str| {
        let metadata = std::fs::metadata(root.join(path)).expect("there");
        metadata.permissions().mode() & 0o7777
    };
    let before = (mode("file"), mode("d"));
    let changed = commit(&store, |view| {
        for path in ["file", "d"] {
            set_mode(view, path, 0o700);
            view.set_xattr(node(view, path), b"user.note", b"new", 0, false)
                .expect("set");
        }
    });
    let undone = undo(&store, &[changed], &[]).expect("nothing came later");
    let file = node(&undone, "file");
    assert!(undone.xattr(file, b"user.note").is_err());
    store.commit(&undone).expect("nobody is in the way");
    assert_eq!((mode("file"), mode("d")), before);
    // An outside writer has set the mode since.
    let first = commit(&store, |view| set_mode(view, "d", 0o711));
    std::fs::set_permissions(root.join("d"), PermissionsExt::from_mode(0o750)).expect("set");
    let found = conflict(&store, &[first]);
    assert_eq!(found, ("d".into(), ConflictKind::Attributes, None));
}

#[test]
fn two_undos_of_one_commit_conflict() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "file", 0, b"contents"));
    let removed = commit(&store, |view| unlink(view, "file"));
    let first = undo(&store, &[removed], &[]).expect("nothing came later");
    let second = undo(&store, &[removed], &[]).expect("nothing came later");
    store.commit(&first).expect("nobody is in the way");
    store.commit(&second).expect_err("the name is taken");
    assert_eq!(read(&scratch.0, "file"), b"contents");
}

/// The bytes below a directory.
pub(super) fn bytes_below(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(directory).expect("it is listed");
    let sizes = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let metadata = std::fs::symlink_metadata(&path).expect("it is there");
        match metadata.is_dir() {
            true => bytes_below(&path),
            false => metadata.blocks() * 512,
        }
    });
    sizes.sum()
}

#[test]
fn the_history_stays_within_its_limits() {
    const BYTES_MAX: u64 = 300_000;
    let scratch = Scratch::new();
    create(&scratch.0);
    let limits = HistoryLimits {
        bytes_max: BYTES_MAX,
        ..EVERYTHING
    };
    let open = || open_keeping(LinuxDisk::new(), &scratch.0, Some(limits)).expect("it opens");
    let store = open();
    let mut newest = 0;
    for round in 0..30 {
        for number in 0..10 {
            newest = commit(&store, |view| {
                let bytes = [b'a' + number; 5000];
                put(view, &format!("file{}", round % 7), 0, &bytes);
            });
        }
        store.checkpoint().expect("nothing is in the way");
        let status = store.status().history.expect("it is kept");
        assert!(status.bytes <= BYTES_MAX, "{status:?}");
        let used = bytes_below(&scratch.0.join(".atomdir/limbo"));
        assert!(used <= BYTES_MAX, "{used} bytes in limbo");
    }
    let status = store.status().history.expect("it is kept");
    assert!(status.commits > 5, "{status:?}");
    let (oldest, _) = status.oldest.expect("there are some");
    assert_eq!(oldest.0 + status.commits - 1, newest);
    let error = undo(&store, &[oldest.0 - 1], &[]).err();
    assert!(matches!(error, Some(UndoError::NotKept(_))), "{error:?}");
    let all: Vec<u64> = (oldest.0..=newest).collect();
    land(&store, &all, &[]);
    drop(store);
    let store = open();
    let reopened = store.status().history.expect("it is kept");
    assert!(reopened.commits >= status.commits, "{reopened:?}");
    let nothing = HistoryLimits {
        age_seconds_max: 0,
        bytes_max: 0,
        free_bytes_min: 0,
    };
    let pruned = store.prune(&nothing).expect("nothing is in the way");
    assert_eq!((pruned.commits, pruned.bytes, pruned.oldest), (0, 0, None));
    assert_eq!(bytes_below(&scratch.0.join(".atomdir/limbo")), 0);
}

/// Objects of forgotten commits are kept while an open snapshot needs them.
#[test]
fn forgetting_takes_nothing_from_an_open_snapshot() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "file", 0, b"old"));
    let older = begin(&store);
    commit(&store, |view| unlink(view, "file"));
    let nothing = HistoryLimits {
        bytes_max: 0,
        ..EVERYTHING
    };
    store.prune(&nothing).expect("nothing is in the way");
    let mut bytes = [0; 3];
    let file = node(&older, "file");
    older
        .read(file, 0, &mut bytes, caller())
        .expect("it is read");
    assert_eq!(&bytes, b"old");
    store.abort(&older);
    store.checkpoint().expect("nothing is in the way");
    assert_eq!(bytes_below(&scratch.0.join(".atomdir/limbo")), 0);
}

/// A store that is opened without history drops the history that it had.
#[test]
fn history_starts_again_after_a_commit_without_history() {
    let (scratch, store) = store();
    commit(&store, |view| put(view, "file", 0, b"one"));
    let kept = commit(&store, |view| put(view, "file", 0, b"two"));
    drop(store);
    let plain = crate::support::open(&scratch.0);
    let unkept = commit(&plain, |view| put(view, "file", 0, b"three"));
    drop(plain);
    let store = open_history(&scratch.0);
    for commit in [kept, unkept] {
        let error = undo(&store, &[commit], &[]).err();
        assert!(matches!(error, Some(UndoError::NotKept(_))), "{error:?}");
    }
    let again = commit(&store, |view| put(view, "file", 0, b"four!"));
    land(&store, &[again], &[]);
    assert_eq!(read(&scratch.0, "file"), b"three");
}
