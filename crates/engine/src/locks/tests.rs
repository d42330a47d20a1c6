use super::reach::Reach;
use super::table::{Asker, Lock, LockTable, RequestState, Ticket, Waits};
use super::{Extent, Target};
use crate::base::{Base, Place};
use crate::ids::TransactionId;
use atomdir_disk::{Identity, Kind, Name};
use atomdir_types::LockMode;
use std::collections::BTreeMap;
use std::sync::Arc;

const SHARED: LockMode = LockMode::Shared;
const EXCLUSIVE: LockMode = LockMode::Exclusive;

/// The directories and files `/`, `/a`, `/a/b`, `/a/b/f`, `/a/g`, `/h`, with
/// serials 0 to 5.
fn tree() -> Vec<Arc<Base>> {
    let parents = [None, Some(0), Some(1), Some(2), Some(1), Some(0)];
    let mut tree: Vec<Arc<Base>> = Vec::new();
    for (serial, parent) in parents.into_iter().enumerate() {
        let place = match parent {
            None => Place::Root,
            Some(parent) => Place::Entry {
                parent: Arc::clone(&tree[parent]),
                name: Name::new(format!("n{serial}").as_bytes()).unwrap(),
            },
        };
        let kind = if serial < 3 {
            Kind::Directory
        } else {
            Kind::File
        };
        let identity = Identity {
            inode: serial as u64 + 10,
            birth: 1,
        };
        tree.push(Base::new(serial as u64, kind, identity, place));
    }
    tree
}

fn asks(number: u64) -> Asker {
    Asker {
        transaction: TransactionId(number),
        age: TransactionId(number),
    }
}

fn on(base: &Arc<Base>, extent: Extent, mode: LockMode) -> Lock {
    Lock {
        target: Target {
            base: base.clone(),
            extent,
        },
        mode,
        path: base.serial.to_string().into_bytes(),
        reach: Reach::everything(),
        is_vote: false,
    }
}

fn holders(waits: &[Waits]) -> Vec<u64> {
    waits.iter().map(|one| one.holder.0).collect()
}

#[test]
fn a_subtree_covers_what_is_below_and_a_directory_does_not() {
    let tree = tree();
    let mut table = LockTable::default();
    let ticket = table.ask(asks(1), vec![on(&tree[1], Extent::Subtree, EXCLUSIVE)]);
    assert_eq!(table.progress(ticket), RequestState::Granted);
    let changes = |serial: usize, extent: Extent| {
        vec![Target {
            base: tree[serial].clone(),
            extent,
        }]
    };
    let name = Extent::Entry(Name::new(b"new").unwrap());
    let other = TransactionId(2);
    assert_eq!(
        table.forbid(other, &changes(3, Extent::Pages(0, 1))).len(),
        1
    );
    assert_eq!(table.forbid(other, &changes(2, name.clone())).len(), 1);
    assert_eq!(table.forbid(other, &changes(5, Extent::Object)), []);
    assert_eq!(table.forbid(other, &changes(0, name.clone())), []);
    assert_eq!(
        table.forbid(TransactionId(1), &changes(3, Extent::Object)),
        []
    );
    table.release_all(TransactionId(1));

    let ticket = table.ask(asks(1), vec![on(&tree[1], Extent::Object, SHARED)]);
    assert_eq!(table.progress(ticket), RequestState::Granted);
    assert_eq!(table.forbid(other, &changes(1, name)).len(), 1);
    assert_eq!(table.forbid(other, &changes(3, Extent::Object)), []);
    // Removing an object above the locked directory removes that directory,
    // too.
    assert_eq!(table.forbid(other, &changes(0, Extent::Subtree)).len(), 1);
}

