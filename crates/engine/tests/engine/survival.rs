//! Transactions that survive the death of their service. A death is simulated by dropping the
//! store without any call that ends it in order. `ATOMDIR_SEED=n` replays one run.

use std::sync::Arc;

use atomdir_disk::LinuxDisk;
use atomdir_engine::{
    BeginOptions, CommitError, Isolation, Store, SurvivalError, Transaction, TransactionId,
};
use atomdir_testing::pick;

use crate::support::model::{CALLER, Model};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open, options, seeds};

type Open = Arc<Transaction<LinuxDisk>>;

fn reopened(scratch: &Scratch, id: TransactionId) -> (Store<LinuxDisk>, Open) {
    let store = open(&scratch.0);
    let stranded = store.stranded();
    let found = store.transaction(id);
    let found = found.unwrap_or_else(|| panic!("{id} has survived; stranded: {stranded:?}"));
    (store, found)
}

fn survive(store: &Store<LinuxDisk>, transaction: &Open) {
    store
        .survive(transaction, b"note".to_vec())
        .expect("it can survive");
}

#[test]
fn view_and_commit_are_the_same_after_any_number_of_kills() {
    for seed in seeds(pick(40, 400)) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut store = open(&scratch.0);
        let mut random = Random::new(seed);
        let mut model = Model::new();
        let first = begin(&store);
        (0..random.below(30)).for_each(|_| model.step(&mut random, &first));
        store.commit(&first).expect("nobody is in the way");
        drop(first);
        let base = model.tree();
        let mut transaction = begin(&store);
        let id = transaction.id();
        (0..random.below(12)).for_each(|_| model.step(&mut random, &transaction));
        survive(&store, &transaction);
        for _ in 0..1 + random.below(3) {
            for _ in 0..random.below(20) {
                model.step(&mut random, &transaction);
                if random.below(8) == 0 {
                    transaction.flush().expect("it is flushed");
                }
                if random.below(8) == 0 {
                    let other = model.clone();
                    transaction.set_savepoint(b"here").expect("it is set");
                    (0..3).for_each(|_| model.step(&mut random, &transaction));
                    if random.below(2) == 0 {
                        transaction.roll_back(b"here").expect("it is there");
                        model = other;
                    }
                }
            }
            if random.below(3) == 0 {
                refused_commit(&scratch, &store, &transaction);
            }
            drop((store, transaction));
            (store, transaction) = reopened(&scratch, id);
            assert_eq!(tree_of_view(&transaction), model.tree(), "seed {seed}");
            assert_eq!(tree_of_base(&scratch.0), base, "seed {seed}");
            assert_eq!(transaction.note(), Some(b"note".to_vec()));
            assert_eq!(transaction.label(), b"test");
            assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
        }
        if random.below(4) == 0 {
            store.abort(&transaction);
            drop((store, transaction));
            store = open(&scratch.0);
            assert_eq!(tree_of_base(&scratch.0), base, "seed {seed}");
        } else {
            (0..random.below(8)).for_each(|_| model.step(&mut random, &transaction));
            store.commit(&transaction).expect("nobody is in the way");
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
            drop((store, transaction));
            store = open(&scratch.0);
            assert_eq!(tree_of_base(&scratch.0), model.tree(), "seed {seed}");
        }
        assert!(store.transactions().is_empty(), "seed {seed}");
        let staged = std::fs::read_dir(scratch.0.join(".atomdir/stage")).expect("it is there");
        assert_eq!(staged.count(), 0, "seed {seed}");
    }
}

/// An attempt to commit moves staged objects and gives them attributes. A name from outside
/// refuses it.
fn refused_commit(scratch: &Scratch, store: &Store<LinuxDisk>, transaction: &Open) {
    let made = transaction.create(
        atomdir_engine::NodeId::ROOT,
        b"refused",
        atomdir_engine::NewNode::File,
        0o644,
        0,
        CALLER,
    );
    made.expect("the model does not use the name");
    let outside = scratch.0.join("refused");
    std::fs::write(&outside, b"").expect("the base takes a file");
    let refused = store.commit(transaction);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    std::fs::remove_file(&outside).expect("it is there");
    let unlinked = transaction.unlink(atomdir_engine::NodeId::ROOT, b"refused");
    unlinked.expect("it is there");
}

fn file(view: &Open, name: &[u8], contents: &[u8]) {
    let made = view.create(
        atomdir_engine::NodeId::ROOT,
        name,
        atomdir_engine::NewNode::File,
        0o644,
        0,
        CALLER,
    );
    let node = made.expect("the name is free").node;
    view.write(node, 0, contents, false).expect("it is written");
}

#[test]
fn change_from_outside_while_no_service_runs_is_a_conflict() {
    let scratch = Scratch::new();
    create(&scratch.0);
    std::fs::write(scratch.0.join("a"), b"before").expect("the base takes a file");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let id = transaction.id();
    let node = transaction.resolve(b"a").expect("it resolves");
    let node = node.expect("it is there");
    transaction
        .write(node, 0, b"inside", false)
        .expect("it is written");
    survive(&store, &transaction);
    drop((store, transaction));
    std::fs::write(scratch.0.join("a"), b"outside").expect("it can be written");
    let (store, transaction) = reopened(&scratch, id);
    let refused = store.commit(&transaction);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    let contents = std::fs::read(scratch.0.join("a")).expect("it is there");
    assert_eq!(contents, b"outside");
}

#[test]
fn transaction_with_an_older_snapshot_is_stranded_and_kept_until_it_is_aborted() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let transaction = begin(&store);
    let id = transaction.id();
    file(&transaction, b"mine", b"1");
    survive(&store, &transaction);
    let other = begin(&store);
    file(&other, b"other", b"2");
    store.commit(&other).expect("nobody is in the way");
    drop((store, transaction, other));
    for _ in 0..2 {
        let store = open(&scratch.0);
        assert!(store.transaction(id).is_none());
        let stranded = store.stranded();
        assert_eq!(stranded.len(), 1);
        assert_eq!((stranded[0].id, stranded[0].owner), (id, Some(0)));
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
    let store = open(&scratch.0);
    assert!(store.abort_stranded(id));
    assert!(!store.abort_stranded(id));
    drop(store);
    assert!(open(&scratch.0).stranded().is_empty());
}

#[test]
fn what_cannot_survive_is_refused() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let isolation = Isolation::Serializable;
    let serializable = store.begin(BeginOptions {
        isolation,
        ..options()
    });
    let serializable = serializable.expect("it begins");
    let refused = store.survive(&serializable, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Serializable)));
    let outer = begin(&store);
    let nested = store.begin_nested(&outer, options()).expect("it begins");
    let refused = store.survive(&nested, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Nested)));
    let part = begin(&store);
    file(&part, b"a", b"1");
    file(&part, b"b", b"2");
    survive(&store, &part);
    let landed = store.commit_part(&part, &[b"a".to_vec()], &mut |_| {});
    landed.expect("nobody is in the way");
    assert!(!part.survives());
    let refused = store.survive(&part, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Landed)));
    let lower = begin(&store);
    lower.become_lower().expect("it can");
    let refused = store.survive(&lower, Vec::new());
    assert!(matches!(refused, Err(SurvivalError::Native)));
}
