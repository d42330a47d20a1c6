//! Random parts of a transaction's changes are committed or dropped while it stays open.
//! Landing a part changes the base and not what the view shows; in the end both are the
//! same. What is dropped is gone from the view and from the list of changes, and all else is
//! as before. `ATOMDIR_SEED=n` replays one run.

use std::sync::Arc;

use atomdir_disk::LinuxDisk;
use atomdir_engine::{CommitError, Portion, Store, Transaction};
use atomdir_types::ChangeLine;

use crate::support::cache::Cache;
use crate::support::model::{Model, Tree};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open, seeds_and};

type Open = Arc<Transaction<LinuxDisk>>;

struct Round<'a> {
    store: &'a Store<LinuxDisk>,
    scratch: &'a Scratch,
    seed: u64,
    random: Random,
    transaction: Open,
    cache: Cache,
}

impl Round<'_> {
    /// Some of the paths that have changed, or a directory above them.
    fn some_paths(&mut self) -> Vec<Vec<u8>> {
        let changes = self.transaction.changes().expect("the changes are listed");
        let mut paths = Vec::new();
        for change in changes {
            if self.random.below(4) == 0 {
                let mut path = change.path;
                if self.random.below(4) == 0 {
                    let above = path.iter().rposition(|byte| *byte == b'/');
                    path.truncate(above.unwrap_or(path.len()));
                }
                paths.push(path);
            }
        }
        paths
    }

    fn base(&self) -> Tree {
        tree_of_base(&self.scratch.0)
    }

    fn land(&mut self, model: &Model) {
        let paths = self.some_paths();
        if paths.is_empty() {
            return;
        }
        let landed =
            self.store
                .commit_portion(&self.transaction, Portion::part(&paths), &mut |_| {});
        let landed = landed.expect("nobody is in the way");
        self.cache.forget(&landed.outdated);
        self.check(model);
        if self.random.below(3) == 0 {
            self.store.checkpoint().expect("a checkpoint works");
        }
        // A new transaction sees the base with the part that has landed.
        let other = begin(self.store);
        assert_eq!(tree_of_view(&other), self.base(), "seed {}", self.seed);
        self.store.abort(&other);
    }

    fn check(&mut self, model: &Model) {
        let seed = self.seed;
        let shown = tree_of_view(&self.transaction);
        assert_eq!(shown, model.tree(), "the view, seed {seed}");
        let cached = self.cache.tree(&self.transaction);
        assert_eq!(cached, model.tree(), "the caches, seed {seed}");
    }

    fn drop_some(&mut self) {
        let seed = self.seed;
        let before = self.transaction.changes().expect("listed");
        let paths = self.some_paths();
        if paths.is_empty() {
            return;
        }
        // Fills the caches.
        self.cache.tree(&self.transaction);
        let dropped = self.transaction.drop_part(&paths);
        let dropped = dropped.expect("nothing is in the way");
        self.cache.forget(&dropped.outdated);
        let after = self.transaction.changes().expect("listed");
        let dropped: Vec<_> = dropped
            .changes
            .into_iter()
            .map(ChangeLine::written_out)
            .collect();
        let mut left = before;
        left.retain(|line| !dropped.contains(line));
        assert_eq!(after, left, "what is left, seed {seed}");
        let shown = tree_of_view(&self.transaction);
        let cached = self.cache.tree(&self.transaction);
        assert_eq!(cached, shown, "the caches, seed {seed}");
    }
}

#[test]
fn landed_and_dropped_parts_match_the_model() {
    for seed in seeds_and(60, &[181]) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        for _ in 0..4 {
            let mut round = Round {
                store: &store,
                scratch: &scratch,
                seed,
                random: Random::new(seed + 1000 * random.below(1000) as u64),
                transaction: begin(&store),
                cache: Cache::default(),
            };
            for _ in 0..1 + random.below(4) {
                for _ in 0..1 + random.below(12) {
                    model.step(&mut random, &round.transaction);
                }
                round.cache.clear();
                round.check(&model);
                round.land(&model);
            }
            let landed = round.base();
            match random.below(4) {
                0 => {
                    // Drops everything that has not landed.
                    let everything = [Vec::new()];
                    if round.transaction.changes().expect("listed").is_empty() {
                        store.abort(&round.transaction);
                    } else {
                        round.transaction.drop_part(&everything).expect("dropped");
                        let shown = tree_of_view(&round.transaction);
                        assert_eq!(shown, landed, "all is dropped, seed {seed}");
                        store.commit(&round.transaction).expect("committed");
                        assert_eq!(round.base(), landed, "seed {seed}");
                    }
                    break;
                }
                1 => {
                    round.drop_some();
                    let shown = tree_of_view(&round.transaction);
                    store.commit(&round.transaction).expect("committed");
                    assert_eq!(round.base(), shown, "seed {seed}");
                    break;
                }
                2 => {
                    store.abort(&round.transaction);
                    assert_eq!(round.base(), landed, "an abort, seed {seed}");
                    break;
                }
                _ => {
                    store.commit(&round.transaction).expect("committed");
                    assert_eq!(round.base(), model.tree(), "the rest, seed {seed}");
                }
            }
        }
        let last = tree_of_base(&scratch.0);
        drop(store);
        let store = open(&scratch.0);
        assert_eq!(tree_of_base(&scratch.0), last, "recovered, seed {seed}");
        assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
    }
}

#[test]
fn a_path_at_which_nothing_has_changed_is_refused() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let refused = store.commit_portion(
        &transaction,
        Portion::part(&[b"none".to_vec()]),
        &mut |_| {},
    );
    assert!(matches!(refused, Err(CommitError::Unchanged { path }) if path == "none"));
}
