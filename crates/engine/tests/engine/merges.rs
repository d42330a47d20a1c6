//! Compares concurrent transactions with a model that merges their differences: which of them
//! commit, and which names lead to which file with which contents. Every pair of operations is
//! tried in both orders, then random ones. `ATOMDIR_SEED=n` replays one of the random runs.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::failing::FailingDisk;
use crate::support::merge_model::{self, Verdict, World};
use crate::support::script::{inside, outside, tree};
use crate::support::{Random, Scratch, begin, create_with, open_with, seeds};
use atomdir_engine::{CommitError, Store, Transaction};
use atomdir_testing::pick;

pub const GIVEN: &[&str] = &[
    "put f old",
    "put a old",
    "ln a b",
    "mkdir d",
    "put d/f old",
    "mkdir e",
    "put p a",
    "page p 0 a",
    "page p 1 b",
    "page p 2 c",
];

/// What one transaction may do.
pub const DEEDS: &[&str] = &[
    "append f x",
    "put f new",
    "cut f 1",
    "cut f 5",
    "chmod f 600",
    "setx f v",
    "ln f g",
    "ln f d/g",
    "mv f g",
    "mv f d/f",
    "rm f",
    "renew f new",
    "mv f g; append g x",
    "ln f g; rm f",
    "ln f g; append g y",
    "append f x; rm f",
    "rm f; put f again",
    "put g new",
    "append a x",
    "append b y",
    "rm a",
    "rm b",
    "rm a; rm b",
    "ln a g",
    "ln b c",
    "mv a g",
    "renew a new",
    "rm a; chmod b 600",
    "append d/f x",
    "ln d/f g",
    "mv d/f g",
    "rm d/f",
    "renew d/f new",
    "rm-r d",
    "mv d/f g; rm-r d",
    "mv d e/d",
    "mv d g",
    "chmod d 700",
    "put d/g new",
    "rmdir e",
    "put e/g new",
    "mv e d/e",
    "page p 0 x",
    "page p 2 y",
    "append p z",
    "cut p 5000",
    "put p new",
    "ln p g",
    "ln p e/g; page p 1 z",
    "rm p",
];

/// A store and its model.
struct Run {
    scratch: Scratch,
    store: Store<FailingDisk>,
    world: World,
    /// All actions so far, for the message.
    history: Vec<String>,
    /// A commit has taken an equal object that others have created for its own. The model does not know
    /// that, so it says nothing about what comes then.
    is_beyond_model: bool,
}

struct Both {
    name: usize,
    real: Arc<Transaction<FailingDisk>>,
    model: merge_model::Transaction,
}

impl Run {
    fn new() -> Run {
        let scratch = Scratch::new();
        let disk = FailingDisk::without_flushes();
        create_with(&disk, &scratch.0);
        for line in GIVEN {
            let words: Vec<&str> = line.split(' ').collect();
            outside(&scratch.0, &words);
        }
        let store = open_with(disk, &scratch.0).expect("the store opens");
        Run {
            scratch,
            store,
            world: World::new(GIVEN),
            history: Vec::new(),
            is_beyond_model: false,
        }
    }

    fn begin(&mut self, name: usize) -> Both {
        self.history.push(format!("{name} begin"));
        Both {
            name,
            real: begin(&self.store),
            model: self.world.begin(),
        }
    }

    /// Skips an action that a plain directory would refuse.
    fn act(&mut self, one: &mut Both, line: &str) -> bool {
        let can = self.world.act(&mut one.model, line);
        if can {
            self.history.push(format!("{} {line}", one.name));
            inside(&one.real, &line.split(' ').collect::<Vec<_>>());
        }
        can
    }

    fn commit(&mut self, one: &mut Both) {
        one.model.forget_attributes_put_back();
        let (verdict, merged) = self.world.verdict(&one.model);
        let committed = match self.store.commit(&one.real) {
            Ok(_) => true,
            Err(CommitError::Conflict(conflicts)) => {
                self.history.push(format!("{conflicts:?}"));
                self.store.abort(&one.real);
                false
            }
            Err(error) => panic!("{error}\n{}", self.history.join("\n")),
        };
        self.history
            .push(format!("{} commit: {committed}", one.name));
        if committed && verdict == Verdict::Conflicts && self.world.has_equal_creation(&one.model) {
            self.is_beyond_model = true;
        }
        if self.is_beyond_model {
            return;
        }
        let expected = match verdict {
            Verdict::Commits => true,
            Verdict::Conflicts => false,
            Verdict::Either => committed,
        };
        assert_eq!(committed, expected, "{}", self.history.join("\n"));
        if committed {
            self.world.commit(&one.model, merged);
        }
        self.compare();
    }

