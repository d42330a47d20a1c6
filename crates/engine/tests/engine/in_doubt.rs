//! Transactions that have voted for a commit that another store decides. `ATOMDIR_SEED=n` replays one
//! run.

use std::fs;
use std::sync::Arc;

use atomdir_disk::{Errno, LinuxDisk};
use atomdir_engine::{
    BeginOptions, CommitError, ConflictKind, Durability, Isolation, LockMode, LockScope, NewNode,
    NodeId, Outcome, Partner, Portion, Store, Transaction, TransactionId,
};
use atomdir_testing::pick;

use crate::support::failing::FailingDisk;
use crate::support::model::{Model, caller};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{
    Random, Scratch, begin, create, open, open_history, open_with, options, seeds,
};
use crate::survival::Open;

fn coordinator() -> Partner {
    Partner {
        store: [7; 16],
        root: b"/srv/other".to_vec(),
        transaction: TransactionId(42),
    }
}

fn vote(store: &Store<LinuxDisk>, transaction: &Open) -> Result<bool, CommitError> {
    store.vote(transaction, &coordinator(), b"note".to_vec(), &mut |_| {})
}

fn decide(store: &Store<LinuxDisk>, transaction: &Open) -> Result<(), CommitError> {
    store
        .commit_decided(transaction, Portion::All, &mut |_| {})
        .map(drop)
}

fn write(transaction: &Open, name: &[u8], contents: &[u8]) {
    let node = match transaction.lookup(NodeId::ROOT, name) {
        Ok(found) => found.node,
        Err(_) => {
            let made = transaction.create(NodeId::ROOT, name, NewNode::File, 0o644, 0, caller());
            made.expect("the name is free").node
        }
    };
    let written = transaction.write(node, 0, contents, false);
    written.expect("it is written");
}

fn is_refused_as_in_doubt(result: Result<atomdir_engine::Committed, CommitError>) -> bool {
    matches!(result, Err(CommitError::InDoubt(of)) if *of == coordinator())
}

