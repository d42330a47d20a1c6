//! The harness. It checks that a program inside a transaction leaves the same result as
//! outside, and no trace at all if the transaction aborts.
//!
//! Both runs use the same path, one after the other, and start from copies of the same
//! tree. So programs that write their own path into files leave the same result.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use crate::command::{Outcome, capture_output};
use crate::fixture::{Owner, for_each_owner, look};
use crate::scratch::Scratch;
use crate::store::Store;
use crate::tier::full_tier;
use crate::tree::{CompareOptions, Moment, Times, Tree, assert_equal};
use crate::user::User;
use crate::wait_until::wait_for;

/// What a scenario does in the directory.
pub enum Action {
    /// A script for `sh -ec`, run in the view bound over the store's own path.
    Shell(String),
    /// A program and its arguments, run in the same way.
    Program(Vec<String>),
    /// Code of the test itself. It gets the directory to work in: outside, the store's own;
    /// inside, a view's path.
    Code(Box<dyn Fn(&Path)>),
}

pub struct Scenario {
    name: String,
    prepare: Vec<Action>,
    action: Action,
    explicit_times: bool,
    holes: bool,
    same_output: bool,
    owner: Owner,
    exit_code: i32,
    directory_times: bool,
    without: Vec<PathBuf>,
    views: Option<&'static [&'static str]>,
    afterwards: Option<Action>,
    runs_long: bool,
}

impl Scenario {
    pub fn shell(name: &str, script: &str) -> Self {
        Self::new(name, Action::Shell(script.to_owned()))
    }

    pub fn program(name: &str, arguments: &[&str]) -> Self {
        Self::new(
            name,
            Action::Program(arguments.iter().map(|&text| text.to_owned()).collect()),
        )
    }

    pub fn code(name: &str, code: impl Fn(&Path) + 'static) -> Self {
        Self::new(name, Action::Code(Box::new(code)))
    }

    pub fn new(name: &str, action: Action) -> Self {
        Self {
            name: name.to_owned(),
            prepare: Vec::new(),
            action,
            explicit_times: false,
            holes: false,
            same_output: false,
            owner: User::root,
            exit_code: 0,
            directory_times: true,
            without: Vec::new(),
            views: None,
            afterwards: None,
            runs_long: false,
        }
    }

    /// Makes the tree that both runs start from.
    pub fn prepare(self, script: &str) -> Self {
        self.prepare_by(Action::Shell(script.to_owned()))
    }

    pub fn prepare_by(mut self, action: Action) -> Self {
        self.prepare.push(action);
        self
    }

    /// The scenario sets every modification time that it leaves behind, so all must be the
    /// same to the nanosecond.
    pub fn explicit_times(mut self) -> Self {
        self.explicit_times = true;
        self
    }

    /// Holes must be at the same places as outside.
    pub fn holes(mut self) -> Self {
        self.holes = true;
        self
    }

    /// Standard output must be the same inside and outside.
    pub fn same_output(mut self) -> Self {
        self.same_output = true;
        self
    }

    /// Runs everything as this user with a store of their own. The default is root.
    pub fn owned_by(mut self, owner: Owner) -> Self {
        self.owner = owner;
        self
    }

    pub fn as_ordinary_user(self) -> Self {
        self.owned_by(User::ordinary)
    }

    /// The command ends with this code, and its changes are committed all the same.
    pub fn exit_code(mut self, code: i32) -> Self {
        self.exit_code = code;
        self
    }

