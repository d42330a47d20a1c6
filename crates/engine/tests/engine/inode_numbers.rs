//! The inode numbers that views show are below 2^53, and each stands for one object.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::{Scratch, begin, begin_nested, create_with, open_with};
use atomdir_disk::{Errno, Kind, RenameMode};
use atomdir_engine::{INODES_END, NewNode, NodeId, Store, Transaction};

type View = Arc<Transaction<FailingDisk>>;

/// Inode numbers of Btrfs and XFS on small disks, XFS on a huge one, and file systems that put
/// other things into the upper bits.
const INODES_FROM: [u64; 4] = [0, 1 << 40, (1 << 53) - 100, 1 << 62];

fn store(inodes_from: u64) -> (Scratch, Store<FailingDisk>) {
    let scratch = Scratch::new();
    let root = &scratch.0;
    fs::create_dir_all(root.join("d/inner")).expect("a fresh directory");
    for path in ["a", "b", "d/c", "d/inner/e", "d/inner/f"] {
        fs::write(root.join(path), path).expect("a fresh file");
    }
    fs::hard_link(root.join("a"), root.join("d/a")).expect("a fresh name");
    let disk = FailingDisk::new(Errno::IO, false).with_inodes_from(inodes_from);
    create_with(&disk, root);
    let store = open_with(disk, root).expect("the store opens");
    (scratch, store)
}

fn node(view: &View, path: &str) -> NodeId {
    let found = view.resolve(path.as_bytes()).expect("it can be looked up");
    found.expect("it is there")
}

/// Changes objects in every way.
fn change(view: &View) {
    let (d, inner) = (node(view, "d"), node(view, "d/inner"));
    view.write(node(view, "a"), 0, b"changed", false)
        .expect("it takes bytes");
    view.rename(d, b"c", NodeId::ROOT, b"moved", RenameMode::Replace)
        .expect("it can be moved");
    view.rename(d, b"inner", NodeId::ROOT, b"away", RenameMode::Replace)
        .expect("it can be moved");
    view.link(node(view, "b"), inner, b"linked")
        .expect("the name is free");
    view.unlink(inner, b"f").expect("it is there");
    for name in [&b"f"[..], b"new"] {
        view.create(inner, name, NewNode::File, 0o644, 0, caller())
            .expect("the name is free");
    }
    let made = view.create(d, b"made", NewNode::Directory, 0o755, 0, caller());
    let made = made.expect("the name is free").node;
    let target = NewNode::Symlink(b"a".to_vec());
    view.create(made, b"symlink", target, 0o777, 0, caller())
        .expect("the name is free");
}

/// The paths that show each number, below a directory.
fn numbers(view: &View, directory: NodeId, path: &str, found: &mut HashMap<u64, Vec<String>>) {
    for entry in view.list(directory).expect("it can be listed") {
        let name = entry.name.as_bytes();
        let looked_up = view.lookup(directory, name).expect("it is there");
        assert_eq!(looked_up.attributes.inode, entry.inode, "{path}");
        assert!(entry.inode < INODES_END, "{path}: {}", entry.inode);
        let path = format!("{path}/{}", String::from_utf8_lossy(name));
        if entry.kind == Kind::Directory {
            numbers(view, looked_up.node, &path, found);
        }
        found.entry(entry.inode).or_default().push(path);
    }
}

fn all_numbers(view: &View) -> HashMap<u64, Vec<String>> {
    let mut found = HashMap::new();
    numbers(view, NodeId::ROOT, "", &mut found);
    found.values_mut().for_each(|paths| paths.sort());
    found
}

#[test]
fn each_number_is_below_2_to_the_53_and_stands_for_one_object() {
    const { assert!(INODES_END < 1 << 53) };
    for inodes_from in INODES_FROM {
        let (_scratch, store) = store(inodes_from);
        let (one, other) = (begin(&store), begin(&store));
        let before = all_numbers(&other);
        change(&one);
        let inner = begin_nested(&store, &one);
        let root = NodeId::ROOT;
        inner
            .create(root, b"nested", NewNode::File, 0o644, 0, caller())
            .expect("the name is free");
        let (changed, nested) = (all_numbers(&one), all_numbers(&inner));
        let mut several: Vec<&Vec<String>> =
            changed.values().filter(|paths| paths.len() > 1).collect();
        several.sort();
        let names = |names: [&str; 2]| names.map(String::from).to_vec();
        let expected = [names(["/a", "/d/a"]), names(["/away/linked", "/b"])];
        assert_eq!(several, expected.iter().collect::<Vec<_>>());
        let number_of = |numbers: &HashMap<u64, Vec<String>>, path: &str| {
            let mut all = numbers.iter();
            let found = all.find(|(_, paths)| paths.iter().any(|one| one == path));
            *found.expect("it is there").0
        };
        // An old object keeps its number wherever it goes.
        for (old, now) in [("/d/c", "/moved"), ("/d/inner/e", "/away/e"), ("/a", "/a")] {
            assert_eq!(number_of(&before, old), number_of(&changed, now), "{now}");
            assert_eq!(number_of(&before, old), number_of(&nested, now), "{now}");
        }
        // The new objects of different transactions have different numbers.
        let made = other.create(root, b"other", NewNode::File, 0o644, 0, caller());
        let made = made.expect("the name is free").attributes.inode;
        assert!(!changed.contains_key(&made) && !nested.contains_key(&made));
        let nested_new = number_of(&nested, "/nested");
        assert!(!changed.contains_key(&nested_new));
        store.abort(&inner);
        store.commit(&one).expect("nobody else has changed it");
        // A new object gets the base's number.
        let landed = all_numbers(&begin(&store));
        assert_eq!(
            landed.values().flatten().count(),
            changed.values().flatten().count()
        );
        assert_eq!(all_numbers(&other).len(), before.len() + 1);
    }
}
