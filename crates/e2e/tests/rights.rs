#![cfg(test)]

//! Nobody gains a right by a transaction: everything that a transaction does, with everything that
//! somebody else does to the rights there between its begin and its commit, in exact, native and exclusive
//! views. The transaction is an ordinary user's, and root acts meanwhile; or it is root's, and an ordinary
//! user acts meanwhile in directories of their own.
//!
//! All cells of the matrix are directories of one store. Each cell without a conflict lands as a part.
//! What must hold:
//!
//! 1. A cell with a conflict, or one that may not land, is as the others left it.
//! 2. Any other cell is as in a plain directory in which the transaction's user does the same after the
//!    others. What the kernel refuses there is not done here either.
//! 3. Exclusive and native views have a conflict wherever an exact view has one.
//! 4. Root makes no program set-user-id that holds what others have written.
//! 5. A file outside the store to which others have led a name stays as it was.

#[path = "outside_writers/cells.rs"]
mod cells;
#[path = "rights/deed.rs"]
mod deed;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED, USAGE};
use atomdir_testing::tree::{CompareOptions, Difference, Kind, Tree, compare};
use atomdir_testing::{
    Fixture, Random, Scratch, User, as_user, look, pick, shell, this_program, users_can_mount,
    wait_until,
};
use cells::{directory, tree_of};
use deed::{Deed, Meanwhile};

#[derive(Debug, Clone, Copy)]
struct Cell {
    deed: Deed,
    meanwhile: Meanwhile,
}

/// Which cells are tried: one in so many, chosen by the seed.
#[derive(Debug, Clone, Copy)]
struct Trial {
    actors: Actors,
    seed: u64,
    one_in: usize,
}

impl Trial {
    fn cells(self) -> Vec<Cell> {
        let is_root = self.actors.is_root();
        let deeds = Deed::ALL.into_iter().filter(|deed| deed.is_for(is_root));
        let each = |deed| {
            let all = Meanwhile::ALL.into_iter();
            let all = all.filter(|meanwhile| meanwhile.is_for(!is_root));
            all.map(move |meanwhile| Cell { deed, meanwhile })
        };
        let mut random = Random::from_seed(self.seed);
        let all = deeds.flat_map(each);
        all.filter(|_| random.chance(self.one_in)).collect()
    }

    fn make(self, base: &Path, scratch: &Path) {
        let owner = self.actors.ordinary(scratch);
        as_user(owner.uid, || {
            for number in 0..self.cells().len() {
                deed::make(&base.join(directory(number))).expect("the cell can be made");
            }
        });
    }

    fn act_meanwhile(self, base: &Path, scratch: &Path) {
        as_user(self.actors.other(scratch).uid, || {
            for (number, cell) in self.cells().iter().enumerate() {
                let acted = cell.meanwhile.act(&base.join(directory(number)));
                acted.unwrap_or_else(|error| panic!("{cell:?}: {error}"));
            }
        });
    }

    /// The transaction's part. Returns the numbers of the cells in which it failed.
    fn act(self, base: &Path) -> Vec<usize> {
        let cells = self.cells().into_iter().enumerate();
        let act = |(number, cell): &(usize, Cell)| cell.deed.act(&base.join(directory(*number)));
        let failed = cells.filter(|cell| act(cell).is_err());
        failed.map(|(number, _)| number).collect()
    }
}

/// When the others act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// When the transaction has looked at all objects, and before it does anything.
    Between,
    /// Before the command ends.
    After,
    /// When the command has ended, and its changes are known.
    Late,
}

/// Whose transaction it is. The objects belong to the ordinary one of the two users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Actors {
    OwnerAndRoot,
    RootAndStranger,
}

impl Actors {
    fn store(self) -> Fixture {
        let prepare = "mkdir -m 777 cells";
        match self {
            Actors::OwnerAndRoot => Fixture::owned_by("rights", User::ordinary, prepare),
            Actors::RootAndStranger => Fixture::new("rights", prepare),
        }
    }

    fn is_root(self) -> bool {
        self == Actors::RootAndStranger
    }

    fn in_transaction(self, scratch: &Path) -> User {
        match self {
            Actors::OwnerAndRoot => User::ordinary(scratch),
            Actors::RootAndStranger => User::root(scratch),
        }
    }

    fn other(self, scratch: &Path) -> User {
        match self {
            Actors::OwnerAndRoot => User::root(scratch),
            Actors::RootAndStranger => User::stranger(scratch),
        }
    }

    fn ordinary(self, scratch: &Path) -> User {
        match self {
            Actors::OwnerAndRoot => self.in_transaction(scratch),
            Actors::RootAndStranger => self.other(scratch),
        }
    }
}

const SIGNS: &str = "ATOMDIR_TEST_SIGNS";
const SEED: &str = "ATOMDIR_TEST_SEED";
const ONE_IN: &str = "ATOMDIR_TEST_ONE_IN";
const LOOKS_FIRST: &str = "ATOMDIR_TEST_LOOKS_FIRST";