    /// Runs in these kinds of view in every tier. The default is the kind that `run` takes
    /// by itself and, in the full tier, also an exact view.
    pub fn in_views(mut self, kinds: &'static [&'static str]) -> Self {
        self.views = Some(kinds);
        self
    }

    pub fn exact(self) -> Self {
        self.in_views(&["exact"])
    }

    pub fn without_directory_times(mut self) -> Self {
        self.directory_times = false;
        self
    }

    /// Leaves out a path that differs between two runs even outside. Say why where you call
    /// this.
    pub fn without(mut self, path: &str) -> Self {
        self.without.push(path.into());
        self
    }

    /// Once the trees have been compared, this script runs outside, in the plain run's tree and
    /// in the committed one. It must succeed and print the same.
    pub fn afterwards(mut self, script: &str) -> Self {
        self.afterwards = Some(Action::Shell(script.to_owned()));
        self
    }

    /// The program runs long. Only the full tier runs it in a transaction that is aborted as well, where
    /// it does what shorter programs do.
    pub fn runs_long(mut self) -> Self {
        self.runs_long = true;
        self
    }

    /// Runs the scenario, and panics if the guarantee does not hold.
    #[track_caller]
    pub fn check(&self) {
        self.check_as(self.owner);
    }

    /// Like [`Scenario::check`], as root and as an ordinary user with a store of their own.
    #[track_caller]
    pub fn check_for_each_owner(&self) {
        for_each_owner(&self.name, |owner| self.check_as(owner));
    }

    #[track_caller]
    fn check_as(&self, owner: Owner) {
        let by_code = matches!(self.action, Action::Code(_));
        let scratch = Scratch::new(&self.name);
        let user = owner(scratch.path());
        assert!(
            user.is_root() || !by_code,
            "the test is root, and a user's view is theirs alone"
        );
        let base = scratch.join("base");
        let pristine = self.pristine(&scratch, &user, &base);

        let left_start = moment_now(scratch.path());
        let plain_outcome = self.run_plain(&base, &user);
        let plain = self.capture(&base);
        let afterwards = self.run_afterwards(&base, &user);
        fs::remove_dir_all(&base).expect("the plain run's tree can be removed");

        let outside = Outside {
            start: left_start,
            tree: plain,
            outcome: plain_outcome,
            afterwards,
        };
        let kinds = match self.views {
            Some(kinds) => kinds,
            // Code of the test itself works in a view of `begin`, which is exact.
            None if by_code => &["exact"],
            None if full_tier() => &["auto", "exact"],
            None => &["auto"],
        };
        for kind in kinds {
            copy_tree(&pristine, &base);
            let store = Store::init(&base, &user);
            // Making the control directory changed the time of the base.
            copy_times(&pristine, &base);
            if full_tier() || !self.runs_long {
                self.check_abort(&store, kind);
            }
            self.check_commit(&store, kind, &outside);
            drop(store);
            fs::remove_dir_all(&base).expect("the store can be removed");
        }
    }

    #[track_caller]
    fn check_commit(&self, store: &Store, kind: &str, outside: &Outside) {
        let right_start = moment_now(store.path().parent().expect("in the scratch directory"));
        let outcome = self.run_inside(store, kind, "commit");
        let plain_outcome = &outside.outcome;
        if let (Some(plain), Some(inside), true) = (plain_outcome, &outcome, self.same_output) {
            assert_eq!(
                plain.text(),
                inside.text(),
                "standard output differs inside the transaction"
            );
        }
        store.assert_at_rest();
        let times = if self.explicit_times {
            Times::Exact
        } else {
            Times::Since {
                left: outside.start,
                right: right_start,
            }
        };
        let options = CompareOptions {
            file_times: times,
            directory_times: if self.directory_times {
                times
            } else {
                Times::Ignored
            },
            holes: self.holes,
            ..CompareOptions::alike()
        };
        let what = format!(
            "{} as {}: plain run (left) and committed transaction in a view of kind {kind} (right)",
            self.name,
            store.user().name
        );
        assert_equal(&what, &outside.tree, &self.capture(store.path()), &options);
        let afterwards = self.run_afterwards(store.path(), store.user());
        assert_eq!(
            outside.afterwards, afterwards,
            "{what}: what runs afterwards"
        );
    }

    #[track_caller]
    fn run_afterwards(&self, base: &Path, user: &User) -> Option<String> {
        let outcome = run_action(self.afterwards.as_ref()?, base, user, 0);
        outcome.map(|outcome| outcome.text())
    }

    /// Makes the starting tree at the base's own path, since its files may contain that
    /// path, and keeps a copy of it elsewhere.
    fn pristine(&self, scratch: &Scratch, user: &User, base: &Path) -> PathBuf {
        fs::create_dir(base).expect("the base can be made");
        std::os::unix::fs::chown(base, Some(user.uid), Some(user.gid))
            .expect("the base can be given away");
        for action in &self.prepare {
            run_action(action, base, user, 0);
        }
        let pristine = scratch.join("pristine");
        copy_tree(base, &pristine);
        pristine
    }

    fn run_plain(&self, base: &Path, user: &User) -> Option<Outcome> {
        run_action(&self.action, base, user, self.exit_code)
    }

    #[track_caller]
    fn check_abort(&self, store: &Store, kind: &str) {
        let before = self.capture(store.path());
        self.run_inside(store, kind, "abort");
        store.assert_at_rest();
        let what = format!(
            "{} as {}: before (left) and after (right) an aborted transaction in a view of kind {kind}",
            self.name,
            store.user().name
        );
        assert_equal(
            &what,
            &before,
            &self.capture(store.path()),
            &CompareOptions::untouched(),
        );
    }

    #[track_caller]
    fn run_inside(&self, store: &Store, kind: &str, end: &str) -> Option<Outcome> {
        let command: Vec<String> = match &self.action {
            Action::Shell(script) => ["/bin/sh", "-ec", script].map(str::to_owned).to_vec(),
            Action::Program(arguments) => arguments.clone(),
            Action::Code(code) => {
                let view = store.begin();
                code(&view.path);
                store.call([end, &view.id]).expect(0);
                return None;
            }
        };
        let options = [
            "run",
            "--view",
            kind,
            "--on-success",
            end,
            "--on-error",
            end,
            "--",
        ];
        let options = options.map(str::to_owned);
        Some(
            store
                .call(options.iter().chain(&command))
                .expect(self.exit_code),
        )
    }

    fn capture(&self, base: &Path) -> Tree {
        let mut tree = look(base);
        tree.entries
            .retain(|path, _| !self.without.iter().any(|out| path.starts_with(out)));
        tree
    }
}

