//! Outside writers move directories while a transaction is open.

use std::fs;

use crate::support::{Scratch, begin, create, open};
use atomdir_disk::Errno;
use atomdir_engine::NodeId;

/// More objects than the store keeps open.
const OTHERS: usize = 200;

/// An outside writer moves a directory below its own subdirectory. If the store kept both at the
/// places where it last saw them, each would be above the other.
#[test]
fn directory_swapped_with_its_parent_from_outside_is_found() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let path = |name: &str| scratch.0.join(name);
    fs::create_dir_all(path("above/below")).expect("it is new");
    for number in 0..OTHERS {
        fs::create_dir(path(&format!("other{number}"))).expect("it is new");
    }
    let store = open(&scratch.0);
    let view = begin(&store);
    let look = |directory, name: &str| {
        let found = view.lookup(directory, name.as_bytes());
        found.map(|entry| entry.node)
    };
    let above = look(NodeId::ROOT, "above").expect("it is there");
    let below = look(above, "below").expect("it is there");
    assert_eq!(look(below, "none"), Err(Errno::NOENT));

    fs::rename(path("above/below"), path("moved")).expect("it is moved");
    fs::rename(path("above"), path("moved/above")).expect("it is moved");
    // The store finds `below` by a handle that is still open.
    look(below, "above").expect("it is there");
    for number in 0..OTHERS {
        let other = look(NodeId::ROOT, &format!("other{number}")).expect("it is there");
        assert_eq!(look(other, "none"), Err(Errno::NOENT));
    }
    // `below` is stale until it is looked up at its new place.
    assert_eq!(look(below, "nothing"), Err(Errno::STALE));
    look(NodeId::ROOT, "moved").expect("it is there");
    let above = look(below, "above").expect("it is there");
    assert_eq!(look(above, "none"), Err(Errno::NOENT));
}
