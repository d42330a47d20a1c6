//! Commits in which names change places.

use crate::support::model::caller;
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Scratch, begin, create, open};
use atomdir_disk::RenameMode;
use atomdir_engine::{NewNode, NodeId};

/// Each name of the new file was the name of an object that moves elsewhere.
#[test]
fn new_file_takes_the_names_of_moved_files() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::create_dir(scratch.0.join("a")).expect("the base can be changed");
    for name in ["a/x", "b", "c"] {
        std::fs::write(scratch.0.join(name), name).expect("the base can be changed");
    }
    let store = open(&scratch.0);
    let view = begin(&store);
    for (from, to) in [(b"a", b"e"), (b"b", b"f"), (b"c", b"g")] {
        let moved = view.rename(NodeId::ROOT, from, NodeId::ROOT, to, RenameMode::Replace);
        moved.expect("moved");
    }
    let made = view.create(NodeId::ROOT, b"a", NewNode::File, 0o644, 0, caller());
    let made = made.expect("made").node;
    for name in [b"b", b"c", b"d"] {
        view.link(made, NodeId::ROOT, name).expect("linked");
    }
    let wanted = tree_of_view(&view);
    store.commit(&view).expect("nobody is in the way");
    assert_eq!(tree_of_base(&scratch.0), wanted);
    drop(store);
    open(&scratch.0);
    assert_eq!(tree_of_base(&scratch.0), wanted);
}
