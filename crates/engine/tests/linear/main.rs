//! What commits of nested directories cost: memory that is allocated, bytes in the log and in the
//! history. Each directory has a path that is longer by a name than the one above, so whoever
//! writes out a path for each of them takes space in proportion to the square of their number.
//!
//! Nothing is measured in time. A program of its own, since it counts all that it allocates.

#[path = "../engine/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atomdir_disk::{LinuxDisk, RenameMode};
use atomdir_engine::{CommitError, HistoryLimits, NewNode, NodeId, Store, Transaction};
use support::model::caller;
use support::{EVERYTHING, Scratch, begin, create, open_history, open_keeping};

struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

type View = Transaction<LinuxDisk>;

const NAME: &[u8] = &[b'n'; 200];

/// Costs by their names.
type Costs = BTreeMap<&'static str, u64>;

struct Measured {
    store: Store<LinuxDisk>,
    scratch: Scratch,
    costs: Costs,
}

impl Measured {
    /// Adds what it allocates to the costs.
    fn measure<T>(&mut self, what: &'static str, act: impl FnOnce(&Store<LinuxDisk>) -> T) -> T {
        let before = ALLOCATED.load(Ordering::Relaxed);
        let done = act(&self.store);
        let cost = ALLOCATED.load(Ordering::Relaxed) - before;
        self.costs.insert(what, cost);
        done
    }

    fn note_file(&mut self, what: &'static str, name: &str) {
        let file = std::fs::metadata(self.scratch.0.join(".atomdir").join(name));
        self.costs.insert(what, file.expect("it is there").len());
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
    measured.store.abort(&late).expect("it is open");

    measured.measure("checkpoint", |store| {
        store.checkpoint().expect("nothing fails")
    });
    measured.note_file("history", "history");
    measured.note_file("past", "past");
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
    // The first store also pays for what is made once.
    costs(10);
    let (short, long) = (costs(400), costs(800));
    let mut wrong = Vec::new();
    for (what, cost) in &long {
        let ratio = *cost as f64 / short[what] as f64;
        println!("{what}: {} and {cost}: {ratio:.2}", short[what]);
        if ratio > 2.4 {
            wrong.push(*what);
        }
    }
    assert!(wrong.is_empty(), "more than twice as much: {wrong:?}");
}
