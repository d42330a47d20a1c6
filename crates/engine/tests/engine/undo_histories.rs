//! Random histories in which undos meet what other undos, outside writers and kills have left.
//!
//! - An undo takes back what its commits changed and loses nothing that came later, or it is refused
//!   because of something that did change later, and changes nothing.
//! - The base is what a model says after every step, and the store takes every commit.
//! - A view of the past shows what a commit left, if no outside writer has changed anything.
//!
//! `ATOMDIR_SEED=n` replays one run.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::model::taken_back::{Files, Step};
use crate::support::model::{Model, Tree};
use crate::support::trees::{tree_of_base, tree_of_view};
use crate::support::{Random, Scratch, begin, create, open_history, options, seeds_and};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{
    ChangedBy, CommitError, Conflict, ConflictKind, Sequence, Store, Transaction, UndoError,
};
use atomdir_testing::pick;

const STEPS: usize = 70;
const OBJECTS_MAX: usize = 40;
/// Seeds by which faults were found, most in undos of several commits with others between them.
const FORMER_FAULTS: &[u64] = &[
    8, 24, 47, 49, 55, 68, 70, 156, 197, 222, 243, 262, 284, 306, 315, 321, 325, 343, 354, 364,
    384, 387, 403, 409, 415, 421, 425, 467, 507, 601, 622, 628, 644, 662, 682, 695, 710, 718, 801,
    819, 843, 861, 867, 880, 884, 913, 942, 945, 969, 975, 1182, 1193, 1225, 1265, 1270, 1333,
    1272, 1353, 1380, 1404, 1435, 1439, 1452, 1456, 1480, 1522, 1611, 1628, 1712, 1751, 1842, 1861,
    1883, 1942, 2068, 2316, 2517, 2604, 2826, 3418, 3519, 4203, 8418, 8898, 60186, 60215,
];

struct Run {
    scratch: Scratch,
    store: Option<Store<LinuxDisk>>,
    random: Random,
    now: Model,
    /// The trees before and after each commit.
    commits: Vec<(Model, Model)>,
    /// Undos that have landed, each with the commits that it takes back.
    undos: Vec<(u64, Vec<u64>)>,
    /// Undos that have not landed yet, and their commits.
    open: Vec<(Arc<Transaction<LinuxDisk>>, Vec<u64>)>,
    has_outside_writers: bool,
    is_disturbed: bool,
    context: String,
}

impl Run {
    fn new(seed: u64) -> Run {
        let scratch = Scratch::new();
        create(&scratch.0);
        Run {
            store: Some(open_history(&scratch.0)),
            scratch,
            random: Random::new(seed),
            now: Model::new(),
            commits: Vec::new(),
            undos: Vec::new(),
            open: Vec::new(),
            has_outside_writers: seed.is_multiple_of(3),
            is_disturbed: false,
            context: format!("ATOMDIR_SEED={seed}"),
        }
    }

    fn say(&self, what: &str) {
        if std::env::var_os("ATOMDIR_SEED").is_some() {
            println!("{what}");
        }
    }

    fn store(&self) -> &Store<LinuxDisk> {
        self.store.as_ref().expect("it is open")
    }