/// Others commit what they like, and the process is killed, but a decided commit always lands, joined
/// with theirs, and one that is taken back leaves nothing.
#[test]
fn what_has_voted_commits_whatever_others_do() {
    let (mut landed, mut refused) = (0, 0);
    for seed in seeds(pick(60, 1000)) {
        println!("ATOMDIR_SEED={seed}");
        let scratch = Scratch::new();
        create(&scratch.0);
        let mut random = Random::new(seed);
        let keeps_history = random.below(2) == 0;
        let opened = || match keeps_history {
            true => open_history(&scratch.0),
            false => open(&scratch.0),
        };
        let mut store = opened();
        let mut model = Model::new();
        let first = begin(&store);
        (0..10 + random.below(20)).for_each(|_| model.step(&mut random, &first));
        store.commit(&first).expect("nobody is in the way");
        let fork = model.committed();
        let mut mine = fork.forked(1_000_000);
        let mut transaction = begin(&store);
        let id = transaction.id();
        (0..1 + random.below(12)).for_each(|_| mine.step(&mut random, &transaction));
        let voted = vote(&store, &transaction).expect("nobody is in the way");
        if !voted {
            assert_eq!(transaction.coordinator(), None);
            store.commit(&transaction).expect("nothing has changed");
            continue;
        }
        let mut present = fork.clone();
        for turn in 2..2 + random.below(8) {
            if random.below(3) == 0 {
                drop((store, transaction));
                store = opened();
                transaction = store.transaction(id).expect("it is in doubt");
            }
            assert_eq!(transaction.coordinator(), Some(coordinator()));
            assert_eq!(tree_of_view(&transaction), mine.tree(), "seed {seed}");
            assert!(!store.abort(&transaction), "an abort ends no doubt");
            assert!(is_refused_as_in_doubt(store.commit(&transaction)));
            let other = begin(&store);
            let mut theirs = present.forked(turn * 1_000_000);
            (0..1 + random.below(6)).for_each(|_| theirs.step(&mut random, &other));
            match store.commit(&other) {
                Ok(_) => {
                    present = theirs.committed();
                    landed += 1;
                }
                Err(CommitError::Conflict(conflicts)) => {
                    let are_locked = conflicts.iter().all(|one| one.what == ConflictKind::Locked);
                    assert!(are_locked, "seed {seed}: {conflicts:?}");
                    store.abort(&other);
                    refused += 1;
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        let expected = match random.below(3) {
            0 => {
                store.withdraw_vote(&transaction).expect("it is open");
                assert_eq!(tree_of_view(&transaction), mine.tree(), "seed {seed}");
                assert!(store.abort(&transaction));
                present.tree()
            }
            _ => {
                decide(&store, &transaction).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let joined = present.join(&fork, &mine.since(&fork));
                joined.expect("nobody else has changed the same").tree()
            }
        };
        for _ in 0..2 {
            assert_eq!(tree_of_base(&scratch.0), expected, "seed {seed}");
            assert!(store.transactions().is_empty(), "seed {seed}");
            assert_eq!(store.check().problems, Vec::<String>::new(), "seed {seed}");
            drop(store);
            store = opened();
        }
    }
    println!("{landed} commits of others landed, {refused} were refused");
}

#[test]
fn what_is_in_doubt_cannot_be_changed_locked_away_or_ended() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("file"), "old").expect("it is written");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    write(&transaction, b"file", b"new");
    assert!(vote(&store, &transaction).expect("it votes"));
    assert!(vote(&store, &transaction).expect("it votes again"));
    transaction.thaw();
    let made = transaction.create(NodeId::ROOT, b"x", NewNode::File, 0o644, 0, caller());
    assert_eq!(made.map(drop), Err(Errno::ROFS));
    assert_eq!(store.unlock(&transaction, None), 0);
    let part = store.commit_portion(
        &transaction,
        Portion::part(&[b"file".to_vec()]),
        &mut |_| {},
    );
    assert!(is_refused_as_in_doubt(part));
    assert!(store.begin_nested(&transaction, options()).is_err());
    let other = begin(&store);
    let wait: &mut dyn FnMut() -> bool = &mut || false;
    let locked = store.lock(
        &other,
        &atomdir_engine::LockRequest {
            mode: LockMode::Shared,
            scope: LockScope::Object,
            paths: vec![b"file".to_vec()],
        },
        &atomdir_engine::Credentials {
            user: caller().user,
            groups: vec![caller().group],
        },
        &mut atomdir_engine::Patience {
            wake: Arc::new(|| {}),
            wait,
        },
    );
    assert!(locked.is_err(), "what it changes is locked");
    store.withdraw_vote(&transaction).expect("it is open");
    write(&transaction, b"file", b"newer");
    write(&other, b"file", b"theirs");
    store.commit(&other).expect("nobody holds the file");
    assert!(matches!(
        store.commit(&transaction),
        Err(CommitError::Conflict(_))
    ));
}

#[test]
fn only_what_can_survive_votes_and_only_a_whole_transaction_coordinates() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let serializable = BeginOptions {
        isolation: Isolation::Serializable,
        ..options()
    };
    let serializable = store.begin(serializable).expect("it begins");
    write(&serializable, b"a", b"1");
    let voted = vote(&store, &serializable);
    assert!(matches!(voted, Err(CommitError::NoVote(_))), "{voted:?}");
    assert!(store.coordinate(&serializable).expect("it may decide"));
    assert_eq!(
        store.outcome(serializable.id()).expect("it is known"),
        Outcome::Open
    );
    let part = store.commit_portion(&serializable, Portion::part(&[b"a".to_vec()]), &mut |_| {});
    assert!(
        matches!(part, Err(CommitError::OnlyWhole { .. })),
        "{part:?}"
    );
    assert!(store.commit(&serializable).is_err(), "others depend on it");
    let committed = store.commit_coordinated(&serializable, &mut |_| {});
    committed.expect("nobody is in the way");
    let id = serializable.id();
    drop((store, serializable));
    let store = open(&scratch.0);
    assert_eq!(store.outcome(id).expect("it is known"), Outcome::Committed);
    let dropped = begin(&store);
    write(&dropped, b"b", b"1");
    store.abort(&dropped);
    assert_eq!(
        store.outcome(dropped.id()).expect("it is known"),
        Outcome::Aborted
    );
    let never = TransactionId(1 << 40);
    assert_eq!(store.outcome(never).expect("it is known"), Outcome::Aborted);
}

