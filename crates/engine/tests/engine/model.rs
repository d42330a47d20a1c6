//! Random operations on views, compared with a model. The view shows the model, a commit
//! brings the base to it, an abort changes nothing, and older snapshots stay.
//! `ATOMDIR_SEED=n` replays one run.

use crate::support::model::Model;
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open, seeds_and};

#[test]
fn committed_base_equals_the_view() {
    // The last seed exchanges a directory with a file that was known as its child.
    for seed in seeds_and(150, &[410]) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let mut snapshots = Vec::new();
        for _ in 0..6 {
            let committed = model.clone();
            let transaction = begin(&store);
            let steps = 1 + random.below(25);
            for _ in 0..steps {
                model.step(&mut random, &transaction);
            }
            assert_eq!(
                tree_of_view(&transaction),
                model.tree(),
                "the view, seed {seed}"
            );
            assert_eq!(
                tree_of_base(&scratch.0),
                committed.tree(),
                "before, seed {seed}"
            );
            if random.below(4) == 0 {
                store.abort(&transaction);
                model = committed.clone();
            } else {
                store.commit(&transaction).expect("nobody is in the way");
            }
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "after, seed {seed}");
            for (older, tree) in &snapshots as &Vec<(std::sync::Arc<_>, _)> {
                assert_eq!(&tree_of_view(older), tree, "an older snapshot, seed {seed}");
            }
            if random.below(2) == 0 {
                let older = begin(&store);
                snapshots.push((older, model.tree()));
            } else if !snapshots.is_empty() && random.below(2) == 0 {
                let (older, _) = snapshots.remove(0);
                store.abort(&older);
            }
            if random.below(4) == 0 {
                store.checkpoint().expect("a checkpoint works at any time");
            }
        }
        // Recovery may apply the log once more.
        drop((snapshots, store));
        let store = open(&scratch.0);
        assert_eq!(
            tree_of_base(&scratch.0),
            model.tree(),
            "recovered, seed {seed}"
        );
        assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
    }
}
