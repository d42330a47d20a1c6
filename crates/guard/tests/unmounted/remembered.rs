//! What programs change through a guard is kept in the history: the past shows each moment that was
//! logged, and an undo takes everything back.

use std::collections::BTreeMap;

use atomdir_engine::{CommitError, Sequence, UndoError};
use atomdir_testing::{Random, pick};

use crate::model::{Model, Operation, Tree};
use crate::program::{look, run};
use crate::world::{Open, World, open, options};

const STEPS: usize = 60;

struct Remembering {
    seed: u64,
    random: Random,
    world: World,
    /// How everything was when a commit was the newest.
    moments: BTreeMap<Sequence, Tree>,
    /// Transactions, with what they saw at their begin.
    open: Vec<(Open, Tree)>,
    notes: Vec<String>,
}

impl Remembering {
    fn fail(&self, what: &str) -> ! {
        panic!("seed {}: {what}\n{}", self.seed, self.notes.join("\n"));
    }

    fn assert_same(&self, what: &str, found: &Tree, wanted: &Tree) {
        if found != wanted {
            self.fail(&format!("{what}:\n{found:#?}\nand not\n{wanted:#?}"));
        }
    }

    fn tree(&self) -> Tree {
        look(&self.world.guarded).expect("it can be looked at").0
    }

    /// Programs do something. The model only serves to choose what is mostly possible.
    fn act_outside(&mut self, model: &mut Model, next: &mut usize) {
        let operation = model.some_operation(&mut self.random, &["a", "b", "c"]);
        let done = run(&self.world.guarded, &operation);
        self.notes.push(format!("{operation:?}: {done:?}"));
        if done.is_ok() {
            model.apply(&operation, next);
        }
    }

    fn note_moment(&mut self) {
        let commits = self.world.store.commits().expect("listed");
        let Some(newest) = commits.last().map(|commit| commit.summary.sequence) else {
            return;
        };
        self.notes.push(format!("commit {newest}"));
        let tree = self.tree();
        self.moments.insert(newest, tree);
    }

