//! Random sequences of calls, most of them renames, in several transactions at once. Each
//! writer owns a directory of the store, and a plain directory beside it, the model, takes
//! the same calls. Every call must give the same result in both. The trees must be the
//! same, in the view at any time and in the base after a commit. A view must not show what
//! others commit meanwhile.

#[path = "model/operation.rs"]
mod operation;

use std::fs;
use std::path::{Path, PathBuf};

use atomdir_testing::tree::{CompareOptions, Moment, Times, Tree, assert_equal};
use atomdir_testing::{Fixture, Random, View, copy_tree, look, moment_now, pick};
use operation::Operation;

const WRITERS: usize = 3;
const CALLS_MAX: usize = 60;

struct Writer {
    /// The name of its own directory in the store.
    name: String,
    /// The plain directory that holds a directory of the same name.
    mirror: PathBuf,
    open: Option<Open>,
}

struct Open {
    view: View,
    /// The base when the transaction began.
    snapshot: Tree,
}

struct Model {
    fixture: Fixture,
    writers: Vec<Writer>,
    start: Moment,
    trace: Vec<String>,
}

impl Model {
    fn new() -> Self {
        let names: Vec<String> = (0..WRITERS).map(|number| format!("w{number}")).collect();
        let fixture = Fixture::new("model", &format!("mkdir {}", names.join(" ")));
        let writers = names
            .into_iter()
            .map(|name| {
                let mirror = fixture.scratch.join(format!("mirror-{name}"));
                fs::create_dir(&mirror).expect("made");
                copy_tree(&fixture.base.join(&name), &mirror.join(&name));
                Writer {
                    name,
                    mirror,
                    open: None,
                }
            })
            .collect();
        let start = moment_now(fixture.scratch.path());
        Self {
            fixture,
            writers,
            start,
            trace: Vec::new(),
        }
    }

    /// Objects that both sides changed have two different times. Objects whose time was set
    /// have that time on both sides.
    fn options(&self) -> CompareOptions {
        let times = Times::Since {
            left: self.start,
            right: self.start,
        };
        CompareOptions {
            file_times: times,
            directory_times: times,
            root: false,
            ..CompareOptions::alike()
        }
    }

    fn step(&mut self, random: &mut Random) {
        let index = random.below(WRITERS);
        if self.writers[index].open.is_none() {
            self.begin(index);
        }
        self.operate(index, random);
        self.check_view(index);
        match random.below(5) {
            0 | 1 => self.commit(index),
            2 => self.abort(index),
            _ => {}
        }
    }

    fn begin(&mut self, index: usize) {
        let view = self.fixture.store.begin();
        let snapshot = self.fixture.look();
        let writer = &mut self.writers[index];
        self.trace
            .push(format!("{}: begin {}", writer.name, view.id));
        writer.open = Some(Open { view, snapshot });
    }

    fn operate(&mut self, index: usize, random: &mut Random) {
        let writer = &self.writers[index];
        let open = writer.open.as_ref().expect("begun");
        for _ in 0..random.below(CALLS_MAX) {
            let operation = Operation::random(random, &writer.name);
            let plain = operation.apply(&writer.mirror);
            let inside = operation.apply(&open.view.path);
            if plain.is_ok() || plain != inside {
                self.trace.push(format!("{}: {operation:?}", writer.name));
            }
            if plain != inside {
                self.fail(&format!(
                    "{operation:?} gives {plain:?} plainly, {inside:?} in the view"
                ));
            }
        }
    }

    /// The view must show its own directory as the mirror has it, and the others as they were
    /// at the begin.
    fn check_view(&self, index: usize) {
        let writer = &self.writers[index];
        let open = writer.open.as_ref().expect("begun");
        let view = look(&open.view.path);
        self.check(
            "mirror (left) and view (right)",
            &look(&writer.mirror),
            &below(&view, &writer.name),
            &self.options(),
        );
        let others = |tree: &Tree| without(tree, &writer.name);
        let options = CompareOptions {
            root: false,
            ..CompareOptions::copied()
        };
        self.check(
            "snapshot (left) and view (right)",
            &others(&open.snapshot),
            &others(&view),
            &options,
        );
    }

