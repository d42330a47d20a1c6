//! Commits are undone: the newest, several as one, old ones, and undone ones. The base then is as
//! a model says, also after recoveries. `ATOMDIR_SEED=n` replays one run.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use crate::support::model::{Model, Tree};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open_history, options, seeds_and};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Sequence, Store, Transaction, UndoError};

/// The base after each commit, preceded by the base before any.
struct Past {
    trees: Vec<Tree>,
}

impl Past {
    fn newest(&self) -> u64 {
        self.trees.len() as u64 - 1
    }

    fn before(&self, commit: u64) -> &Tree {
        &self.trees[commit as usize - 1]
    }
}

fn undo(
    store: &Store<LinuxDisk>,
    range: RangeInclusive<u64>,
) -> Result<Arc<Transaction<LinuxDisk>>, UndoError> {
    let commits: Vec<Sequence> = range.map(Sequence).collect();
    store.undo(&commits, &[], options())
}

/// Commits a few random changes, some of which cancel out.
fn commit_random(store: &Store<LinuxDisk>, random: &mut Random, model: &mut Model) -> bool {
    let transaction = begin(store);
    for _ in 0..1 + random.below(12) {
        model.step(random, &transaction);
    }
    let committed = store.commit(&transaction).expect("nobody is in the way");
    assert_eq!(committed.stalled, None);
    committed.sequence.is_some()
}

fn maybe_reopen(store: Store<LinuxDisk>, root: &Path, random: &mut Random) -> Store<LinuxDisk> {
    match random.below(6) {
        0 => store.checkpoint().expect("a checkpoint works at any time"),
        1 => {
            drop(store);
            return open_history(root);
        }
        2 => {
            store.close().expect("the store closes");
            drop(store);
            return open_history(root);
        }
        _ => {}
    }
    store
}

/// Undoes commits and commits the undo, then undoes that.
fn undo_and_back(
    store: &Store<LinuxDisk>,
    root: &Path,
    range: RangeInclusive<u64>,
    past: &mut Past,
    context: &str,
) {
    let wanted = past.before(*range.start()).clone();
    let undone = undo(store, range.clone());
    let undone = undone.unwrap_or_else(|error| panic!("{context}: {range:?}: {error}"));
    assert_eq!(tree_of_view(&undone), wanted, "{context}: view, {range:?}");
    let committed = store.commit(&undone);
    let committed = committed.unwrap_or_else(|error| panic!("{context}: {range:?}: {error}"));
    assert_eq!(tree_of_base(root), wanted, "{context}: base, {range:?}");
    let Some(Sequence(again)) = committed.sequence else {
        return;
    };
    let before = past.trees.last().expect("there is one").clone();
    past.trees.push(wanted);
    let redone = undo(store, again..=again);
    let redone = redone.unwrap_or_else(|error| panic!("{context}: undo of {again}: {error}"));
    let committed = store.commit(&redone).expect("nobody is in the way");
    assert_eq!(tree_of_base(root), before, "{context}: undone twice");
    assert!(committed.sequence.is_some());
    past.trees.push(before);
}

#[test]
fn undo_leaves_the_tree_before_the_undone_commits() {
    for seed in seeds_and(60, &[133]) {
        let context = format!("ATOMDIR_SEED={seed}");
        println!("{context}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open_history(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut past = Past {
            trees: vec![model.tree()],
        };
        for _ in 0..8 {
            let older = (random.below(3) == 0).then(|| (begin(&store), model.tree()));
            if commit_random(&store, &mut random, &mut model) {
                past.trees.push(model.tree());
            }
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
            let newest = past.newest();
            if newest > 0 && random.below(2) == 0 {
                let first = newest - random.below(newest.min(4) as usize) as u64;
                undo_and_back(&store, &scratch.0, first..=newest, &mut past, &context);
            }
            if let Some((older, tree)) = older {
                assert_eq!(tree_of_view(&older), tree, "an older snapshot, {context}");
                store.abort(&older);
            }
            store = maybe_reopen(store, &scratch.0, &mut random);
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "{context}");
        }
        assert_eq!(store.check().problems, Vec::<String>::new(), "{context}");
    }
}
