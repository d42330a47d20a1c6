//! Which parts a serializable transaction has read, and which changes by others then conflict with
//! its commit. These tests call the engine, so they control exactly what is read; end-to-end tests
//! cover what the kernel requests for a program's calls.

use std::sync::Arc;

use crate::support::model::caller;
use crate::support::{self, Scratch, create, open};
use atomdir_disk::{Errno, LinuxDisk, RenameMode};
use atomdir_engine::{
    BeginOptions, CommitError, ConflictKind, Isolation, NewNode, NodeId, SetAttributes, Store,
    Transaction,
};

type View = Transaction<LinuxDisk>;

fn begin(store: &Store<LinuxDisk>, isolation: Isolation) -> Arc<View> {
    store
        .begin(options(isolation))
        .expect("a transaction begins")
}

fn options(isolation: Isolation) -> BeginOptions {
    BeginOptions {
        isolation,
        ..support::options()
    }
}

fn node(view: &View, path: &str) -> NodeId {
    view.resolve(path.as_bytes())
        .expect("resolves")
        .expect("is there")
}

fn read(view: &View, path: &str, offset: u64, length: usize) {
    view.read(node(view, path), offset, &mut vec![0; length], caller())
        .expect("is read");
}

fn write(view: &View, path: &str, offset: u64) {
    view.write(node(view, path), offset, b"new", false)
        .expect("is written");
}

fn set_mode(view: &View, path: &str) {
    let change = SetAttributes {
        mode: Some(0o700),
        ..Default::default()
    };
    view.set_attributes(node(view, path), change, caller())
        .expect("is set");
}

fn make(view: &View, directory: &str, name: &str) {
    let parent = node(view, directory);
    view.create(parent, name.as_bytes(), NewNode::File, 0o644, 0, caller())
        .expect("is made");
}

fn rename(view: &View, from: &str, to: &str) {
    let root = NodeId::ROOT;
    view.rename(
        root,
        from.as_bytes(),
        root,
        to.as_bytes(),
        RenameMode::Replace,
    )
    .expect("is renamed");
}

fn attributes(view: &View, path: &str) {
    view.attributes(node(view, path)).expect("are read");
}

fn lookup(view: &View, directory: &str, name: &str) {
    match view.lookup(node(view, directory), name.as_bytes()) {
        Ok(_) | Err(Errno::NOENT) => {}
        Err(error) => panic!("{error}"),
    }
}

/// `file` has four pages and `link` as a second name; `dir` holds `inner`.
fn fixture() -> (Scratch, Store<LinuxDisk>) {
    let scratch = Scratch::new();
    let root = &scratch.0;
    create(root);
    std::fs::write(root.join("file"), vec![1; 4 * 4096]).expect("written");
    std::fs::hard_link(root.join("file"), root.join("link")).expect("linked");
    std::fs::create_dir(root.join("dir")).expect("made");
    std::fs::write(root.join("dir/inner"), b"old").expect("written");
    let store = open(root);
    (scratch, store)
}

type Reader = fn(&View);
type Writer = fn(&View);

