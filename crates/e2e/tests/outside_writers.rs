#![cfg(test)]

//! What a transaction does to an object, and what an outside writer does to it meanwhile: every
//! pair of steps on every kind of object, in exact and native views: as root, as an ordinary user,
//! and as a user whom root has admitted to a store of root's.
//!
//! All cells of the matrix are directories of one store. One transaction does its steps in all of
//! them, then outside writers do theirs. Each cell without a conflict then lands as a part.
//! What must hold:
//!
//! 1. A native view has a conflict in every cell in which an exact view has one, and in no other,
//!    but for the cells in [`allowed`].
//! 2. The bases of both views are the same in every cell that both have landed, but for
//!    [`may_end_apart`].
//! 3. A cell with a conflict is as the outside writer left it.
//! 4. Nothing that an outside writer did is lost without a conflict.
//!
//! The same once more with outside writers that act when the transaction has looked at everything,
//! and before it acts. There a native view may have more conflicts: it goes on showing what it has
//! shown.
//!
//! Exclusive views are compared with exact ones in the same way. They may have more conflicts.

#[path = "outside_writers/allowed.rs"]
mod allowed;
#[path = "outside_writers/cells.rs"]
mod cells;
#[path = "outside_writers/step.rs"]
mod step;
#[path = "outside_writers/trial.rs"]
mod trial;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use allowed::{
    acts_on_what_was_shown, is_refused_by_overlayfs, makes_what_it_moves, may_be_coarser,
    may_end_apart, removes_what_it_saw,
};
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, Difference, Entry, Kind, Tree, compare};
use atomdir_testing::{
    Fixture, Random, User, as_user, look, pick, shell, this_program, users_can_mount, wait_until,
};
use cells::{directory, tree_of};
use rustix::fs::{XattrFlags, lsetxattr};
use step::{Before, Step, Who};
use trial::{Actor, Order, Trial};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    before: Before,
    does: Step,
    meanwhile: Step,
}

const EXCLUSIVE: &str = "exclusive";

fn all_cells(is_root: bool, trial: Trial) -> Vec<Cell> {
    let mut cells = Vec::new();
    for before in Before::ALL {
        // An ordinary user's overlay over the base would not keep such names together.
        if trial.is_exclusive && !is_root && before == Before::TwoNames {
            continue;
        }
        let steps = || {
            let all = Step::ALL.into_iter();
            all.filter(move |step| step.applies(before, is_root))
        };
        for does in steps() {
            cells.extend(steps().map(|meanwhile| Cell {
                before,
                does,
                meanwhile,
            }));
        }
    }
    let mut random = Random::from_seed(trial.seed);
    cells.retain(|_| random.chance(trial.one_in));
    cells
}

/// Does a step of each cell, and returns which errors there were.
fn act_in_all(base: &Path, cells: &[Cell], who: Who) -> Vec<Option<i32>> {
    let act = |(number, cell): (usize, &Cell)| {
        let step = match who {
            Who::Transaction => cell.does,
            Who::Outsider => cell.meanwhile,
        };
        let done = step.act(&base.join(directory(number)), who);
        done.err().map(|error| error.raw_os_error().unwrap_or(-1))
    };
    cells.iter().enumerate().map(act).collect()
}

const SIGNS: &str = "ATOMDIR_TEST_SIGNS";
const TRIAL: &str = "ATOMDIR_TEST_TRIAL";

/// Runs in a view, as a process of the test below.
#[test]
fn steps_of_the_transaction() {
    let Some(signs) = std::env::var_os(SIGNS).map(PathBuf::from) else {
        return;
    };
    let base = std::env::current_dir().expect("there is a current directory");
    let trial = std::env::var(TRIAL).expect("it is set");
    let trial = Trial::from_text(&trial).expect("a trial");
    let cells = all_cells(rustix::process::geteuid().is_root(), trial);
    let looks_first = trial.order == Order::Between;
    let act = || {
        let failed = act_in_all(&base, &cells, Who::Transaction);
        fs::write(signs.join("failed"), format!("{failed:?}")).expect("written");
    };
    match looks_first {
        true => step::look(&base.join("cells")).expect("all can be read"),
        false => act(),
    }
    fs::write(signs.join("ready"), "").expect("written");
    wait_until("the outside writers", || signs.join("go").exists());
    if looks_first {
        act();
    }
}

struct Outcome {
    conflicts: BTreeSet<usize>,
    refused: BTreeSet<usize>,
    /// Before and after the outside writers' steps, and after the commit.
    trees: [Tree; 3],
    /// The errors that the transaction's steps met.
    failed: String,
}