#[test]
fn requests_are_granted_in_order_and_shared_ones_together() {
    let tree = tree();
    let mut table = LockTable::default();
    let lock = |mode| vec![on(&tree[3], Extent::Object, mode)];
    let first = table.ask(asks(1), lock(SHARED));
    assert_eq!(table.progress(first), RequestState::Granted);
    let writer = table.ask(asks(2), lock(EXCLUSIVE));
    assert_eq!(table.progress(writer), RequestState::Waiting);
    let reader = table.ask(asks(3), lock(SHARED));
    assert_eq!(
        table.progress(reader),
        RequestState::Waiting,
        "behind the writer"
    );
    assert_eq!(holders(&table.waits_for(writer)), [1]);
    table.release_all(TransactionId(1));
    assert_eq!(table.progress(reader), RequestState::Waiting);
    assert_eq!(table.progress(writer), RequestState::Granted);
    table.release_all(TransactionId(2));
    assert_eq!(table.progress(reader), RequestState::Granted);
}

#[test]
fn youngest_of_a_cycle_gets_the_deadlock() {
    let tree = tree();
    let mut table = LockTable::default();
    let own = |at: usize| vec![on(&tree[at], Extent::Object, EXCLUSIVE)];
    for (number, at) in [(1, 3), (2, 4), (3, 5)] {
        let ticket = table.ask(asks(number), own(at));
        assert_eq!(table.progress(ticket), RequestState::Granted);
    }
    let two = table.ask(asks(2), own(5));
    assert_eq!(table.progress(two), RequestState::Waiting);
    let three = table.ask(asks(3), own(3));
    assert_eq!(table.progress(three), RequestState::Waiting);
    // The oldest transaction closes the cycle; the youngest fails.
    let one = table.ask(asks(1), own(4));
    assert_eq!(table.progress(one), RequestState::Waiting);
    let RequestState::Deadlock(cycle) = table.progress(three) else {
        panic!("there is a deadlock");
    };
    let waiting: Vec<u64> = cycle.iter().map(|waits| waits.transaction.0).collect();
    assert_eq!((waiting, holders(&cycle)), (vec![3, 1, 2], vec![1, 2, 3]));
    table.release_all(TransactionId(3));
    assert_eq!(table.progress(two), RequestState::Granted);
}

#[test]
fn lock_upgrade_precedes_waiting_requests() {
    let tree = tree();
    let mut table = LockTable::default();
    let lock = |mode| vec![on(&tree[3], Extent::Object, mode)];
    let shared = table.ask(asks(1), lock(SHARED));
    assert_eq!(table.progress(shared), RequestState::Granted);
    let other = table.ask(asks(2), lock(EXCLUSIVE));
    assert_eq!(table.progress(other), RequestState::Waiting);
    let upgrade = table.ask(asks(1), lock(EXCLUSIVE));
    assert_eq!(table.progress(upgrade), RequestState::Granted);
    assert_eq!(table.held_by(TransactionId(1)).len(), 1);
    assert_eq!(table.progress(other), RequestState::Waiting);
}

