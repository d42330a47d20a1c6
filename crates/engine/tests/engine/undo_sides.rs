//! An undo that takes sides in later changes, and that skips paths.

use std::collections::BTreeSet;
use std::fs;

use crate::support::model::{Model, Tree};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open_history, options, seeds_and};
use crate::undo_conflicts::{commit, put, set_mode, store};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{CommitError, Sequence, SidePaths, Store, Undo, UndoError, Undone};
use atomdir_testing::pick;

const PAGE: usize = 4096;

fn choice(commits: &[u64]) -> Undo {
    Undo {
        commits: commits.iter().copied().map(Sequence).collect(),
        ..Undo::default()
    }
}

fn mine(commits: &[u64]) -> Undo {
    Undo {
        mine: SidePaths::Others,
        ..choice(commits)
    }
}

fn theirs(commits: &[u64]) -> Undo {
    Undo {
        theirs: SidePaths::Others,
        ..choice(commits)
    }
}

fn land(store: &Store<LinuxDisk>, choice: &Undo) -> u64 {
    let undone = store
        .undo_choosing(choice, None, options())
        .expect("it is undone");
    let committed = store.commit(&undone.transaction).expect("it lands");
    committed.sequence.expect("something has changed").0
}

#[test]
fn what_comes_back_is_no_mixture_of_both_sides() {
    let (scratch, store) = store();
    let path = scratch.0.join("f");
    let page = |byte: u8| vec![byte; PAGE];
    commit(&store, |tx| {
        put(tx, "f", 0, &[page(b'0'), page(b'0'), page(b'0')].concat())
    });
    let old = fs::read(&path).expect("it is there");
    let first = commit(&store, |tx| put(tx, "f", 0, &page(b'1')));
    commit(&store, |tx| {
        put(tx, "f", 10, &[page(b'2'), page(b'2')].concat())
    });
    let later = fs::read(&path).expect("it is there");
    let undone = land(&store, &mine(&[first]));
    assert_eq!(fs::read(&path).expect("it is there"), old);
    // The commit is undone, and cannot be undone twice.
    let twice = store
        .undo_choosing(&mine(&[first]), None, options())
        .map(drop);
    assert!(
        matches!(twice, Err(UndoError::AlreadyUndone { .. })),
        "{twice:?}"
    );
    land(&store, &choice(&[undone]));
    assert_eq!(fs::read(&path).expect("it is there"), later);
}

#[test]
fn the_nearest_path_decides_between_the_sides() {
    let (scratch, store) = store();
    commit(&store, |tx| {
        for name in ["a", "b", "c"] {
            put(tx, name, 0, b"old");
            set_mode(tx, name, 0o644);
        }
    });
    let first = commit(&store, |tx| {
        for name in ["a", "b", "c"] {
            put(tx, name, 0, b"new");
        }
    });
    commit(&store, |tx| {
        put(tx, "a", 0, b"two");
        put(tx, "b", 0, b"two");
    });
    let named = |path: &str| SidePaths::These(vec![path.into()]);
    let only_a = Undo {
        mine: named("a"),
        ..choice(&[first])
    };
    let refused = store.undo_choosing(&only_a, None, options()).map(drop);
    let Err(UndoError::Conflict(left)) = refused else {
        panic!("b is in the way: {refused:?}");
    };
    assert!(left.iter().all(|one| one.path == b"b"), "{left:?}");
    land(
        &store,
        &Undo {
            theirs: SidePaths::Others,
            ..only_a
        },
    );
    let read = |name| fs::read_to_string(scratch.0.join(name)).expect("it is there");
    assert_eq!([read("a"), read("b"), read("c")], ["old", "two", "old"]);
}

/// Commits, perhaps with outside writers between them, and then undos of any of them that take sides.
struct Run {
    scratch: Scratch,
    store: Store<LinuxDisk>,
    random: Random,
    /// The trees after each commit; before the first it is empty.
    trees: Vec<Tree>,
    has_outside_writers: bool,
    /// How many undos have landed that took a side.
    landed: usize,
    context: String,
}

