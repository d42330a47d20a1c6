//! A file system that does not count subdirectories, as Btrfs: every directory has one link.

use atomdir_disk::RenameMode;
use atomdir_engine::{NodeId, Sequence, Store, Transaction};

use crate::support::failing::FailingDisk;
use crate::support::{EVERYTHING, Scratch, begin, create_with, open_keeping, options};

type View = Transaction<FailingDisk>;

/// Looks an entry up as the kernel does, and has it forget the node again.
fn forget(view: &View, parent: NodeId, names: &[&str]) {
    if let Some((name, rest)) = names.split_first() {
        let found = view.lookup(parent, name.as_bytes()).expect("it is there");
        forget(view, found.node, rest);
        view.forget(found.node, 1);
    }
}

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("the path resolves");
    found.expect("it is there")
}

fn store(scratch: &Scratch) -> Store<FailingDisk> {
    let disk = FailingDisk::without_flushes().counting_no_subdirectories();
    create_with(&disk, &scratch.0);
    open_keeping(disk, &scratch.0, Some(EVERYTHING)).expect("the store opens")
}

#[test]
fn removed_and_moved_subdirectories_are_committed_and_undone() {
    let scratch = Scratch::new();
    for path in ["d/gone", "e/moved", "f/in/within"] {
        std::fs::create_dir_all(scratch.0.join(path)).expect("the base takes it");
    }
    let store = store(&scratch);
    let there = |path: &str| scratch.0.join(path).is_dir();
    let view = begin(&store);
    let (d, e, f) = (node(&view, "d"), node(&view, "e"), node(&view, "f"));
    view.remove_directory(d, b"gone").expect("it is empty");
    let moved = view.rename(e, b"moved", f, b"moved", RenameMode::Replace);
    moved.expect("the name is free");
    for directory in [d, e, f] {
        let attributes = view.attributes(directory).expect("it is there");
        assert!(
            attributes.links > 0,
            "only removed directories have no link"
        );
    }
    // The view keeps its changes when the kernel forgets the nodes.
    forget(&view, NodeId::ROOT, &["d"]);
    forget(&view, NodeId::ROOT, &["e"]);
    forget(&view, NodeId::ROOT, &["f", "moved"]);
    store.commit(&view).expect("nobody is in the way");
    assert!(!there("d/gone") && !there("e/moved") && there("f/moved"));

    let view = begin(&store);
    let (root, f) = (NodeId::ROOT, node(&view, "f"));
    let moved = view.rename(f, b"in", root, b"out", RenameMode::Replace);
    moved.expect("the name is free");
    let out = node(&view, "out");
    view.remove_directory(out, b"within").expect("it is empty");
    store.commit(&view).expect("nobody is in the way");
    for commits in [&[2][..], &[1]] {
        let commits: Vec<Sequence> = commits.iter().copied().map(Sequence).collect();
        let undone = store.undo(&commits, &[], options());
        store
            .commit(&undone.expect("nothing came later"))
            .expect("nobody is in the way");
    }
    assert!(there("f/in/within") && there("e/moved") && there("d/gone") && !there("out"));
}
