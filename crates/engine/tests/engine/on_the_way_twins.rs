//! Random transactions, twice: once they begin at once, and once they wait until every commit is in
//! the base. Nothing that they see and no conflict differs. `ATOMDIR_SEED=n` replays one run.

use std::fs;
use std::sync::Arc;

use crate::support::failing::FailingDisk;
use crate::support::model::caller;
use crate::support::script::{open_scripted, tree, try_inside};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{self, Random, Scratch, create, seeds};
use atomdir_disk::Kind;
use atomdir_engine::{
    BeginOptions, CommitError, Durability, Isolation, Portion, Store, Transaction,
};

type View = Transaction<FailingDisk>;

/// Which commits a begin waits for.
#[derive(Clone, Copy)]
enum WaitsFor {
    All,
    /// Those that are not published early.
    Late,
    Nothing,
}

/// A random run, twice: with transactions that begin at once, and with those that wait.
struct Twin {
    scratch: Scratch,
    store: Store<FailingDisk>,
    waits_for: WaitsFor,
    views: Vec<Option<Arc<View>>>,
    nested: Vec<Option<Arc<View>>>,
}

const OPEN: usize = 3;

impl Twin {
    fn new(waits_for: WaitsFor) -> Twin {
        let scratch = Scratch::new();
        create(&scratch.0);
        for directory in ["a", "b", "a/c"] {
            fs::create_dir(scratch.0.join(directory)).expect("made");
        }
        for file in ["f", "a/f", "b/g", "a/c/h"] {
            fs::write(scratch.0.join(file), file.repeat(3000)).expect("written");
        }
        fs::hard_link(scratch.0.join("f"), scratch.0.join("b/f")).expect("linked");
        let store = open_scripted(&scratch);
        Twin {
            scratch,
            store,
            waits_for,
            views: (0..OPEN).map(|_| None).collect(),
            nested: (0..OPEN).map(|_| None).collect(),
        }
    }

    fn begin(&mut self, which: usize, options: BeginOptions) {
        let begun = match self.waits_for {
            WaitsFor::All => self.store.begin_in_base(options),
            WaitsFor::Late => self.store.begin_published(options),
            WaitsFor::Nothing => self.store.begin(options),
        };
        self.views[which] = Some(begun.expect("a transaction begins"));
    }

    fn view(&self, which: usize) -> Arc<View> {
        let nested = self.nested[which].clone();
        nested.or_else(|| self.views[which].clone()).expect("open")
    }

    fn end(&mut self, which: usize, commits: bool) -> String {
        if let Some(nested) = self.nested[which].take() {
            if commits {
                return outcome(self.store.commit(&nested).map(drop));
            }
            self.store.abort(&nested);
            return "aborted nested".to_owned();
        }
        let view = self.views[which].take().expect("open");
        if !commits {
            self.store.abort(&view);
            return "aborted".to_owned();
        }
        let committed = outcome(self.store.commit(&view).map(drop));
        if committed != "committed" {
            self.store.abort(&view);
        }
        committed
    }
}

fn outcome(result: Result<(), CommitError>) -> String {
    match result {
        Ok(()) => "committed".to_owned(),
        Err(CommitError::Conflict(conflicts)) => {
            let lines = conflicts.iter().map(|one| {
                let path = one.path.escape_ascii();
                format!("{path} {:?} {}", one.what, by(&one.by))
            });
            lines.collect::<Vec<_>>().join("; ")
        }
        Err(error) => format!("failed: {error}"),
    }
}

fn by(by: &atomdir_engine::ChangedBy) -> String {
    match by {
        atomdir_engine::ChangedBy::Commit { sequence, .. } => format!("commit {sequence}"),
        other => format!("{other:?}"),
    }
}

