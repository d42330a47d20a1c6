//! What commits of nested directories cost: memory, bytes in the log and in the history. Each
//! directory has a path that is longer by a name than the one above. So code that writes out a path
//! for each of them takes space in proportion to the square of their number.
//!
//! Nothing is measured in time. This is a program of its own, since it counts all that is allocated.

#[path = "../engine/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use atomdir_disk::{LinuxDisk, RenameMode};
use atomdir_engine::{CommitError, NewNode, NodeId, Store, Transaction};
use support::counting::{Counting, highest_while};
use support::model::caller;
use support::{Scratch, begin, create, open_history};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type View = Transaction<LinuxDisk>;

const NAME: &[u8] = &[b'n'; 200];

/// Files and tables grow in steps.
const STEP_BYTES: u64 = 512 << 10;

/// Costs by their names.
type Costs = BTreeMap<&'static str, u64>;

struct Measured {
    store: Store<LinuxDisk>,
    scratch: Scratch,
    costs: Costs,
}

impl Measured {
    /// Adds the most memory that it takes at a time to the costs.
    fn measure<T>(&mut self, what: &'static str, act: impl FnOnce(&Store<LinuxDisk>) -> T) -> T {
        let (done, bytes) = highest_while(|| act(&self.store));
        self.costs.insert(what, bytes as u64);
        done
    }

    fn note_file(&mut self, name: &'static str) {
        let file = std::fs::metadata(self.scratch.0.join(".atomdir").join(name));
        self.costs.insert(name, file.expect("it is there").len());
    }

    fn commit(&mut self, what: &'static str, view: &Arc<View>) {
        let log = self.store.status().log_bytes;
        let committed = self.measure(what, |store| store.commit(view));
        committed.expect("nobody is in the way");
        let what = format!("{what}, log");
        let grown = self.store.status().log_bytes - log;
        self.costs.insert(Box::leak(what.into_boxed_str()), grown);
    }
}

/// Calls `act` in every directory of a chain of so many.
fn in_each(view: &View, depth: usize, mut act: impl FnMut(NodeId)) {
    let mut at = NodeId::ROOT;
    for _ in 0..depth {
        act(at);
        at = match view.lookup(at, NAME) {
            Ok(found) => found.node,
            Err(_) => make(view, at, NAME, NewNode::Directory),
        };
    }
}

fn make(view: &View, parent: NodeId, name: &[u8], what: NewNode) -> NodeId {
    let made = view.create(parent, name, what, 0o755, 0, caller());
    made.expect("the name is free").node
}

fn file_in(view: &View, directory: NodeId) -> NodeId {
    view.lookup(directory, b"file").expect("it is there").node
}

fn costs(depth: usize) -> Costs {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open_history(&scratch.0);
    let costs = Costs::new();
    let mut measured = Measured {
        store,
        scratch,
        costs,
    };

    let view = begin(&measured.store);
    in_each(&view, depth, |at| {
        let file = make(&view, at, b"file", NewNode::File);
        view.write(file, 0, &[b'x'; 100], false).expect("written");
    });
    measured.measure("list", |_| drop(view.changed_paths().expect("listed")));
    measured.commit("create", &view);

    // The same with all objects in the base, and beside a transaction that will conflict.
    let late = begin(&measured.store);
    in_each(&late, depth, |at| {
        let file = file_in(&late, at);
        late.write(file, 0, b"late", false).expect("written");
    });
    let view = begin(&measured.store);
    in_each(&view, depth, |at| {
        let file = file_in(&view, at);
        view.write(file, 0, b"new", false).expect("written");
    });
    measured.commit("write", &view);
    let view = begin(&measured.store);
    in_each(&view, depth, |at| {
        let mode = RenameMode::NoReplace;
        let renamed = view.rename(at, b"file", at, b"renamed", mode);
        renamed.expect("the name is free");
        make(&view, at, b"file", NewNode::File);
    });
    measured.commit("rename", &view);
    let refused = measured.store.commit(&late);
    let Err(CommitError::Conflict(conflicts)) = refused else {
        panic!("{refused:?}");
    };
    assert!(!conflicts.is_empty());
    assert!(measured.store.abort(&late));

    measured.measure("checkpoint", |store| {
        store.checkpoint().expect("nothing fails")
    });
    measured.note_file("history");
    measured.note_file("past");
    measured.measure("log", |store| {
        let listed = store.for_each_commit(|commit| assert!(!commit.changes.is_empty()));
        listed.expect("it is read");
    });

    let view = begin(&measured.store);
    in_each(&view, depth, |at| {
        for name in [&b"file"[..], b"renamed"] {
            view.unlink(at, name).expect("it is there");
        }
    });
    measured.commit("remove", &view);
    measured.costs
}

#[test]
fn costs_of_nested_directories_grow_as_their_number() {
    let (short, long) = (costs(200), costs(400));
    let mut wrong = Vec::new();
    for (what, cost) in &long {
        let most = short[what] * 12 / 5 + STEP_BYTES;
        println!("{what}: {} and {cost} bytes", short[what]);
        if *cost > most {
            wrong.push(*what);
        }
    }
    assert!(wrong.is_empty(), "more than twice as much: {wrong:?}");
}