    fn commit(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        let open = writer.open.take().expect("begun");
        self.trace
            .push(format!("{}: commit {}", writer.name, open.view.id));
        let before = self.fixture.look();
        let outcome = self.fixture.store.commit(&open.view);
        if outcome.code != 0 {
            self.fail(&outcome.to_string());
        }
        let writer = &self.writers[index];
        let after = self.fixture.look();
        self.check(
            "mirror (left) and base after its commit (right)",
            &look(&writer.mirror),
            &below(&after, &writer.name),
            &self.options(),
        );
        let options = CompareOptions {
            root: false,
            ..CompareOptions::untouched()
        };
        self.check(
            "others before (left) and after (right) a commit",
            &without(&before, &writer.name),
            &without(&after, &writer.name),
            &options,
        );
    }

    fn abort(&mut self, index: usize) {
        let writer = &mut self.writers[index];
        let open = writer.open.take().expect("begun");
        self.trace
            .push(format!("{}: abort {}", writer.name, open.view.id));
        let before = self.fixture.look();
        self.fixture.store.abort(&open.view).expect(0);
        let options = CompareOptions {
            root: false,
            ..CompareOptions::untouched()
        };
        self.check(
            "before (left) and after (right) an abort",
            &before,
            &self.fixture.look(),
            &options,
        );
        let writer = &self.writers[index];
        let (mirror, base) = (
            writer.mirror.join(&writer.name),
            self.fixture.base.join(&writer.name),
        );
        fs::remove_dir_all(&mirror).expect("removed");
        copy_tree(&base, &mirror);
    }

    fn check_at_rest(&self) {
        let base = self.fixture.look();
        for writer in &self.writers {
            let what = "mirror (left) and base at the end (right)";
            self.check(
                what,
                &look(&writer.mirror),
                &below(&base, &writer.name),
                &self.options(),
            );
        }
    }

    /// Killing the service leaves the base as it is. Open transactions survive and are aborted.
    fn crash(&mut self) {
        self.trace.push("kill the service".to_owned());
        let before = self.fixture.look();
        self.fixture.store.kill_service();
        self.fixture.store.call(["recover"]).expect(0);
        self.fixture.store.call(["abort", "--all"]).expect(0);
        // Recovery applies commits again, so directories that they changed have the times of
        // the commits or of the recovery.
        let options = CompareOptions {
            inodes: true,
            holes: true,
            ..self.options()
        };
        self.check(
            "before (left) and after (right) a crash",
            &before,
            &self.fixture.look(),
            &options,
        );
        for index in 0..WRITERS {
            let writer = &mut self.writers[index];
            writer.open = None;
            let mirror = writer.mirror.join(&writer.name);
            fs::remove_dir_all(&mirror).expect("removed");
            copy_tree(&self.fixture.base.join(&writer.name), &mirror);
        }
    }

    #[track_caller]
    fn check(&self, what: &str, left: &Tree, right: &Tree, options: &CompareOptions) {
        if !atomdir_testing::tree::compare(left, right, options).is_empty() {
            self.show_trace();
            assert_equal(what, left, right, options);
        }
    }

    fn fail(&self, what: &str) -> ! {
        self.show_trace();
        panic!("{what}");
    }

    fn show_trace(&self) {
        for line in &self.trace {
            println!("{line}");
        }
    }
}

/// The part of the tree at and below one of its top directories.
fn below(tree: &Tree, name: &str) -> Tree {
    let mut tree = tree.clone();
    tree.entries.retain(|path, _| path.starts_with(name));
    tree
}

fn without(tree: &Tree, name: &str) -> Tree {
    let mut tree = tree.clone();
    tree.entries
        .retain(|path, _| !path.starts_with(name) && path != Path::new(""));
    tree
}

#[test]
fn random_calls_do_the_same_in_views_as_in_plain_directories() {
    let mut random = Random::for_test("--test model");
    let mut model = Model::new();
    for _ in 0..pick(80, 600) {
        model.step(&mut random);
        if random.chance(40) {
            model.crash();
        }
    }
    for index in 0..WRITERS {
        if model.writers[index].open.is_some() {
            model.check_view(index);
            model.commit(index);
        }
    }
    model.fixture.store.call(["check"]).expect(0);
    model.fixture.store.assert_at_rest();
    model.check_at_rest();
}