    fn compare(&self) {
        let (expected, found) = (self.world.tree.lines(), tree(&self.scratch.0));
        assert_eq!(found, expected, "{}", self.history.join("\n"));
    }

    /// Recovers the store, which applies the log once more.
    fn recover(self) {
        let Run {
            scratch,
            store,
            world,
            history,
            is_beyond_model,
        } = self;
        drop(store);
        let disk = FailingDisk::without_flushes();
        let store = open_with(disk, &scratch.0).expect("the store is recovered");
        if !is_beyond_model {
            assert_eq!(
                tree(&scratch.0),
                world.tree.lines(),
                "{}",
                history.join("\n")
            );
        }
        assert_eq!(store.check().problems, Vec::<String>::new());
    }
}

fn run_pair(first: &str, second: &str) {
    let mut run = Run::new();
    let (mut one, mut two) = (run.begin(1), run.begin(2));
    for (both, deeds) in [(&mut one, first), (&mut two, second)] {
        for deed in deeds.split("; ") {
            assert!(run.act(both, deed), "{deed}");
        }
    }
    run.commit(&mut two);
    run.commit(&mut one);
    run.recover();
}

#[test]
fn every_pair_of_operations_in_both_orders_matches_the_model() {
    let next = AtomicUsize::new(0);
    let pairs = DEEDS.len() * DEEDS.len();
    let failed = AtomicUsize::new(0);
    let work = || {
        loop {
            let pair = next.fetch_add(1, Ordering::Relaxed);
            if pair >= pairs {
                return;
            }
            let (first, second) = (DEEDS[pair / DEEDS.len()], DEEDS[pair % DEEDS.len()]);
            // Report all pairs that fail, not only the first.
            if catch_unwind(|| run_pair(first, second)).is_err() {
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner();
    assert_eq!(failed, 0, "of {pairs} pairs");
}

#[test]
fn random_concurrent_transactions_match_the_model() {
    for seed in seeds(pick(200, 5000)) {
        println!("ATOMDIR_SEED={seed}");
        let mut random = Random::new(seed);
        let mut run = Run::new();
        let mut open: Vec<Both> = Vec::new();
        for name in 0..12 {
            while open.len() < 3 {
                let both = run.begin(3 * name + open.len());
                open.push(both);
            }
            for both in &mut open {
                for _ in 0..random.below(4) {
                    let line = deed(&mut random, &both.model.now.paths());
                    run.act(both, &line);
                }
            }
            let mut done = open.swap_remove(random.below(open.len()));
            run.commit(&mut done);
            if run.is_beyond_model {
                break;
            }
            if random.below(8) == 0 {
                run.store.checkpoint().expect("a checkpoint works");
            }
        }
        drop(open);
        run.recover();
    }
}

pub fn deed(random: &mut Random, paths: &[(String, bool)]) -> String {
    let Some((path, _)) = paths.get(random.below(paths.len())) else {
        // Everything was removed.
        return "put f again".to_owned();
    };
    let directories = paths.iter().filter(|(_, is_directory)| *is_directory);
    let directories: Vec<&String> = directories.map(|(path, _)| path).collect();
    let name = ["f", "g", "h", "i"][random.below(4)];
    let new = match random.below(directories.len() + 2) {
        place if place < directories.len() => format!("{}/{name}", directories[place]),
        _ => name.to_owned(),
    };
    let letter = char::from(b'a' + random.below(26) as u8);
    match random.below(20) {
        0..=2 => format!("append {path} {letter}"),
        3 => format!("put {path} {letter}"),
        4 => format!("cut {path} {}", random.below(3) * 3000),
        5 | 6 => format!("page {path} {} {letter}", random.below(4)),
        7 => format!("chmod {path} {}", 700 + random.below(8)),
        8 => format!("setx {path} {letter}"),
        9..=11 => format!("ln {path} {new}"),
        12..=14 => format!("mv {path} {new}"),
        15 => format!("rm {path}"),
        16 => format!("rm-r {path}"),
        17 => format!("renew {path} {letter}"),
        18 => format!("mkdir {new}"),
        _ => format!("put {new} {letter}"),
    }
}