    fn commit_something(&mut self, model: &mut Model, next: &mut usize) {
        let one = self.world.store.begin(options()).expect("begun");
        let operation = model.some_operation(&mut self.random, &["a", "x"]);
        let done = run(&*one, &operation);
        let committed = self.world.store.commit(&one);
        self.notes
            .push(format!("inside: {operation:?}: {done:?}, {committed:?}"));
        match committed {
            Ok(_) if done.is_ok() => _ = model.apply(&operation, next),
            Ok(_) => {}
            Err(CommitError::Conflict(_)) => _ = self.world.store.abort(&one),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn step(&mut self, model: &mut Model, next: &mut usize) {
        match self.random.below(12) {
            0 => self.note_moment(),
            1 => {
                let one = self.world.store.begin(options()).expect("begun");
                self.open.push((one, self.tree()));
            }
            2 if !self.open.is_empty() => {
                let (one, tree) = self.open.remove(0);
                let seen = look(&*one).expect("it can be looked at").0;
                self.assert_same("a snapshot", &seen, &tree);
                self.world.store.abort(&one);
            }
            3 => self.commit_something(model, next),
            4 => self.world.store.checkpoint().expect("well"),
            _ => self.act_outside(model, next),
        }
    }

    fn check_past(&self) {
        for (commit, tree) in &self.moments {
            let past = self.world.store.past(*commit, options());
            let past = match past {
                Ok(past) => past,
                Err(error) => self.fail(&format!("the past after {commit}: {error}")),
            };
            let seen = look(&*past.transaction).expect("it can be looked at").0;
            self.assert_same(&format!("the past after {commit}"), &seen, tree);
            if !past.not_as_then.is_empty() {
                self.fail(&format!("the past after {commit}: {:?}", past.not_as_then));
            }
            self.world.store.abort(&past.transaction);
        }
    }

    fn undo(&mut self, commits: &[Sequence], wanted: &Tree) {
        let undo = match self.world.store.undo(commits, &[], options()) {
            Ok(undo) => undo,
            Err(UndoError::Conflict(conflicts)) => {
                self.fail(&format!("undo of {commits:?}: {conflicts:?}"))
            }
            Err(error) => self.fail(&format!("undo of {commits:?}: {error}")),
        };
        if let Err(error) = self.world.store.commit(&undo) {
            self.fail(&format!("undo of {commits:?}: {error}"));
        }
        let tree = self.tree();
        self.assert_same(&format!("after the undo of {commits:?}"), &tree, wanted);
    }
}

fn remember(seed: u64) {
    let world = World::new();
    world.store.remember_outside(true).expect("it can be set");
    let mut all = Remembering {
        seed,
        random: Random::from_seed(seed),
        world,
        moments: BTreeMap::new(),
        open: Vec::new(),
        notes: Vec::new(),
    };
    let (mut model, mut next) = (Model::new(), 1);
    for _ in 0..STEPS {
        all.step(&mut model, &mut next);
    }
    // What was only there for a moment is known once something else is logged.
    let last = Operation::File(vec!["last".to_owned()], 0o600);
    run(&all.world.guarded, &last).expect("made");
    all.note_moment();
    all.check_past();
    let commits = all.world.store.commits().expect("listed");
    let commits: Vec<Sequence> = commits.iter().map(|one| one.summary.sequence).collect();
    let (last, before) = (
        all.moments.keys().next_back(),
        all.moments.iter().rev().nth(1),
    );
    if let (Some(last), Some((before, tree))) = (last, before)
        && all.random.below(2) == 0
    {
        let since = commits.iter().copied();
        let since: Vec<Sequence> = since.filter(|one| one > before && one <= last).collect();
        let tree = tree.clone();
        all.undo(&since, &tree);
    } else {
        all.undo(&commits, &Tree::new());
    }
    for (one, tree) in std::mem::take(&mut all.open) {
        let seen = look(&*one).expect("it can be looked at").0;
        all.assert_same("a snapshot", &seen, &tree);
        all.world.store.abort(&one);
    }
    let scratch = all.world.close();
    let problems = open(&scratch.0).check().problems;
    assert!(problems.is_empty(), "seed {seed}: {problems:?}");
}

#[test]
fn what_programs_change_is_shown_by_the_past_and_taken_back_by_an_undo() {
    let first = match std::env::var("ATOMDIR_SEED") {
        Ok(seed) => seed.parse().expect("ATOMDIR_SEED is a number"),
        Err(_) => 1,
    };
    for seed in first..first + pick(60, 600) {
        remember(seed);
    }
}

/// Memory and limbo hold only what the history keeps.
#[test]
fn nothing_is_kept_in_memory_once_it_is_logged() {
    let world = World::new();
    world.store.remember_outside(true).expect("it can be set");
    let path = |name: &str| vec![name.to_owned()];
    let act = |operation: Operation| {
        run(&world.guarded, &operation).unwrap_or_else(|errno| panic!("{operation:?}: {errno}"));
    };
    for number in 0..50_u8 {
        act(Operation::File(path(&format!("f{number}")), 0o600));
    }
    world.store.commits().expect("listed");
    for round in 1..5_u8 {
        for number in 0..50_u8 {
            let name = path(&format!("f{number}"));
            act(Operation::Write(name.clone(), 0, 5000, round));
            act(Operation::Mode(name, 0o600 + u32::from(round)));
        }
        world.store.commits().expect("listed");
        assert_eq!(world.store.status().retained_objects, 0, "round {round}");
    }
    let commits = world.store.commits().expect("listed");
    assert_eq!(commits.len(), 5);
    world.store.checkpoint().expect("well");
    let limbo = world.root().join(".atomdir/limbo");
    let kept = std::fs::read_dir(limbo).expect("listed").count();
    // Of the first write there is nothing to keep.
    assert_eq!(
        kept,
        3 * 50,
        "pages that were overwritten, and nothing else"
    );
}