/// Runs in a view, as a process of the tests below.
#[test]
fn deeds_of_the_transaction() {
    let Some(signs) = std::env::var_os(SIGNS).map(PathBuf::from) else {
        return;
    };
    let base = std::env::current_dir().expect("there is a current directory");
    let number = |name| std::env::var(name).expect("it is set").parse::<u64>();
    let trial = Trial {
        actors: match rustix::process::geteuid().is_root() {
            true => Actors::RootAndStranger,
            false => Actors::OwnerAndRoot,
        },
        seed: number(SEED).expect("a number"),
        one_in: number(ONE_IN).expect("a number") as usize,
    };
    let act = || {
        let failed = format!("{:?}", trial.act(&base));
        fs::write(signs.join("failed"), failed).expect("written");
    };
    let looks_first = std::env::var_os(LOOKS_FIRST).is_some();
    match looks_first {
        true => drop(shell(
            &base,
            "grep -rc . cells > /dev/null; ls -lR cells > /dev/null",
        )),
        false => act(),
    }
    fs::write(signs.join("ready"), "").expect("written");
    wait_until("the others", || signs.join("go").exists());
    if looks_first {
        act();
    }
}

/// Commits cell by cell. Returns those with conflicts, and those that may not land.
fn land_each(fixture: &Fixture, user: &User, cells: usize) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let (mut conflicts, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for number in 0..cells {
        let path = directory(number);
        // It is the first transaction of the store.
        let arguments = ["commit", "1", "--"].map(OsStr::new);
        let arguments = arguments.into_iter().chain([path.as_os_str()]);
        let landed = fixture.store.call_as(user, arguments);
        match landed.code {
            // The second: nothing has changed there.
            0 | USAGE => {}
            CONFLICT => drop(conflicts.insert(number)),
            NOT_PERMITTED => drop(refused.insert(number)),
            _ => panic!("{number}: {landed}"),
        }
    }
    (conflicts, refused)
}

/// Makes a file that all can write and that nobody should.
fn make_victim(scratch: &Path) -> PathBuf {
    let victim = scratch.join("victim");
    fs::write(&victim, "untouched").expect("written");
    fs::set_permissions(&victim, Permissions::from_mode(0o666)).expect("set");
    victim
}

struct Outcome {
    conflicts: BTreeSet<usize>,
    refused: BTreeSet<usize>,
    /// In which cells the command's calls failed.
    failed: BTreeSet<usize>,
    outside: Tree,
    after: Tree,
}

fn run_in(view: &str, trial: Trial, moment: Moment) -> Outcome {
    let actors = trial.actors;
    let fixture = actors.store();
    let scratch = fixture.scratch.path();
    let user = actors.in_transaction(scratch);
    trial.make(&fixture.base, scratch);
    let victim = make_victim(scratch);
    shell(scratch, "mkdir -m 1777 signs");
    let signs = scratch.join("signs");
    let options = ["run", "--view", view, "--on-success", "keep", "--"];
    let mut command = fixture.store.command_as(&user, options);
    let program = this_program("deeds_of_the_transaction");
    command
        .arg(program.get_program())
        .args(program.get_args())
        .env(SIGNS, &signs)
        .env(SEED, trial.seed.to_string())
        .env(ONE_IN, trial.one_in.to_string())
        .stdout(Stdio::null());
    if moment == Moment::Between {
        command.env(LOOKS_FIRST, "1");
    }
    let mut running = command.spawn().expect("it starts");
    wait_until("the transaction's steps", || {
        let has_ended = running.try_wait().expect("it can be waited for").is_some();
        signs.join("ready").exists() || has_ended
    });
    if moment != Moment::Late {
        trial.act_meanwhile(&fixture.base, scratch);
    }
    fs::write(signs.join("go"), "").expect("written");
    let status = running.wait().expect("it can be waited for");
    assert!(status.success(), "{view}: {status}");
    if moment == Moment::Late {
        trial.act_meanwhile(&fixture.base, scratch);
    }
    let outside = look(&fixture.base);
    let (conflicts, refused) = land_each(&fixture, &user, trial.cells().len());
    let after = look(&fixture.base);
    fixture.store.call(["abort", "--all", "--quiet"]).expect(0);
    fixture.store.call(["check"]).expect(0);
    // Before, a program that follows the name writes there by itself.
    if moment != Moment::Between {
        let found = fs::read_to_string(victim).expect("it is there");
        assert_eq!(found, "untouched", "{view}");
    }
    let failed = fs::read(signs.join("failed")).expect("it is there");
    Outcome {
        conflicts,
        refused,
        failed: serde_json::from_slice(&failed).expect("a list of numbers"),
        outside,
        after,
    }
}