fn run_in(view: &str, actor: Actor, trial: Trial) -> Outcome {
    let fixture = actor.store();
    let user = actor.user(fixture.scratch.path());
    let cells = all_cells(user.is_root(), trial);
    as_user(user.uid, || {
        for (number, cell) in cells.iter().enumerate() {
            let made = cell.before.make(&fixture.base.join(directory(number)));
            made.expect("the cell can be made");
        }
    });
    let signs = fixture.scratch.join("signs");
    fs::create_dir(&signs).expect("made");
    chown(&signs, Some(user.uid), Some(user.gid)).expect("given away");
    let before = look(&fixture.base);
    let options = ["run", "--view", view, "--on-success", "keep", "--"];
    let mut command = fixture.store.command_as(&user, options);
    let program = this_program("steps_of_the_transaction");
    let arguments = program.get_args();
    command.arg(program.get_program()).args(arguments);
    command.env(TRIAL, trial.to_text());
    command.env(SIGNS, &signs).stdout(Stdio::null());
    let mut running = command.spawn().expect("it starts");
    wait_until("the transaction's steps", || {
        let has_ended = running.try_wait().expect("it can be waited for").is_some();
        signs.join("ready").exists() || has_ended
    });
    act_outside(&fixture, &user, &cells);
    if !trial.is_exclusive {
        act_above(&fixture, &user);
    }
    let outside = look(&fixture.base);
    fs::write(signs.join("go"), "").expect("written");
    let status = running.wait().expect("it can be waited for");
    assert!(status.success(), "{view}: {status}");
    let (conflicts, refused) = land(&fixture, &user);
    let after = look(&fixture.base);
    for above in ABOVE.map(Path::new) {
        let looks = |tree: &Tree| {
            let found = &tree.entries[above];
            (found.mode, found.group, found.xattrs.clone())
        };
        assert_eq!(looks(&outside), looks(&after), "{view}: {above:?}");
    }
    fixture.store.call(["abort", "--all", "--quiet"]).expect(0);
    fixture.store.call(["check"]).expect(0);
    Outcome {
        conflicts,
        refused,
        trees: [before, outside, after],
        failed: fs::read_to_string(signs.join("failed")).expect("it is there"),
    }
}

/// The directories above the cells. The transaction does nothing to them.
const ABOVE: [&str; 2] = ["", "cells"];

fn act_outside(fixture: &Fixture, user: &User, cells: &[Cell]) {
    let act = || act_in_all(&fixture.base, cells, Who::Outsider);
    let failed: BTreeSet<_> = as_user(user.uid, act).into_iter().flatten().collect();
    assert!(failed.is_empty(), "outside writers failed: {failed:?}");
}

/// If a directory and its copy differ in mode or owner, an exclusive view cannot tell who has changed it.
fn act_above(fixture: &Fixture, user: &User) {
    for above in ABOVE.map(|above| fixture.base.join(above)) {
        fs::set_permissions(&above, Permissions::from_mode(0o751)).expect("it can be set");
        let group = if user.is_root() { 3 } else { user.gid };
        chown(&above, None, Some(group)).expect("it can be set");
        let set = lsetxattr(&above, "user.above", b"out", XattrFlags::empty());
        set.expect("it can be set");
    }
}

fn cell_of(path: &str) -> Option<usize> {
    path.strip_prefix("cells/")?.get(..5)?.parse().ok()
}

/// Commits all cells without conflicts, and returns those with conflicts.
fn land(fixture: &Fixture, user: &User) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let call = |arguments: &[&OsStr]| fixture.store.call_as(user, arguments);
    let listed = call(&["--json", "conflicts"].map(OsStr::new))
        .expect(0)
        .text();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
    let mut conflicts = BTreeSet::new();
    let mut beyond = Vec::new();
    for one in listed["conflicts"].as_array().expect("a list") {
        match one["path"].as_str().and_then(cell_of) {
            Some(number) => drop(conflicts.insert(number)),
            None => beyond.push(one),
        }
    }
    assert!(beyond.is_empty(), "conflicts outside the cells: {beyond:?}");
    let transaction = listed["transaction"].to_string();
    let changed = call(&["diff", &transaction, "--name-only"].map(OsStr::new))
        .expect(0)
        .text();
    let landing: BTreeSet<usize> = changed.lines().filter_map(cell_of).collect();
    let mut landing: BTreeSet<usize> = landing.difference(&conflicts).copied().collect();
    let mut refused = BTreeSet::new();
    loop {
        let paths: Vec<_> = landing.iter().map(|number| directory(*number)).collect();
        let mut arguments = ["commit", &transaction, "--"].map(OsStr::new).to_vec();
        arguments.extend(paths.iter().map(|path| path.as_os_str()));
        let committed = call(&arguments);
        if committed.code == 0 || landing.is_empty() {
            break;
        }
        let text = committed.error_text();
        let number = text
            .split('\'')
            .find_map(cell_of)
            .filter(|number| landing.remove(number));
        refused.insert(number.unwrap_or_else(|| panic!("{committed}")));
    }
    (conflicts, refused)
}

