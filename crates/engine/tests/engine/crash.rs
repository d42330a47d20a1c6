//! The process dies, or one call fails, at every single change that a commit makes. After
//! recovery the base must be as before or as after the commit. `ATOMDIR_SEED=n` replays
//! one run.

use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, Tree};
use crate::support::trees::tree_of_base;
use crate::support::{
    Random, Scratch, begin, begin_nested, create, open, open_history, open_with, seeds,
};
use crate::undo_conflicts::{commit, node, put};
use atomdir_disk::{Disk, Errno};
use atomdir_engine::{CommitError, NodeId, Store, Transaction};

/// A store that has committed `before`, and whose next commit, to `after`, failed at one change.
struct Run {
    scratch: Scratch,
    disk: FailingDisk,
    store: Store<FailingDisk>,
    before: Model,
    after: Model,
    result: Option<Result<(), CommitError>>,
}

fn disturb(seed: u64, number: i64, error: Errno, forever: bool) -> Option<Run> {
    let scratch = Scratch::new();
    create(&scratch.0);
    let disk = FailingDisk::new(error, forever);
    let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
    let mut random = Random::new(seed);
    let mut before = Model::new();
    for _ in 0..2 {
        let transaction = begin(&store);
        (0..12).for_each(|_| before.step(&mut random, &transaction));
        store.commit(&transaction).expect("nobody is in the way");
    }
    // An older snapshot makes commits keep what they replace.
    let older = seed.is_multiple_of(2).then(|| begin(&store));
    let mut after = before.clone();
    let transaction = begin(&store);
    (0..15).for_each(|_| after.step(&mut random, &transaction));
    if seed.is_multiple_of(3) {
        nest(&store, &transaction, &mut after, &mut random);
    }
    disk.fail_after(number);
    let result = store.commit(&transaction);
    if !disk.has_failed() {
        return None;
    }
    drop(older);
    let result = Some(result.map(|_| ()));
    Some(Run {
        scratch,
        disk,
        store,
        before,
        after,
        result,
    })
}

/// Makes some of the changes in nested transactions and after savepoints. Changes that are aborted
/// or rolled back must not be committed.
fn nest<D: Disk>(
    store: &Store<D>,
    outer: &Arc<Transaction<D>>,
    model: &mut Model,
    random: &mut Random,
) {
    outer.set_savepoint(b"before").expect("it is open");
    let mut lost = model.clone();
    (0..4).for_each(|_| lost.step(random, outer));
    outer.roll_back(b"before").expect("it was set");
    for is_kept in [true, false] {
        let nested = begin_nested(store, outer);
        let mut inner = model.clone();
        (0..4).for_each(|_| inner.step(random, &nested));
        if is_kept {
            store.commit(&nested).expect("nobody is in the way");
            *model = inner;
        } else {
            store.abort(&nested);
        }
    }
}

#[test]
fn crash_at_any_step_leaves_all_or_nothing() {
    let mut states = 0;
    for seed in seeds(25) {
        println!("ATOMDIR_SEED={seed}");
        for number in 0.. {
            let Some(run) = disturb(seed, number, Errno::IO, true) else {
                break;
            };
            states += 1;
            let returned = run.result.is_some_and(|result| result.is_ok());
            drop(run.store);
            let tree = recover_with_deaths(&run.scratch, number);
            let is_after = tree == run.after.tree();
            assert!(
                is_after || tree == run.before.tree(),
                "seed {seed}, change {number}"
            );
            assert!(
                is_after || !returned,
                "a durable commit is gone: seed {seed}, change {number}"
            );
        }
    }
    println!("{states} deaths");
}

/// Recovers the base. Three recoveries die at one of their first changes before one may finish.
fn recover_with_deaths(scratch: &Scratch, salt: i64) -> Tree {
    for changes in [salt % 5, 3 + salt % 7, 11] {
        let disk = FailingDisk::new(Errno::IO, true);
        disk.fail_after(changes);
        drop(open_with(disk, &scratch.0));
    }
    let store = open(&scratch.0);
    assert_eq!(store.check().problems, Vec::<String>::new());
    tree_of_base(&scratch.0)
}

#[test]
fn full_disk_at_any_step_leaves_the_transaction_open_or_commits() {
    for seed in seeds(12) {
        println!("ATOMDIR_SEED={seed}");
        for number in 0.. {
            let Some(run) = disturb(seed, number, Errno::NOSPC, false) else {
                break;
            };
            let _ = run.disk;
            let context = format!("seed {seed}, change {number}");
            match run.result {
                Some(Ok(())) => {
                    // The commit is durable, but may still wait for space in which to keep what a
                    // snapshot reads.
                    run.store.sync().expect("there is space again");
                    assert_eq!(tree_of_base(&run.scratch.0), run.after.tree(), "{context}");
                }
                Some(Err(CommitError::NoSpace { .. })) => {
                    assert_eq!(tree_of_base(&run.scratch.0), run.before.tree(), "{context}");
                    let newest = run.store.transactions().pop().expect("it is still open");
                    run.store.commit(&newest).expect("there is space again");
                    assert_eq!(tree_of_base(&run.scratch.0), run.after.tree(), "{context}");
                }
                // A failed flush may have lost the record.
                Some(Err(CommitError::Logged(_) | CommitError::Store(_))) => {
                    drop(run.store);
                    let tree = recover_with_deaths(&run.scratch, number);
                    let known = tree == run.after.tree() || tree == run.before.tree();
                    assert!(known, "{context}");
                }
                other => panic!("{context}: {other:?}"),
            }
        }
    }
}

/// Both commits are in the log, and the later one has set the file's modification time.
#[test]
fn outside_change_between_two_commits_of_a_file_stays_when_the_process_dies() {
    const PAGE: usize = 4096;
    for opened in [open, open_history] {
        let scratch = Scratch::new();
        create(&scratch.0);
        let (path, store) = (scratch.0.join("f"), opened(&scratch.0));
        commit(&store, |view| {
            put(view, "f", 0, &[b'1'; 8 * PAGE]);
            // A file with several names is changed in place.
            let linked = view.link(node(view, "f"), NodeId::ROOT, b"other");
            linked.expect("the name is free");
        });
        let mut contents = std::fs::read(&path).expect("it is there");
        contents[..PAGE].fill(b'x');
        std::fs::write(&path, &contents).expect("written");
        commit(&store, |view| {
            put(view, "f", 2 * PAGE as u64, &[b'2'; PAGE])
        });
        drop(store);
        opened(&scratch.0);
        contents[2 * PAGE..3 * PAGE].fill(b'2');
        assert!(std::fs::read(&path).expect("it is there") == contents);
    }
}
