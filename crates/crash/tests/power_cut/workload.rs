//! Commits of several kinds on a store whose disk is recorded.

use std::path::Path;

use atomdir_crash::{BlockFile, CommitEvent};
use atomdir_testing::tree::{CompareOptions, Times, Tree};
use atomdir_testing::{Random, Scratch, Store, User, View, as_user, look, shell};

use crate::changes::{Change, change_at_random, make, populate};
use crate::native::Native;

/// How many transactions are open at the same time at most. Each works in a directory of its own.
const LANES: usize = 3;
const CHANGES_MAX: usize = 7;

/// The expected contents of the base after each commit, made in a plain directory.
pub struct Expected {
    scratch: Scratch,
    /// The user who owns all of it.
    user: User,
    pub trees: Vec<Tree>,
    /// For each tree, the number of the newest commit then. A commit that changes nothing has no
    /// number.
    pub numbers: Vec<u64>,
}

impl Expected {
    pub fn new(user: &User) -> Self {
        let scratch = Scratch::new("power-cut-expected");
        fill(scratch.path(), user);
        let trees = vec![look(scratch.path())];
        Self {
            scratch,
            user: user.clone(),
            trees,
            numbers: vec![0],
        }
    }

    fn advance(&mut self, store: &Store, lane: &str, changes: &[Change]) {
        let lane = self.scratch.join(lane);
        as_user(self.user.uid, || {
            for change in changes {
                make(&lane, change).expect("a plain directory takes it");
            }
        });
        self.trees.push(look(self.scratch.path()));
        self.numbers.push(newest(store));
    }
}

fn newest(store: &Store) -> u64 {
    let log = store.call(["--json", "log", "-n", "1"]).expect(0).text();
    let log: serde_json::Value = serde_json::from_str(&log).expect("it is JSON");
    log["commits"][0]["commit"].as_u64().unwrap_or(0)
}

/// What the base holds before the first commit.
pub fn fill(base: &Path, user: &User) {
    for lane in 0..LANES {
        populate(&base.join(lane_name(lane))).expect("the base takes it");
    }
    shell(base, &format!("chown -R {}:{} .", user.uid, user.gid));
}

fn lane_name(lane: usize) -> String {
    format!("lane{lane}")
}

/// How to compare a found tree with the expected one. The workload sets all times except those of
/// directories.
pub fn options() -> CompareOptions {
    CompareOptions {
        file_times: Times::Exact,
        ..CompareOptions::alike()
    }
}

struct Open {
    way: Way,
    lazy: bool,
    lane: String,
    changes: Vec<Change>,
}

/// In which kind of view a transaction is changed.
enum Way {
    Exact(View),
    Native(Native),
}

impl Open {
    fn begin(store: &Store, lane: usize, random: &mut Random) -> Self {
        let lazy = random.chance(2);
        let options = ["--durability", if lazy { "lazy" } else { "durable" }];
        let way = match random.below(4) {
            // For ordinary users overlayfs refuses some of the changes.
            0 if store.user().is_root() => Way::Native(Native::run(store, &options)),
            _ => Way::Exact(store.begin_with(&options)),
        };
        Self {
            way,
            lazy,
            lane: lane_name(lane),
            changes: Vec::new(),
        }
    }

    fn work(&mut self, store: &Store, random: &mut Random) {
        match &self.way {
            Way::Native(native) => {
                self.changes = changed(store, &native.root().join(&self.lane), random);
            }
            Way::Exact(view) => {
                let place = view.path.join(&self.lane);
                self.changes = changed(store, &place, random);
                match random.below(4) {
                    0 => self.changes.extend(nest(store, view, &self.lane, random)),
                    1 => undo(store, view, &place, random),
                    _ => {}
                }
            }
        }
    }

    fn commit(self, store: &Store) -> (String, Vec<Change>) {
        match self.way {
            Way::Exact(view) => drop(store.commit(&view).expect(0)),
            Way::Native(native) => native.commit(),
        }
        (self.lane, self.changes)
    }
}

/// Makes random changes as the store's user.
fn changed(store: &Store, place: &Path, random: &mut Random) -> Vec<Change> {
    let count = 1 + random.below(CHANGES_MAX);
    let change = || change_at_random(place, count, random);
    as_user(store.user().uid, change).expect("the view takes it")
}

/// Makes changes in a nested transaction, and commits or aborts it. Returns the committed changes.
fn nest(store: &Store, outer: &View, lane: &str, random: &mut Random) -> Vec<Change> {
    let nested = store.begin_with(&["--in", &outer.id]);
    let changes = changed(store, &nested.path.join(lane), random);
    if random.chance(4) {
        store.abort(&nested).expect(0);
        return Vec::new();
    }
    store.commit(&nested).expect(0);
    changes
}

/// Makes changes after a savepoint, and rolls them back.
fn undo(store: &Store, view: &View, place: &Path, random: &mut Random) {
    store.call(["savepoint", "before", &view.id]).expect(0);
    changed(store, place, random);
    store.call(["rollback", "before", &view.id]).expect(0);
}

/// A round of the workload: up to three transactions that are open at the same time, then perhaps a
/// sync, a stop, or a kill and a recovery.
pub fn run_round(disk: &BlockFile, store: &Store, expected: &mut Expected, random: &mut Random) {
    let durable =
        |expected: &Expected| disk.note_commit(CommitEvent::Durable(expected.trees.len() - 1));
    let open: Vec<Open> = (0..1 + random.below(LANES))
        .map(|lane| {
            let mut open = Open::begin(store, lane, random);
            // A begin applies the lazy commits before it.
            durable(expected);
            open.work(store, random);
            open
        })
        .collect();
    for open in open {
        disk.note_commit(CommitEvent::Started(expected.trees.len()));
        let lazy = open.lazy;
        let (lane, changes) = open.commit(store);
        expected.advance(store, &lane, &changes);
        if !lazy {
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
            store.call(["service", "stop", "--keep"]).expect(0);
            durable(expected);
        }
        // This records a recovery as well.
        2 => {
            store.call(["sync"]).expect(0);
            durable(expected);
            store.kill_service();
            store.call(["recover"]).expect(0);
        }
        _ => {}
    }
}