/// The result of the plain run.
struct Outside {
    start: Moment,
    tree: Tree,
    outcome: Option<Outcome>,
    afterwards: Option<String>,
}

#[track_caller]
fn run_action(action: &Action, directory: &Path, user: &User, code: i32) -> Option<Outcome> {
    let mut command = match action {
        Action::Code(code) => {
            code(directory);
            return None;
        }
        Action::Shell(script) => {
            let mut command = Command::new("/bin/sh");
            command.arg("-ec").arg(script);
            command
        }
        Action::Program(arguments) => {
            let (program, arguments) = arguments.split_first().expect("a program is named");
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
    };
    user.dress(&mut command);
    Some(capture_output(command.current_dir(directory)).expect(code))
}

/// Makes a faithful copy: the comparer sees no difference except inode numbers.
#[track_caller]
pub fn copy_tree(from: &Path, to: &Path) {
    capture_output(Command::new("cp").arg("-aT").arg(from).arg(to)).expect(0);
}

fn copy_times(from: &Path, to: &Path) {
    let metadata = fs::metadata(from).expect("the copy's origin is there");
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: metadata.atime(),
            tv_nsec: metadata.atime_nsec(),
        },
        last_modification: Timespec {
            tv_sec: metadata.mtime(),
            tv_nsec: metadata.mtime_nsec(),
        },
    };
    rustix::fs::utimensat(CWD, to, &times, AtFlags::empty()).expect("the base's times can be set");
}

/// The present time on the clock from which this file system takes its times. Everything written
/// before has an earlier time, even if that clock ticks slowly.
pub fn moment_now(directory: &Path) -> Moment {
    let probe = directory.join("clock-probe");
    let touch = || {
        fs::write(&probe, "x").expect("the scratch directory can be written");
        let metadata = fs::metadata(&probe).expect("the probe is there");
        (metadata.mtime(), metadata.mtime_nsec())
    };
    let first = touch();
    let moved = || Some(touch()).filter(|time| *time != first);
    let (seconds, nanoseconds) = wait_for("a tick of the file system's clock", moved);
    fs::remove_file(&probe).expect("the probe can be removed");
    Moment {
        seconds,
        nanoseconds: u32::try_from(nanoseconds).expect("nanoseconds are below 10^9"),
    }
}