/// The same in a plain directory: first the others, then the transaction's user.
fn plainly(trial: Trial) -> Tree {
    let scratch = Scratch::new("rights-plain");
    shell(scratch.path(), "mkdir -m 777 base base/cells");
    let base = scratch.join("base");
    trial.make(&base, scratch.path());
    make_victim(scratch.path());
    trial.act_meanwhile(&base, scratch.path());
    let user = trial.actors.in_transaction(scratch.path());
    as_user(user.uid, || drop(trial.act(&base)));
    look(&base)
}

/// A set-user-id program of root's with contents that are neither old nor the transaction's.
fn gained(outside: &Tree, after: &Tree) -> Option<String> {
    let mut gained = after.entries.iter().filter(|(path, now)| {
        let before = outside.entries.get(*path);
        let is_new = before.is_none_or(|before| (before.mode, before.user) != (now.mode, now.user));
        let Kind::File(contents) = &now.kind else {
            return false;
        };
        let known = [deed::OLD, deed::MINE].map(|text| text.len() as u64);
        is_new && now.user == 0 && now.mode & 0o4000 != 0 && !known.contains(&contents.length)
    });
    gained.next().map(|(path, _)| path.display().to_string())
}

/// What was made before its directory got a set-group-ID bit does not get the directory's group.
fn keeps_its_group(cell: &Cell) -> bool {
    let makes = [Deed::MakeIn, Deed::MakeDirectoryIn];
    cell.meanwhile == Meanwhile::DirectoryOfOtherGroup && makes.contains(&cell.deed)
}

/// A view may go on showing the modes that it has shown. The owner of the objects could set them back.
fn may_be_set_back(cell: &Cell) -> bool {
    matches!(cell.meanwhile, Meanwhile::Unwritable | Meanwhile::Closed)
}

fn compare_cell(
    (exact, found): (&Outcome, &Outcome),
    plain: &Tree,
    (number, cell, moment): (usize, &Cell, Moment),
) -> Option<(&'static str, String)> {
    let [outside, after] = [&found.outside, &found.after].map(|tree| tree_of(tree, number));
    let has_landed =
        |one: &Outcome| !one.conflicts.contains(&number) && !one.refused.contains(&number);
    let is_untouched = compare(&outside, &after, &CompareOptions::untouched());
    if !has_landed(found) {
        return (!is_untouched.is_empty()).then(|| ("touched", shown(&is_untouched)));
    }
    if let Some(gained) = gained(&outside, &after) {
        return Some(("gained", gained));
    }
    if moment != Moment::Between && !has_landed(exact) && !is_untouched.is_empty() {
        return Some(("looser than an exact view", shown(&is_untouched)));
    }
    // If calls failed, only a part of what was to be done has been done.
    let is_shown_as_before = moment == Moment::Between && may_be_set_back(cell);
    if found.failed.contains(&number) || keeps_its_group(cell) || is_shown_as_before {
        return None;
    }
    let plain = compare(&tree_of(plain, number), &after, &CompareOptions::alike());
    (!plain.is_empty() && !is_untouched.is_empty()).then(|| ("not as plainly", shown(&plain)))
}

fn shown(list: &[Difference]) -> String {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    list.join("; ")
}

#[track_caller]
fn check_rights(test: &str, actors: Actors) {
    if !users_can_mount(test) {
        return;
    }
    // `./test --full` tries more of them.
    let trial = Trial {
        actors,
        seed: Random::for_test(test).number(),
        one_in: pick(8, 1),
    };
    let plain = plainly(trial);
    let mut wrong: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for moment in [Moment::Between, Moment::After, Moment::Late] {
        let exact = run_in("exact", trial, moment);
        let others = ["native", "exclusive"].map(|view| (view, run_in(view, trial, moment)));
        let all = [("exact", &exact)].into_iter();
        for (view, found) in all.chain(others.iter().map(|(view, found)| (*view, found))) {
            for (number, cell) in trial.cells().iter().enumerate() {
                let why = compare_cell((&exact, found), &plain, (number, cell, moment));
                if let Some((kind, why)) = why {
                    let list = wrong
                        .entry(format!("{moment:?}, {view}: {kind}"))
                        .or_default();
                    list.push(format!("{cell:?}: {why}"));
                }
            }
        }
    }
    for (kind, list) in &wrong {
        println!("{kind}: {}\n  {}", list.len(), list.join("\n  "));
    }
    assert!(wrong.is_empty());
}

#[test]
fn owners_gain_no_right_that_root_has_taken() {
    check_rights(
        "owners_gain_no_right_that_root_has_taken",
        Actors::OwnerAndRoot,
    );
}

#[test]
fn strangers_gain_no_right_by_a_transaction_of_roots() {
    check_rights(
        "strangers_gain_no_right_by_a_transaction_of_roots",
        Actors::RootAndStranger,
    );
}