#[test]
fn both_views_find_the_same_conflicts_with_outside_writers() {
    let test = "both_views_find_the_same_conflicts_with_outside_writers";
    compare_views(test, Order::After, "native");
}

/// A program has looked at everything, and the kernel may remember it, when outside writers act.
#[test]
fn native_views_lose_nothing_that_changed_after_a_look() {
    let test = "native_views_lose_nothing_that_changed_after_a_look";
    compare_views(test, Order::Between, "native");
}

#[test]
fn exclusive_views_find_all_conflicts_with_outside_writers() {
    let test = "exclusive_views_find_all_conflicts_with_outside_writers";
    compare_views(test, Order::After, EXCLUSIVE);
}

#[test]
fn exclusive_views_lose_nothing_that_changed_after_a_look() {
    let test = "exclusive_views_lose_nothing_that_changed_after_a_look";
    compare_views(test, Order::Between, EXCLUSIVE);
}

#[track_caller]
fn compare_views(test: &str, order: Order, view: &str) {
    // `./test --full` tries the whole matrix.
    let trial = Trial {
        order,
        one_in: pick(4, 1),
        seed: Random::for_test(test).number(),
        is_exclusive: view == EXCLUSIVE,
    };
    let mut actors = vec![Actor::Root];
    if users_can_mount(test) {
        actors.push(Actor::Owner);
        if !trial.is_exclusive {
            actors.push(Actor::Admitted);
        }
    }
    for actor in actors {
        let exact = run_in("exact", actor, trial);
        // Users whom root has admitted get exact views only.
        let native = match actor {
            Actor::Admitted => None,
            _ => Some(run_in(view, actor, trial)),
        };
        let is_root = actor == Actor::Root;
        let cells = all_cells(is_root, trial);
        let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (number, cell) in cells.iter().enumerate() {
            let outcomes = (&exact, native.as_ref().unwrap_or(&exact));
            for (kind, what) in compare_cell(outcomes, (number, cell), (trial, is_root)) {
                let list = wrong.entry(kind).or_default();
                list.push(format!("{cell:?}: {what}"));
            }
        }
        for (kind, list) in &wrong {
            println!("{kind}: {}\n  {}", list.len(), list.join("\n  "));
        }
        assert!(wrong.is_empty(), "{actor:?}: of {} cells", cells.len());
    }
}

fn errors(outcome: &Outcome) -> Vec<&str> {
    outcome
        .failed
        .trim_matches(['[', ']'])
        .split(", ")
        .collect()
}

fn compare_cell(
    (exact, native): (&Outcome, &Outcome),
    (number, cell): (usize, &Cell),
    (trial, is_root): (Trial, bool),
) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let (one, other) = (errors(exact)[number], errors(native)[number]);
    let is_between = trial.order == Order::Between;
    if one != other {
        if !is_between && (is_root || !is_refused_by_overlayfs(other)) {
            wrong.push(("steps".to_owned(), format!("exact {one}, native {other}")));
        }
        return wrong;
    }
    let has = |outcome: &Outcome| outcome.conflicts.contains(&number);
    let acts_on_shown = is_between && acts_on_what_was_shown(cell);
    let may_end_apart = acts_on_shown || (!is_root && may_end_apart(cell));
    match (has(exact), has(native)) {
        (true, false) if !may_end_apart && (is_root || !makes_what_it_moves(cell)) => {
            wrong.push(("native is looser".to_owned(), String::new()))
        }
        (false, true) if !is_between && !trial.is_exclusive && !may_be_coarser(cell, is_root) => {
            wrong.push(("native is coarser".to_owned(), String::new()));
        }
        _ => {}
    }
    for (view, outcome) in [("exact", exact), ("native", native)] {
        if outcome.refused.contains(&number) {
            wrong.push((format!("{view}: refused"), String::new()));
            return wrong;
        }
        let [before, outside, after] = outcome.trees.each_ref().map(|tree| tree_of(tree, number));
        let untouched = CompareOptions::untouched();
        if has(outcome) {
            let list = compare(&outside, &after, &untouched);
            if !list.is_empty() {
                wrong.push((
                    format!("{view}: touched in spite of a conflict"),
                    shown(&list),
                ));
            }
        } else if let Some(lost) = lost(&before, &outside, &after)
            && !(is_between && removes_what_it_saw(cell))
        {
            wrong.push((format!("{view}: lost"), lost));
        }
    }
    if !has(exact) && !has(native) && !may_end_apart {
        let after = |outcome: &Outcome| tree_of(&outcome.trees[2], number);
        let list = compare(&after(exact), &after(native), &CompareOptions::alike());
        if !list.is_empty() {
            wrong.push(("bases differ".to_owned(), shown(&list)));
        }
    }
    wrong
}

