//! The memory of a read set. The allocator counts it after a walk that reads every file of
//! a tree and forgets its node, so that only what a commit needs is left.

#[path = "engine/support/mod.rs"]
mod support;

use atomdir_disk::{Kind, LinuxDisk};
use atomdir_engine::{BeginOptions, Isolation, NodeId, Transaction};
use support::counting::{Counting, allocated};
use support::model::caller;
use support::{Scratch, create, open, options};

const DIRECTORIES: usize = 16;
const FILES_EACH: usize = 100;
/// A view remembers shorter files that programs read.
const TOO_LONG_TO_REMEMBER: u64 = (1 << 20) + 1;
const OBJECTS: usize = DIRECTORIES * (FILES_EACH + 1);

/// Measured: 338, of which the store keeps 149 for each object anyway.
const BYTES_PER_OBJECT_MAX: usize = 400;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn walk(view: &Transaction<LinuxDisk>, directory: NodeId) {
    for entry in view.list(directory).expect("listed") {
        let found = view
            .lookup(directory, entry.name.as_bytes())
            .expect("found");
        view.attributes(found.node).expect("read");
        match found.attributes.kind {
            Kind::Directory => walk(view, found.node),
            _ => {
                view.read(found.node, 0, &mut [0; 64], caller())
                    .expect("read");
            }
        }
        view.forget(found.node, 1);
    }
}

/// The bytes that a walk leaves allocated in a store that was just opened. They include
/// what the store itself keeps for each object.
fn weight_of_walk(isolation: Isolation) -> usize {
    let scratch = Scratch::new();
    create(&scratch.0);
    for directory in 0..DIRECTORIES {
        let path = scratch.0.join(format!("directory-{directory}"));
        std::fs::create_dir(&path).expect("made");
        for file in 0..FILES_EACH {
            let file = std::fs::File::create(path.join(format!("file-{file}.c"))).expect("made");
            file.set_len(TOO_LONG_TO_REMEMBER).expect("long");
        }
    }
    let store = open(&scratch.0);
    let isolated = BeginOptions {
        isolation,
        ..options()
    };
    let view = store.begin(isolated).expect("a transaction begins");
    let before = allocated();
    walk(&view, NodeId::ROOT);
    let weight = allocated().saturating_sub(before);
    store.abort(&view);
    weight
}

#[test]
fn a_read_set_is_small() {
    let [snapshot, serializable] = [Isolation::Snapshot, Isolation::Serializable]
        .map(|isolation| weight_of_walk(isolation) / OBJECTS);
    println!("{snapshot} bytes per object read, {serializable} with a read set");
    assert!(
        serializable <= BYTES_PER_OBJECT_MAX,
        "{serializable} bytes per object"
    );
}