fn describe(view: &View, path: &str) -> String {
    let Ok(Some(node)) = view.resolve(path.as_bytes()) else {
        return "missing".to_owned();
    };
    let one = view.attributes(node).expect("it is there");
    let xattr = view.xattr(node, b"user.k");
    let text = match one.kind {
        Kind::Directory => {
            let mut names: Vec<_> = view.list(node).expect("it is listed");
            names.sort_by(|a, b| a.name.cmp(&b.name));
            let names = names
                .iter()
                .map(|one| one.name.as_bytes().escape_ascii().to_string());
            names.collect::<Vec<_>>().join(",")
        }
        _ => {
            let mut text = vec![0; one.length as usize];
            let read = view.read(node, 0, &mut text, caller());
            format!(
                "{read:?} {}",
                text.iter()
                    .fold(7u64, |sum, byte| sum.wrapping_mul(31) ^ u64::from(*byte))
            )
        }
    };
    // A directory's length stays as it is until the commit is in the base.
    let length = if one.kind == Kind::Directory {
        0
    } else {
        one.length
    };
    let touched = (one.modified.seconds < 1000).then_some(one.modified.seconds);
    format!(
        "{:?} {:o} {} {} {xattr:?} {touched:?} {text}",
        one.kind, one.mode, one.links, length
    )
}

fn path(random: &mut Random) -> String {
    let depth = [1, 1, 2, 2, 2, 3][random.below(6)];
    let names = ["a", "b", "c", "f"];
    let parts: Vec<&str> = (0..depth)
        .map(|_| names[random.below(names.len())])
        .collect();
    parts.join("/")
}

fn words(random: &mut Random) -> Vec<String> {
    let (one, two) = (path(random), path(random));
    let number = random.below(4).to_string();
    let letter = ["x", "y", "z"][random.below(3)].to_owned();
    let mode = ["600", "644", "755", "700"][random.below(4)].to_owned();
    let word = |word: &str| word.to_owned();
    match random.below(20) {
        0 | 1 => vec![word("put"), one, letter],
        2 | 3 => vec![word("append"), one, letter],
        4 => vec![word("page"), one, number, letter],
        5 => vec![word("chmod"), one, mode],
        6 => vec![word("setx"), one, letter],
        7 => vec![word("mkdir"), one],
        8 => vec![word("rm"), one],
        9 => vec![word("rmdir"), one],
        10 => vec![word("rm-r"), one],
        11 | 12 => vec![word("ln"), one, two],
        13 | 14 => vec![word("mv"), one, two],
        15 => vec![word("renew"), one, letter],
        16 => vec![word("cut"), one, number],
        17 => vec![word("touch"), one, number],
        18 => vec![word("ls"), one],
        _ => vec![word("setx"), word("."), letter],
    }
}

/// The same is done with both, and must come out alike.
struct Pair {
    fast: Twin,
    slow: Twin,
    seed: u64,
    log: Vec<String>,
}

impl Pair {
    fn both(&mut self, which: usize, what: String, act: &mut dyn FnMut(&mut Twin) -> String) {
        let (one, two) = (act(&mut self.fast), act(&mut self.slow));
        self.log.push(format!("{which} {what}: {one}"));
        assert_eq!(one, two, "{}", self.told());
    }

    fn told(&self) -> String {
        format!("ATOMDIR_SEED={}\n{}", self.seed, self.log.join("\n"))
    }

    fn begin(&mut self, random: &mut Random, which: usize) {
        let (lazy, snapshot) = (Durability::Lazy, Isolation::Snapshot);
        let durabilities = [lazy, lazy, Durability::Deferred, Durability::Durable];
        let isolations = [snapshot, snapshot, Isolation::Serializable];
        let options = BeginOptions {
            durability: durabilities[random.below(4)],
            isolation: isolations[random.below(3)],
            ..support::options()
        };
        let what = format!("begin {:?} {:?}", options.durability, options.isolation);
        self.both(which, what, &mut |twin| {
            twin.begin(which, options.clone());
            String::new()
        });
    }