/// A linked transaction is not committed without the others, and what coordinates still has something to
/// commit when it decides.
#[test]
fn linked_transactions_only_coordinate_or_vote() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let (changed, unchanged) = (begin(&store), begin(&store));
    write(&changed, b"a", b"1");
    for one in [&changed, &unchanged] {
        one.link_with(vec![coordinator()]);
        let refused = store.commit(one);
        assert!(
            matches!(refused, Err(CommitError::Linked(_))),
            "{refused:?}"
        );
        let refused = store.commit_coordinated(one, &mut |_| {});
        assert!(matches!(refused, Err(CommitError::OnlyWhole { .. })));
    }
    let part = store.commit_portion(&changed, Portion::part(&[b"a".to_vec()]), &mut |_| {});
    assert!(matches!(part, Err(CommitError::Linked(_))), "{part:?}");
    // Neither gets or loses a change from now on.
    assert!(store.coordinate(&changed).expect("it is open"));
    assert!(!vote(&store, &unchanged).expect("it is open"));
    for one in [&changed, &unchanged] {
        one.thaw();
        let made = one.create(NodeId::ROOT, b"b", NewNode::File, 0o644, 0, caller());
        assert_eq!(made.map(drop), Err(Errno::ROFS));
        store.cease_to_coordinate(one).expect("it is open");
        write(one, b"b", b"1");
    }
    assert!(vote(&store, &changed).expect("it votes"));
    decide(&store, &changed).expect("nobody is in the way");
    assert!(store.abort(&unchanged));
}

/// Others have committed the very same, so that there would be no record of a decision.
#[test]
fn a_coordinator_that_has_nothing_left_to_commit_decides_nothing() {
    let scratch = Scratch::new();
    create(&scratch.0);
    let store = open(&scratch.0);
    let transaction = begin(&store);
    write(&transaction, b"a", b"1");
    assert!(store.coordinate(&transaction).expect("it is open"));
    let other = begin(&store);
    write(&other, b"a", b"1");
    store.commit(&other).expect("nobody is in the way");
    let committed = store.commit_coordinated(&transaction, &mut |_| {});
    assert!(
        matches!(committed, Err(CommitError::Conflict(_))),
        "{committed:?}"
    );
    assert_eq!(
        store.outcome(transaction.id()).expect("it is known"),
        Outcome::Open
    );
}

/// A lazy coordinator's commit is durable when the call returns, since it is a decision.
#[test]
fn a_decision_is_durable_though_the_coordinator_is_lazy() {
    for coordinates in [false, true] {
        let scratch = Scratch::new();
        create(&scratch.0);
        let disk = FailingDisk::filling();
        let store = open_with(disk.clone(), &scratch.0).expect("the store opens");
        let lazy = BeginOptions {
            durability: Durability::Lazy,
            ..options()
        };
        let transaction: Arc<Transaction<FailingDisk>> = store.begin(lazy).expect("it begins");
        let made = transaction.create(NodeId::ROOT, b"a", NewNode::File, 0o644, 0, caller());
        made.expect("the name is free");
        if coordinates {
            assert!(store.coordinate(&transaction).expect("it is open"));
        }
        let before = crate::support::take_log_flushes(&disk);
        let committed = match coordinates {
            true => store.commit_coordinated(&transaction, &mut |_| {}),
            false => store.commit(&transaction),
        };
        committed.expect("nobody is in the way");
        let flushes = crate::support::take_log_flushes(&disk);
        assert_eq!(
            flushes > 0,
            coordinates,
            "{before} before, {flushes} flushes"
        );
    }
}

/// A program outside is in the way of a decided commit, which then stays in doubt and lands later.
#[test]
fn a_decided_commit_that_meets_an_outside_change_stays_in_doubt() {
    let scratch = Scratch::new();
    create(&scratch.0);
    fs::write(scratch.0.join("file"), "old").expect("it is written");
    let store = open(&scratch.0);
    let transaction = begin(&store);
    write(&transaction, b"file", b"new");
    write(&transaction, b"other", b"new");
    vote(&store, &transaction).expect("it votes");
    fs::write(scratch.0.join("other"), "theirs").expect("it is written");
    let refused = decide(&store, &transaction);
    assert!(
        matches!(refused, Err(CommitError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(transaction.coordinator(), Some(coordinator()));
    let read = |name| fs::read(scratch.0.join(name)).expect("it is there");
    assert_eq!(
        (read("file"), read("other")),
        (b"old".to_vec(), b"theirs".to_vec())
    );
    let id = transaction.id();
    drop((store, transaction));
    let store = open(&scratch.0);
    let transaction = store.transaction(id).expect("it is in doubt");
    assert!(decide(&store, &transaction).is_err());
    fs::remove_file(scratch.0.join("other")).expect("it is removed");
    let landed = decide(&store, &transaction);
    assert!(landed.is_ok(), "{landed:?}");
    assert_eq!(
        (read("file"), read("other")),
        (b"new".to_vec(), b"new".to_vec())
    );
}