/// Lists what an extent covers as pairs (serial, part), in a tree where a file
/// has four pages and a directory four names.
fn cells(tree: &[Arc<Base>], lock: &Lock) -> Vec<(u64, String)> {
    let own = |base: &Base, extent: &Extent| -> Vec<(u64, String)> {
        let serial = base.serial;
        let all = (0..4).map(|part| format!("part {part}"));
        match extent {
            Extent::Pages(start, end) => (*start..*end)
                .map(|page| (serial, format!("part {page}")))
                .collect(),
            Extent::Entry(name) => vec![(serial, format!("part {name:?}"))],
            Extent::Attributes => vec![(serial, "attributes".into())],
            Extent::Object | Extent::Subtree => all
                .chain(["attributes".into()])
                .map(|part| (serial, part))
                .collect(),
        }
    };
    let target = &lock.target;
    let mut cells = own(&target.base, &target.extent);
    if target.extent == Extent::Subtree {
        for below in tree {
            let one = Target {
                base: below.clone(),
                extent: Extent::Object,
            };
            if one.is_below(&target.base) {
                cells.extend(own(below, &Extent::Object));
            }
        }
    }
    cells
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

fn random_lock(random: &mut Random, tree: &[Arc<Base>]) -> Lock {
    let base = &tree[random.below(6) as usize];
    let mode = [SHARED, EXCLUSIVE][random.below(2) as usize];
    let extent = match (random.below(3), base.kind) {
        (0, Kind::File) => {
            let start = random.below(4);
            Extent::Pages(start, start + 1 + random.below(4 - start))
        }
        (1, _) => Extent::Subtree,
        _ => Extent::Object,
    };
    on(base, extent, mode)
}

/// Random requests, and random ends of transactions. No two transactions may hold conflicting locks
/// on a cell, and none may be stuck.
#[test]
fn random_histories_keep_the_invariants() {
    let tree = tree();
    let mut deadlocks = 0;
    for seed in 1..120_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut table = LockTable::default();
        let mut waiting: BTreeMap<Ticket, u64> = BTreeMap::new();
        for _ in 0..60 {
            let number = 1 + random.below(5);
            if random.below(4) == 0 {
                table.release_all(TransactionId(number));
                waiting.retain(|_, of| *of != number);
            } else {
                let locks = (0..=random.below(2)).map(|_| random_lock(&mut random, &tree));
                let locks = locks.collect();
                waiting.insert(table.ask(asks(number), locks), number);
            }
            deadlocks += progress_all(&mut table, &mut waiting);
            check(&table, &tree, seed);
        }
        drain(&mut table, &mut waiting, seed);
    }
    assert!(deadlocks > 100, "only {deadlocks} deadlocks were tried");
}

/// Asks until nothing changes. A transaction that gets a deadlock error ends.
fn progress_all(table: &mut LockTable, waiting: &mut BTreeMap<Ticket, u64>) -> u64 {
    let mut deadlocks = 0;
    loop {
        let before = waiting.len();
        let deadlocks_before = deadlocks;
        for (ticket, number) in waiting.clone() {
            match table.progress(ticket) {
                RequestState::Waiting => {}
                RequestState::Deadlock(cycle) => {
                    assert_eq!(cycle[0].transaction.0, number);
                    for pair in cycle.windows(2) {
                        assert_eq!(pair[0].holder, pair[1].transaction);
                    }
                    assert_eq!(cycle[cycle.len() - 1].holder.0, number);
                    let youngest = cycle.iter().map(|waits| waits.transaction.0).max();
                    assert_eq!(youngest, Some(number));
                    deadlocks += 1;
                    table.release_all(TransactionId(number));
                    waiting.retain(|_, of| *of != number);
                }
                RequestState::Granted | RequestState::Ended => {
                    waiting.remove(&ticket);
                }
            }
        }
        if waiting.len() == before && deadlocks == deadlocks_before {
            return deadlocks;
        }
    }
}

fn check(table: &LockTable, tree: &[Arc<Base>], seed: u64) {
    let mut covered: BTreeMap<(u64, String), (u64, LockMode)> = BTreeMap::new();
    for number in 1..=5 {
        for lock in table.held_by(TransactionId(number)) {
            for cell in cells(tree, &lock) {
                let before = covered.get(&cell).copied();
                let clash = before.is_some_and(|(holder, mode)| {
                    holder != number && (mode == EXCLUSIVE || lock.mode == EXCLUSIVE)
                });
                assert!(!clash, "seed {seed}: {cell:?} is held by two");
                if before.is_none_or(|(_, mode)| mode == SHARED) {
                    covered.insert(cell, (number, lock.mode));
                }
            }
        }
    }
}

/// Ends the transactions that do not wait, one after the other. Then all others must progress.
fn drain(table: &mut LockTable, waiting: &mut BTreeMap<Ticket, u64>, seed: u64) {
    for _ in 1..=5 {
        let free = (1..=5).filter(|number| !waiting.values().any(|of| of == number));
        for number in free.collect::<Vec<u64>>() {
            table.release_all(TransactionId(number));
        }
        progress_all(table, waiting);
    }
    assert!(
        waiting.is_empty(),
        "seed {seed}: some wait for one another for ever"
    );
}