/// The conflicts that the reader's commit finds: the path and what was read.
fn conflicts_under(
    isolation: Isolation,
    reader: impl Fn(&Store<LinuxDisk>, &Arc<View>),
    writer: Writer,
) -> Vec<(String, ConflictKind)> {
    let (_scratch, store) = fixture();
    let view = begin(&store, isolation);
    make(&view, "", "own");
    reader(&store, &view);
    let other = begin(&store, Isolation::Snapshot);
    writer(&other);
    store.commit(&other).expect("nobody is in the way");
    match store.commit(&view) {
        Ok(_) => Vec::new(),
        Err(CommitError::Conflict(conflicts)) => {
            let path = |path: Vec<u8>| String::from_utf8(path).expect("it is text");
            let found = conflicts.into_iter();
            found.map(|one| (path(one.path), one.what)).collect()
        }
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
fn conflicts(reader: Reader, writer: Writer, expected: &[(&str, ConflictKind)]) {
    let found = conflicts_under(Isolation::Serializable, |_, view| reader(view), writer);
    let found: Vec<(&str, ConflictKind)> = found
        .iter()
        .map(|(path, what)| (path.as_str(), *what))
        .collect();
    assert_eq!(found, expected);
    let found = conflicts_under(Isolation::Snapshot, |_, view| reader(view), writer);
    assert_eq!(found, [], "under snapshot");
}

#[test]
fn reads_of_contents_are_recorded_by_page() {
    use ConflictKind::ReadContents;
    let page: Reader = |view| read(view, "file", 4096, 4096);
    let all: Reader = |view| read(view, "file", 0, 4 * 4096);
    let all_and_end: Reader = |view| read(view, "file", 4096, 1 << 20);
    let hole: Reader = |view| {
        view.seek(node(view, "file"), 0, true)
            .expect("its end is a hole");
    };
    let append: Writer = |view| write(view, "file", 4 * 4096);
    let changed: &[_] = &[("file", ReadContents)];
    conflicts(page, |view| write(view, "file", 4096 + 10), changed);
    conflicts(page, |view| write(view, "file", 0), &[]);
    conflicts(page, |view| write(view, "file", 2 * 4096), &[]);
    conflicts(page, append, &[]);
    conflicts(page, |view| set_mode(view, "file"), &[]);
    conflicts(page, |view| write(view, "dir/inner", 0), &[]);
    conflicts(all, |view| write(view, "file", 3 * 4096), changed);
    conflicts(all_and_end, append, changed);
    conflicts(hole, append, changed);
    // It is the same file under its other name.
    conflicts(page, |view| write(view, "link", 4096), changed);
    let pages_apart: Reader = |view| {
        read(view, "file", 0, 10);
        read(view, "file", 2 * 4096, 10);
    };
    conflicts(pages_apart, |view| write(view, "file", 4096), &[]);
    conflicts(pages_apart, |view| write(view, "file", 2 * 4096), changed);
}

#[test]
fn attributes_are_in_the_read_set_once_requested() {
    use ConflictKind::{ReadAttributes, ReadContents};
    let file: Reader = |view| attributes(view, "file");
    let directory: Reader = |view| attributes(view, "dir");
    let xattr: Reader = |view| {
        assert_eq!(
            view.xattr(node(view, "file"), b"user.k"),
            Err(Errno::NODATA)
        );
    };
    let set_xattr: Writer = |view| {
        view.set_xattr(node(view, "file"), b"user.k", b"v", 0, false)
            .expect("set");
    };
    let link: Writer = |view| {
        view.link(node(view, "file"), node(view, "dir"), b"third")
            .expect("linked");
    };
    conflicts(
        file,
        |view| set_mode(view, "file"),
        &[("file", ReadAttributes)],
    );
    conflicts(
        file,
        |view| write(view, "file", 0),
        &[("file", ReadContents)],
    );
    conflicts(file, set_xattr, &[("file", ReadAttributes)]);
    conflicts(xattr, set_xattr, &[("file", ReadAttributes)]);
    conflicts(file, link, &[("file", ReadAttributes)]);
    conflicts(
        directory,
        |view| set_mode(view, "dir"),
        &[("dir", ReadAttributes)],
    );
    conflicts(directory, |view| make(view, "dir", "new"), &[]);
    conflicts(
        |view| lookup(view, "", "file"),
        |view| set_mode(view, "file"),
        &[],
    );
    conflicts(
        |view| lookup(view, "", "file"),
        |view| write(view, "file", 0),
        &[],
    );
    // A new object may get its mode and group from its directory.
    conflicts(
        |view| make(view, "dir", "mine"),
        |view| set_mode(view, "dir"),
        &[("dir", ReadAttributes)],
    );
}

#[test]
fn found_and_missing_names_are_in_the_read_set() {
    use ConflictKind::{ReadListing, ReadMissingName, ReadName};
    let found: Reader = |view| lookup(view, "dir", "inner");
    let missing: Reader = |view| lookup(view, "dir", "new");
    let listed: Reader = |view| {
        view.list(node(view, "dir")).expect("listed");
    };
    let remove: Writer = |view| view.unlink(node(view, "dir"), b"inner").expect("removed");
    let remove_all: Writer = |view| {
        view.unlink(node(view, "dir"), b"inner").expect("removed");
        view.remove_directory(NodeId::ROOT, b"dir")
            .expect("removed");
    };
    let create: Writer = |view| make(view, "dir", "new");
    conflicts(found, remove, &[("dir/inner", ReadName)]);
    conflicts(found, create, &[]);
    conflicts(missing, create, &[("dir/new", ReadMissingName)]);
    conflicts(missing, remove, &[]);
    conflicts(listed, create, &[("dir", ReadListing)]);
    conflicts(listed, remove, &[("dir", ReadListing)]);
    conflicts(listed, |view| write(view, "dir/inner", 0), &[]);
    conflicts(
        found,
        |view| rename(view, "dir", "moved"),
        &[("dir", ReadName)],
    );
    let gone: &[_] = &[("dir", ReadName)];
    conflicts(missing, remove_all, gone);
    conflicts(listed, remove_all, gone);
    let own_name_is_free: Reader = |view| make(view, "dir", "mine");
    conflicts(own_name_is_free, create, &[]);
    // The control directory is not part of a snapshot.
    conflicts(|view| lookup(view, "", ".atomdir"), create, &[]);
    conflicts(
        |view| drop(view.list(NodeId::ROOT).expect("listed")),
        create,
        &[],
    );
}

/// The outer transaction can see what the nested one did, or that it failed. So the reads of the
/// nested one count as its own.
#[test]
fn reads_of_a_nested_transaction_count_for_the_outer_one() {
    for is_committed in [true, false] {
        let reader = |store: &Store<LinuxDisk>, outer: &Arc<View>| {
            let nested = store.begin_nested(outer, options(Isolation::Serializable));
            let nested = nested.expect("none is open in it");
            read(&nested, "file", 0, 10);
            if is_committed {
                store.commit(&nested).expect("nobody is in the way");
            } else {
                store.abort(&nested);
            }
        };
        let change: Writer = |view| write(view, "file", 0);
        let found = conflicts_under(Isolation::Serializable, reader, change);
        assert_eq!(found, [("file".to_owned(), ConflictKind::ReadContents)]);
        assert_eq!(conflicts_under(Isolation::Snapshot, reader, change), []);
    }
}

/// A failed commit keeps the read set, so it fails again.
#[test]
fn failed_serializable_commit_fails_again() {
    let (_scratch, store) = fixture();
    let view = begin(&store, Isolation::Serializable);
    read(&view, "file", 0, 10);
    make(&view, "", "own");
    let other = begin(&store, Isolation::Snapshot);
    write(&other, "file", 0);
    store.commit(&other).expect("nobody is in the way");
    for _ in 0..2 {
        assert!(matches!(store.commit(&view), Err(CommitError::Conflict(_))));
    }
    store.abort(&view);
    let status = store.status();
    assert_eq!((status.open_transactions, status.retained_objects), (0, 0));
}