    fn newest(&self) -> u64 {
        self.commits.len() as u64
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=7 => self.commit(),
            8..=14 => self.undo(),
            15 => self.land_open(),
            16 => self.look_back(),
            17 => self.store().checkpoint().expect("at any time"),
            18 => self.reopen(),
            _ if self.has_outside_writers => {
                self.is_disturbed = true;
                let before = self.now.clone();
                self.now.step_outside(&mut self.random, &self.scratch.0);
                self.say(&format!("outside:\n{}", before.describe_changes(&self.now)));
            }
            _ => {}
        }
        let base = tree_of_base(&self.scratch.0);
        self.assert_same(&base, &self.now.tree(), "the base");
    }

    fn assert_same(&self, found: &Tree, wanted: &Tree, what: &str) {
        if found == wanted {
            return;
        }
        let lines = |one: &Tree, other: &Tree| -> Vec<String> {
            let differing = one
                .iter()
                .filter(|(path, what)| other.get(*path) != Some(*what));
            let lines = differing.map(|(path, what)| format!("{}: {what}", path.escape_ascii()));
            lines.collect()
        };
        let (found, wanted) = (lines(found, wanted), lines(wanted, found));
        panic!(
            "{}: {what}: found {found:#?}, not {wanted:#?}",
            self.context
        );
    }

    fn commit(&mut self) {
        let before = self.now.clone();
        let transaction = begin(self.store());
        for _ in 0..1 + self.random.below(6) {
            let is_large = self.now.size() > OBJECTS_MAX;
            match self.random.below(12) {
                0 => self.now.remove_tree(&mut self.random, &transaction),
                _ if is_large => self.now.remove_tree(&mut self.random, &transaction),
                1 | 2 => self.now.wrap(&mut self.random, &transaction),
                _ => self.now.step(&mut self.random, &transaction),
            }
        }
        self.now.forget_changes_of_removed(&before);
        let committed = self.store().commit(&transaction);
        let committed = committed.unwrap_or_else(|error| panic!("{}: {error}", self.context));
        assert_eq!(committed.stalled, None, "{}", self.context);
        self.note(committed.sequence, before);
    }

    fn note(&mut self, sequence: Option<Sequence>, before: Model) {
        match sequence {
            Some(sequence) => {
                self.say(&format!(
                    "{sequence:?}:\n{}",
                    before.describe_changes(&self.now)
                ));
                self.commits.push((before, self.now.clone()));
                assert_eq!(sequence.0, self.newest(), "{}", self.context);
            }
            None => assert_eq!(before.tree(), self.now.tree(), "{}", self.context),
        }
    }

    /// Some commits to undo, in their order.
    fn choose(&mut self) -> Vec<u64> {
        let newest = self.newest();
        let random = &mut self.random;
        let mut some = |count: u64| 1 + random.below(count as usize) as u64;
        let chosen: BTreeSet<u64> = match some(6) {
            1 => [some(newest)].into(),
            2 => (newest.saturating_sub(some(5)) + 1..=newest).collect(),
            3 => {
                let first = some(newest);
                (first..=newest.min(first + some(5))).collect()
            }
            4 => [some(newest), some(newest), newest].into(),
            5 if !self.undos.is_empty() => {
                let (undo, _) = self.undos[some(self.undos.len() as u64) as usize - 1];
                (undo..=newest.min(undo + some(3) - 1)).collect()
            }
            _ => [newest].into(),
        };
        chosen.into_iter().collect()
    }

    fn steps_of(&self, commits: &[u64]) -> Vec<Step<'_>> {
        let steps = commits
            .iter()
            .map(|commit| &self.commits[*commit as usize - 1]);
        steps.map(|(before, after)| (before, after)).collect()
    }

    fn undo(&mut self) {
        if self.commits.is_empty() {
            return;
        }
        let commits = self.choose();
        self.say(&format!("undo {commits:?}"));
        let sequences: Vec<Sequence> = commits.iter().copied().map(Sequence).collect();
        match self.store().undo(&sequences, &[], options()) {
            Ok(undone) => {
                let found = tree_of_view(&undone);
                let wanted = self.wanted(&commits, &found);
                self.assert_same(&found, &wanted.tree(), "the view of an undo");
                self.open.push((undone, commits));
                if self.random.below(8) > 0 {
                    self.land_open();
                }
            }
            Err(UndoError::Conflict(conflicts)) => self.assert_true(&commits, &conflicts),
            Err(UndoError::AlreadyUndone { commit, by }) => {
                let mut undos = self.undos.iter();
                let by = undos.find(|(undo, _)| *undo == by.0);
                let is_undone = by.is_some_and(|(_, undone)| undone.contains(&commit.0));
                assert!(is_undone, "{}: undo of {commits:?}", self.context);
            }
            Err(error) => panic!("{}: undo of {commits:?}: {error}", self.context),
        }
    }

    fn wanted(&self, commits: &[u64], found: &Tree) -> Model {
        let steps = self.steps_of(commits);
        let possible = Files::ALL.map(|files| self.now.taken_back(&steps, files));
        let is_found =
            |one: &&Result<Model, String>| matches!(one, Ok(model) if model.tree() == *found);
        let wanted = possible.iter().find(is_found).unwrap_or(&possible[0]);
        let wanted = wanted.as_ref();
        wanted
            .cloned()
            .unwrap_or_else(|lost| panic!("{}: undo of {commits:?}: {lost}", self.context))
    }

    /// Each reported conflict came later and changed something that these commits changed.
    fn assert_true(&self, commits: &[u64], conflicts: &[Conflict]) {
        self.say(&format!("{conflicts:?}"));
        let (mut undone, mut above) = (BTreeSet::new(), BTreeSet::new());
        let mut entries = BTreeSet::new();
        // A commit that leaves the tree as it was may still have given a file another inode.
        let mut is_inode_only = false;
        for (before, after) in self.steps_of(commits) {
            is_inode_only |= before.tree() == after.tree();
            let differing = before.differing(after);
            above.extend(before.with_what_is_above(differing.clone()));
            above.extend(after.with_what_is_above(differing.clone()));
            undone.extend(differing);
            entries.extend(before.differing_entries(after));
        }
        let undone = self.now.with_what_is_below(undone);
        let is_true = |conflict: &&Conflict| match &conflict.by {
            ChangedBy::Commit { sequence, .. } => {
                let number = sequence.0;
                let (before, after) = &self.commits[number as usize - 1];
                let is_later = commits.first() < Some(&number) && !commits.contains(&number);
                if is_later && (is_inode_only || before.tree() == after.tree()) {
                    return true;
                }
                let below = after.with_what_is_below(undone.clone());
                let is_same = before.differing(after).intersection(&below).count() > 0;
                let is_entry = before
                    .differing_entries(after)
                    .intersection(&entries)
                    .count()
                    > 0;
                let is_removed = before.removed_by(after).intersection(&above).count() > 0;
                is_later && (is_same || is_entry || is_removed)
            }
            _ => self.is_disturbed,
        };
        // If the undo would put directories below each other, the store does not know who has moved
        // them.
        let has_commit = conflicts.iter().any(|one| is_true(&one));
        let is_unknown = |conflict: &&Conflict| {
            has_commit
                && conflict.what == ConflictKind::Removed
                && conflict.by == ChangedBy::Outside
        };
        let mut wrong = conflicts.iter();
        let wrong = wrong.find(|one| !is_true(one) && !is_unknown(one));
        assert_eq!(wrong, None, "{}: undo of {commits:?}", self.context);
    }

    fn land_open(&mut self) {
        let Some((undone, commits)) = self.open.pop() else {
            return;
        };
        let before = self.now.clone();
        match self.store().commit(&undone) {
            Ok(committed) => {
                assert_eq!(committed.stalled, None, "{}", self.context);
                self.say(&format!("undo of {commits:?} is {:?}", committed.sequence));
                self.now = self.wanted(&commits, &tree_of_base(&self.scratch.0));
                let undo = committed.sequence;
                self.undos.extend(undo.map(|undo| (undo.0, commits)));
                self.note(undo, before);
            }
            Err(CommitError::Conflict(_)) => drop(self.store().abort(&undone)),
            Err(error) => panic!("{}: undo of {commits:?}: {error}", self.context),
        }
    }

    fn look_back(&mut self) {
        let commit = self.random.below(self.commits.len() + 1);
        self.assert_past(commit);
    }

    fn assert_past(&self, commit: usize) {
        if self.is_disturbed {
            return;
        }
        let past = self.store().past(Sequence(commit as u64), options());
        let past = past.unwrap_or_else(|error| panic!("{}: after {commit}: {error}", self.context));
        assert_eq!(past.not_as_then, [], "{}: after {commit}", self.context);
        let wanted = match commit.checked_sub(1) {
            Some(number) => self.commits[number].1.tree(),
            None => Model::new().tree(),
        };
        let found = tree_of_view(&past.transaction);
        self.assert_same(&found, &wanted, &format!("the past after {commit}"));
        self.store().abort(&past.transaction);
    }

    fn reopen(&mut self) {
        self.say("reopen");
        for (undone, _) in std::mem::take(&mut self.open) {
            self.store().abort(&undone);
        }
        let store = self.store.take().expect("it is open");
        if self.random.below(3) == 0 {
            store.close().expect("the store closes");
        }
        drop(store);
        self.store = Some(open_history(&self.scratch.0));
    }
}

#[test]
fn undos_lose_nothing_that_came_later_and_views_show_the_past() {
    for seed in seeds_and(pick(30, 1500), FORMER_FAULTS) {
        let mut run = Run::new(seed);
        println!("{}", run.context);
        for _ in 0..STEPS {
            run.step();
        }
        for commit in 0..=run.commits.len() {
            run.assert_past(commit);
        }
        let problems = run.store().check().problems;
        assert_eq!(problems, Vec::<String>::new(), "{}", run.context);
    }
}