impl Run {
    fn new(seed: u64) -> Run {
        let scratch = Scratch::new();
        create(&scratch.0);
        let store = open_history(&scratch.0);
        let (mut random, mut now) = (Random::new(seed), Model::new());
        let mut trees = Vec::new();
        let has_outside_writers = seed.is_multiple_of(3);
        for _ in 0..14 {
            let before = now.clone();
            let transaction = begin(&store);
            for _ in 0..1 + random.below(6) {
                now.step(&mut random, &transaction);
            }
            now.forget_changes_of_removed(&before);
            let committed = store.commit(&transaction).expect("nobody is in the way");
            trees.extend(committed.sequence.map(|_| now.tree()));
            if has_outside_writers && random.below(4) == 0 {
                now.step_outside(&mut random, &scratch.0);
            }
        }
        Run {
            scratch,
            store,
            random,
            trees,
            has_outside_writers,
            landed: 0,
            context: format!("ATOMDIR_SEED={seed}"),
        }
    }

    fn choose(&mut self) -> Undo {
        let newest = self.trees.len() as u64;
        let random = &mut self.random;
        let mut one = || 1 + random.below(newest as usize) as u64;
        let first = one();
        let commits: BTreeSet<u64> = match one() % 3 {
            0 => [first].into(),
            1 => (first..=newest.min(first + 3)).collect(),
            _ => [first, one()].into(),
        };
        let commits: Vec<u64> = commits.into_iter().collect();
        match random.below(2) {
            0 => mine(&commits),
            _ => theirs(&commits),
        }
    }

    fn undo(&mut self) {
        let choice = self.choose();
        let before = tree_of_base(&self.scratch.0);
        let context = format!("{}: {choice:?}", self.context);
        let Undone { transaction, sided } = match self.store.undo_choosing(&choice, None, options())
        {
            Ok(undone) => undone,
            Err(
                UndoError::AlreadyUndone { .. }
                | UndoError::NotTaken { .. }
                | UndoError::NotLeftOut { .. },
            ) => {
                assert_eq!(tree_of_base(&self.scratch.0), before, "{context}");
                return;
            }
            Err(error) => panic!("{context}: {error}"),
        };
        let view = tree_of_view(&transaction);
        let committed = match self.store.commit(&transaction) {
            Ok(committed) => committed,
            Err(CommitError::Conflict(_)) if self.has_outside_writers => {
                self.store.abort(&transaction);
                return;
            }
            Err(error) => panic!("{context}: {sided:?}: {error}"),
        };
        assert_eq!(tree_of_base(&self.scratch.0), view, "{context}: {sided:?}");
        // Records name paths as they were at the commit. Directories may have moved since.
        let moves = view.keys().any(|path| is_moved(path, &before, &view));
        let is_theirs = choice.theirs == SidePaths::Others && !moves;
        for conflict in sided.iter().filter(|_| is_theirs) {
            let path = &conflict.path;
            let (now, then) = (kind(&view, path), kind(&before, path));
            assert_eq!(now, then, "{context}: {conflict:?}");
        }
        self.landed += usize::from(!sided.is_empty());
        let Some(sequence) = committed.sequence else {
            assert_eq!(view, before, "{context}");
            return;
        };
        self.trees.push(view);
        assert_eq!(self.trees.len() as u64, sequence.0, "{context}");
        if self.random.below(2) == 0 {
            land(&self.store, &self::choice(&[sequence.0]));
            assert_eq!(tree_of_base(&self.scratch.0), before, "{context}: undone");
            self.trees.push(before);
        }
    }

    fn assert_past(&self) {
        if self.has_outside_writers {
            return;
        }
        for (number, tree) in self.trees.iter().enumerate() {
            let commit = Sequence(number as u64 + 1);
            let past = self.store.past(commit, options()).expect("it is known");
            let found = tree_of_view(&past.transaction);
            assert_eq!(&found, tree, "{}: after {commit}", self.context);
            self.store.abort(&past.transaction);
        }
    }
}

/// The kind of what is at a path. Its contents and attributes may be taken back nevertheless, if others
/// have given it another name since.
fn kind<'a>(tree: &'a Tree, path: &[u8]) -> Option<&'a str> {
    tree.get(path)?.split(' ').next()
}

/// Whether there is a directory that is not in the other tree.
fn is_moved(path: &[u8], before: &Tree, after: &Tree) -> bool {
    after[path].starts_with("directory") && !before.contains_key(path)
}

#[test]
fn undos_with_sides_can_be_undone_and_leave_the_past_as_it_was() {
    let mut landed = 0;
    for seed in seeds_and(pick(40, 1500), &[]) {
        let mut run = Run::new(seed);
        println!("{}", run.context);
        for _ in 0..12 {
            run.undo();
        }
        run.assert_past();
        let problems = run.store.check().problems;
        assert_eq!(problems, Vec::<String>::new(), "{}", run.context);
        landed += run.landed;
    }
    assert!(landed > 0, "no undo has taken a side");
    println!("{landed} undos have taken a side");
}