fn shown(list: &[Difference]) -> String {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    list.join("; ")
}

/// Something that an outside writer made or changed and that is not there any more.
fn lost(before: &Tree, outside: &Tree, after: &Tree) -> Option<String> {
    for (path, now) in &outside.entries {
        let is_new = before
            .entries
            .get(path)
            .is_none_or(|old| old.inode != now.inode);
        let old = before.entries.values().find(|old| old.inode == now.inode);
        let looks = |entry: &Entry| {
            // The extended attributes of a directory are not compared.
            let is_file = entry.kind != Kind::Directory;
            let xattrs = is_file.then(|| entry.xattrs.clone());
            (entry.mode, entry.group, xattrs, entry.kind.clone())
        };
        let is_changed = old.is_none_or(|old| looks(old) != looks(now));
        if !is_new && !is_changed {
            continue;
        }
        let left = after.entries.values().find(|left| left.inode == now.inode);
        let Some(left) = left else {
            return Some(format!("{} is gone", path.display()));
        };
        let Some(old) = old else { continue };
        let kept = (now.mode == old.mode || left.mode == now.mode)
            && (now.group == old.group || left.group == now.group)
            && (now.kind == old.kind || left.kind == now.kind)
            && now.xattrs.iter().all(|(name, value)| {
                old.xattrs.get(name) == Some(value) || left.xattrs.get(name) == Some(value)
            });
        if !kept {
            return Some(format!("{} has lost a change", path.display()));
        }
    }
    let gone = before
        .entries
        .iter()
        .filter(|(path, _)| !outside.entries.contains_key(*path));
    for (path, old) in gone {
        let back = after.entries.get(path);
        if back.is_some_and(|back| back.inode == old.inode) {
            return Some(format!("{} is back", path.display()));
        }
    }
    None
}

#[test]
fn a_run_conflicts_with_the_replacement_of_what_it_changed_and_the_rest_lands() {
    let prepare = "echo old > n; mkdir d";
    Fixture::for_each_view("outside-writers-run", prepare, |one, view| {
        let work = "echo mine >> n; chmod 710 d; echo work > other";
        let meanwhile = || {
            shell(&one.base, "echo outside > t; mv t n; rmdir d; mkdir d");
        };
        let refused = one.run_and_meanwhile(&["--view", view], work, meanwhile);
        refused.expect(CONFLICT);
        let listed = one.store.call(["conflicts"]).expect(0).text();
        assert!(
            listed.contains("  n:") && listed.contains("  d:"),
            "{listed}"
        );
        one.store.call(["diff"]).expect(0);
        one.store.call(["commit", "1", "--", "other"]).expect(0);
        let read = |name| fs::read_to_string(one.base.join(name)).expect("it is there");
        assert_eq!(
            (read("n"), read("other")),
            ("outside\n".into(), "work\n".into())
        );
        one.store.call(["abort", "--all"]).expect(0);
    });
}

/// Overlayfs puts a copy of the old directory into the new one.
#[test]
fn old_directories_moved_into_new_ones_leave_nothing_in_limbo() {
    let prepare = "for name in a b c; do mkdir $name; echo old > $name/f; done";
    Fixture::for_each_view("moved-into-new", prepare, |one, view| {
        let inverted = "mv a e; mkdir a; mv e a/e";
        let moved = "mkdir new; mv b new/x; echo more > new/x/g; rm new/x/f";
        let deep = "mkdir -p n/m; mv c n/m/c; mv n/m p";
        let work = [inverted, moved, deep].join("; ");
        one.store.run_with(&["--view", view], &work).expect(0);
        let found = look(&one.base);
        let paths = ["a/e/f", "new/x/g", "p/c/f"].map(Path::new);
        assert!(
            paths.iter().all(|path| found.entries.contains_key(*path)),
            "{found:?}"
        );
        assert!(!found.entries.contains_key(Path::new("new/x/f")));
        one.store.call(["check"]).expect(0);
    });
}
