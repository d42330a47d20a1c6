//! Commits of several kinds on a store beneath which all is recorded.

use std::path::Path;

use atomdir_crash::{BlockFile, Mark};
use atomdir_testing::tree::{CompareOptions, Times, Tree};
use atomdir_testing::{Random, Scratch, Store, View, look};

use crate::changes::{Change, change_at_random, make, populate};

/// Directories that transactions open at the same time keep to, one each.
const LANES: usize = 3;
const CHANGES_MAX: usize = 7;

/// The store's contents after each commit, made without Atomdir beside it.
pub struct Expected {
    scratch: Scratch,
    pub trees: Vec<Tree>,
}

impl Expected {
    pub fn new() -> Self {
        let scratch = Scratch::new("power-cut-expected");
        fill(scratch.path());
        let trees = vec![look(scratch.path())];
        Self { scratch, trees }
    }

    fn advance(&mut self, lane: &str, changes: &[Change]) {
        for change in changes {
            make(&self.scratch.join(lane), change).expect("a plain directory takes it");
        }
        self.trees.push(look(self.scratch.path()));
    }
}

/// What the base holds before the first commit.
pub fn fill(base: &Path) {
    for lane in 0..LANES {
        populate(&base.join(lane_name(lane))).expect("the base takes it");
    }
}

fn lane_name(lane: usize) -> String {
    format!("lane{lane}")
}

/// How a found tree must equal the expected one. Directories' times are those
/// of two runs; all other times were set.
pub fn options() -> CompareOptions {
    CompareOptions {
        file_times: Times::Exact,
        ..CompareOptions::alike()
    }
}

struct Open {
    view: View,
    lazy: bool,
    lane: String,
    changes: Vec<Change>,
}

/// A round of the workload: up to three transactions that are open at the same
/// time, then perhaps something that ends what the log holds.
pub fn run_round(disk: &BlockFile, store: &Store, expected: &mut Expected, random: &mut Random) {
    let durable = |expected: &Expected| disk.mark(Mark::Durable(expected.trees.len() - 1));
    let open: Vec<Open> = (0..1 + random.below(LANES))
        .map(|lane| {
            let lazy = random.chance(2);
            let durability = if lazy { "lazy" } else { "durable" };
            let view = store.begin_with(&["--durability", durability]);
            // A begin settles the lazy commits before it.
            durable(expected);
            let lane = lane_name(lane);
            let count = 1 + random.below(CHANGES_MAX);
            let changes = change_at_random(&view.path.join(&lane), count, random);
            Open {
                view,
                lazy,
                lane,
                changes: changes.expect("the view takes it"),
            }
        })
        .collect();
    for open in open {
        disk.mark(Mark::Started(expected.trees.len()));
        store.commit(&open.view).expect(0);
        expected.advance(&open.lane, &open.changes);
        if !open.lazy {
            durable(expected);
        }
    }
    match random.below(8) {
        0 => {
            store.call(["sync"]).expect(0);
            durable(expected);
        }
        // Closing the store is a checkpoint.
        1 => {
            store.call(["service", "stop"]).expect(0);
            durable(expected);
        }
        // So that there is a recovery among what is recorded.
        2 => {
            store.call(["sync"]).expect(0);
            durable(expected);
            store.kill_service();
            store.call(["recover"]).expect(0);
        }
        _ => {}
    }
}
