//! Threads whose transactions begin over commits on the way, of every durability at once. A checker
//! explains what they have read and written. `ATOMDIR_SEED=n` replays one run, as far as threads can.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::histories;
use crate::support::{self, Random, Scratch, create, open, seeds};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{BeginOptions, CommitError, Durability, Isolation, Store, Transaction};
use atomdir_testing::history::{self, History, Level, Operation, Outcome, check};

const THREADS: u64 = 4;
const EACH: usize = 25;

fn threaded(seed: u64, isolation: Isolation, level: Level) {
    let scratch = Scratch::new();
    create(&scratch.0);
    let pages = vec![0; (u64::from(histories::REGISTERS) * 4096) as usize];
    fs::write(scratch.0.join("pages"), pages).expect("written");
    fs::write(scratch.0.join("attributes"), b"").expect("written");
    for number in 0..histories::LISTS {
        fs::write(scratch.0.join(format!("list{number}")), b"").expect("written");
    }
    for number in 0..histories::SETS {
        fs::create_dir(scratch.0.join(format!("set{number}"))).expect("made");
    }
    let store = open(&scratch.0);
    let (moment, value) = (AtomicU64::new(1), AtomicU64::new(1));
    let history = Mutex::new(History::default());
    let is_over = AtomicBool::new(false);
    let tick = || moment.fetch_add(1, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(seed ^ 0x5555);
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_micros(random.below(4000) as u64));
                match random.below(3) {
                    0 => store.checkpoint().expect("well"),
                    _ => store.sync().expect("well"),
                }
            }
        });
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, history, tick, value) = (&store, &history, &tick, &value);
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + thread);
                    for _ in 0..EACH {
                        client(store, isolation, (&mut random, value), tick, history);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(
            ended.iter().all(Result::is_ok),
            "no client panics, ATOMDIR_SEED={seed}"
        );
    });
    let last = support::begin(&store);
    let keys = histories::keys().into_iter();
    let mut history = history.into_inner().expect("no client panics");
    history.last = keys.map(|key| (key, histories::read(&last, key))).collect();
    assert!(store.set_aside().is_empty());
    if let Err(anomaly) = check(&history, level) {
        panic!("ATOMDIR_SEED={seed}: {level:?} does not allow {anomaly}");
    }
}

fn client(
    store: &Store<LinuxDisk>,
    isolation: Isolation,
    (random, values): (&mut Random, &AtomicU64),
    tick: &(dyn Fn() -> u64 + Sync),
    history: &Mutex<History>,
) {
    let began = tick();
    let options = BeginOptions {
        isolation,
        durability: [
            Durability::Lazy,
            Durability::Lazy,
            Durability::Deferred,
            Durability::Durable,
        ][random.below(4)],
        ..support::options()
    };
    let transaction = match random.below(4) {
        0 => store.begin_in_base(options),
        1 => store.begin_published(options),
        _ => store.begin(options),
    };
    let transaction = transaction.expect("it begins");
    let mut operations = Vec::new();
    let keys = histories::keys();
    let operate =
        |view: &Transaction<LinuxDisk>, random: &mut Random, operations: &mut Vec<Operation>| {
            let key = keys[random.below(keys.len())];
            let writes = random.below(3) == 0;
            if !writes || matches!(key, history::Key::Register(_)) {
                operations.push(Operation::Read(key, histories::read(view, key)));
            }
            if writes {
                let value = values.fetch_add(1, Ordering::SeqCst);
                histories::write(view, key, value);
                operations.push(Operation::Write(key, value));
            }
        };
    for _ in 0..1 + random.below(5) {
        match random.below(8) {
            0 => {
                let before = operations.len();
                let nested = store.begin_nested(&transaction, support::options());
                let nested = nested.expect("it is nested");
                operate(&nested, random, &mut operations);
                match random.below(2) {
                    0 => _ = store.commit(&nested).expect("nobody is in the way"),
                    _ => {
                        store.abort(&nested);
                        operations.truncate(before);
                    }
                }
            }
            1 => {
                let before = operations.len();
                transaction.set_savepoint(b"here").expect("set");
                operate(&transaction, random, &mut operations);
                transaction.roll_back(b"here").expect("it was set");
                operations.truncate(before);
            }
            _ => operate(&transaction, random, &mut operations),
        }
    }
    let outcome = match random.below(10) {
        0 => Outcome::Aborted,
        _ => match store.commit(&transaction) {
            Ok(_) => Outcome::Committed,
            Err(CommitError::Conflict(conflicts)) => {
                for conflict in &conflicts {
                    assert!(
                        !matches!(conflict.by, atomdir_engine::ChangedBy::Outside),
                        "there is no outside writer: {conflict:?}"
                    );
                }
                Outcome::Aborted
            }
            Err(error) => panic!("{error}"),
        },
    };
    if outcome == Outcome::Aborted {
        store.abort(&transaction);
    }
    let ended = tick();
    let mut history = history.lock().expect("no client panics");
    history.transactions.push(history::Transaction {
        name: format!("T{}", transaction.id()),
        operations,
        outcome,
        began,
        ended,
    });
}

#[test]
fn threads_are_serializable() {
    for seed in seeds(60) {
        threaded(seed, Isolation::Serializable, Level::Serializable);
    }
}

#[test]
fn threads_see_snapshots() {
    for seed in seeds(60) {
        threaded(seed, Isolation::Snapshot, Level::Snapshot);
    }
}