    fn step(&mut self, random: &mut Random, which: usize) {
        match random.below(24) {
            0..=4 => {
                self.both(which, "commit".to_owned(), &mut |twin| {
                    twin.end(which, true)
                });
            }
            5 => {
                self.both(which, "abort".to_owned(), &mut |twin| {
                    twin.end(which, false)
                });
            }
            6 => {
                self.both(which, "nest".to_owned(), &mut |twin| {
                    if twin.nested[which].is_none() {
                        let outer = twin.views[which].clone().expect("open");
                        let begun = twin.store.begin_nested(&outer, support::options());
                        twin.nested[which] = Some(begun.expect("nested"));
                    }
                    String::new()
                });
            }
            7 => {
                let at = path(random);
                self.both(which, format!("land {at}"), &mut |twin| {
                    let view = twin.view(which);
                    outcome(
                        twin.store
                            .commit_portion(
                                &view,
                                Portion::part(&[at.clone().into_bytes()]),
                                &mut |_| {},
                            )
                            .map(drop),
                    )
                });
            }
            8 => {
                self.both(which, "refresh".to_owned(), &mut |twin| {
                    let view = twin.view(which);
                    match twin.store.refresh(&view) {
                        Ok(_) => "fresh".to_owned(),
                        Err(atomdir_engine::RefreshError::Commit(error)) => outcome(Err(error)),
                        Err(error) => format!("{error}"),
                    }
                });
            }
            9 => {
                self.both(which, "save".to_owned(), &mut |twin| {
                    format!("{:?}", twin.view(which).set_savepoint(b"s").is_ok())
                });
            }
            10 => {
                self.both(which, "roll back".to_owned(), &mut |twin| {
                    format!("{:?}", twin.view(which).roll_back(b"s").is_ok())
                });
            }
            11..=14 => {
                let at = path(random);
                self.both(which, format!("look {at}"), &mut |twin| {
                    describe(&twin.view(which), &at)
                });
            }
            15 => {
                if random.below(3) == 0 {
                    self.both(which, "tree".to_owned(), &mut |twin| {
                        format!("{:?}", tree_of_view(&twin.view(which)))
                    });
                }
            }
            16 if random.below(3) == 0 => {
                self.both(which, "sync".to_owned(), &mut |twin| {
                    twin.store.sync().expect("well");
                    String::new()
                });
            }
            17 if random.below(4) == 0 => {
                self.both(which, "checkpoint".to_owned(), &mut |twin| {
                    twin.store.checkpoint().expect("well");
                    String::new()
                });
            }
            _ => {
                let words = words(random);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.both(which, words.join(" "), &mut |twin| {
                    format!("{:?}", try_inside(&twin.view(which), &words))
                });
            }
        }
    }

    fn end(self) {
        let told = self.told();
        let Pair { fast, slow, .. } = self;
        for twin in [&fast, &slow] {
            twin.store.sync().expect("well");
            let problems = twin.store.check().problems;
            assert_eq!(problems, Vec::<String>::new(), "{told}");
        }
        assert_eq!(
            tree_of_base(&fast.scratch.0),
            tree_of_base(&slow.scratch.0),
            "{told}"
        );
        for twin in [fast, slow] {
            let before = tree(&twin.scratch.0);
            let Twin {
                scratch,
                store,
                views,
                nested,
                ..
            } = twin;
            drop((views, nested, store));
            let store = open_scripted(&scratch);
            assert_eq!(tree(&scratch.0), before, "recovered, {told}");
            assert_eq!(store.check().problems, Vec::<String>::new(), "{told}");
        }
    }
}

#[test]
fn begins_agree_whether_they_wait_or_not() {
    for seed in seeds(400) {
        let mut pair = Pair {
            fast: Twin::new(match seed % 2 {
                0 => WaitsFor::Nothing,
                _ => WaitsFor::Late,
            }),
            slow: Twin::new(WaitsFor::All),
            seed,
            log: Vec::new(),
        };
        let mut random = Random::new(seed);
        for _ in 0..60 {
            let which = random.below(OPEN);
            let is_open = |twin: &Twin| twin.views[which].is_some();
            assert_eq!(is_open(&pair.fast), is_open(&pair.slow), "{}", pair.told());
            match is_open(&pair.fast) {
                true => pair.step(&mut random, which),
                false => pair.begin(&mut random, which),
            }
        }
        pair.end();
    }
}
