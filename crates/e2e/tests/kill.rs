//! The service is killed at random instants; after recovery the base holds a
//! whole prefix of the commits, and every durable one that had returned.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use atomdir_testing::exit_code::NO_SUCH;
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal, compare};
use atomdir_testing::{Fixture, Random, Scratch, look, pick};

const FILES: u64 = 24;

/// Makes generation `number` out of the one before it: new contents, pages
/// overwritten in place, names that move on, a directory that comes and one
/// that goes, links, modes.
fn make_generation(root: &Path, number: u64) -> io::Result<()> {
    use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
    let text = format!("generation {number}\n");
    for file in 0..FILES {
        fs::write(
            root.join(format!("file{file}")),
            text.repeat(1 + file as usize * 10),
        )?;
    }
    let pages = fs::File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(root.join("pages"))?;
    pages.set_len(1 << 20)?;
    for page in 0..4 {
        pages.write_all_at(text.as_bytes(), (number * 7 + page * 64) % 256 * 4096)?;
    }
    let made = root.join(format!("dir{number}"));
    fs::create_dir(&made)?;
    fs::write(made.join("in"), &text)?;
    fs::hard_link(root.join("file0"), made.join("link"))?;
    symlink(&text, made.join("symlink"))?;
    if number > 0 {
        let before = root.join(format!("dir{}", number - 1));
        fs::rename(before.join("in"), made.join("from before"))?;
        fs::remove_file(before.join("link"))?;
        fs::rename(before, made.join("kept"))?;
        fs::remove_file(made.join("kept/symlink"))?;
        if number > 1 {
            fs::remove_dir_all(made.join("kept/kept"))?;
        }
        fs::rename(root.join("file1"), root.join("t"))?;
        fs::rename(root.join("file2"), root.join("file1"))?;
        fs::rename(root.join("t"), root.join("file2"))?;
    }
    let mode = if number.is_multiple_of(2) {
        0o600
    } else {
        0o644
    };
    fs::set_permissions(root.join("file3"), fs::Permissions::from_mode(mode))
}

/// The same, done plainly beside the store: what every generation looks like.
struct Expected {
    scratch: Scratch,
    trees: Vec<Tree>,
}

impl Expected {
    fn new() -> Self {
        let scratch = Scratch::new("generations");
        let trees = vec![look(scratch.path())];
        Self { scratch, trees }
    }

    /// Number 0 is the empty tree; number n is after n generations.
    fn tree(&mut self, number: usize) -> &Tree {
        while self.trees.len() <= number {
            let next = self.trees.len() as u64 - 1;
            make_generation(self.scratch.path(), next).expect("a plain directory takes it");
            self.trees.push(look(self.scratch.path()));
        }
        &self.trees[number]
    }
}

fn options() -> CompareOptions {
    CompareOptions::alike()
}

#[test]
fn killed_during_commits() {
    let mut random = Random::for_test("killed_during_commits");
    let fixture = Fixture::new("kill", "true");
    let store = &fixture.store;
    let mut expected = Expected::new();
    // Commits applied, commits that must survive.
    let (mut done, mut durable) = (0, 0);
    let mut killed_between = [0; 2];
    // What a commit takes, so that the instants lie within it.
    let mut commit_time = Duration::from_millis(20);
    for round in 0..pick(30, 200) {
        let lazy = random.chance(3);
        let view = store.begin_with(&["--durability", if lazy { "lazy" } else { "durable" }]);
        make_generation(&view.path, done as u64).expect("the view takes it");
        let started = Instant::now();
        let mut commit = store
            .command(["commit", &view.id])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let spared = random.chance(4);
        if !spared {
            std::thread::sleep(commit_time.mul_f64(random.below(1300) as f64 / 1000.0));
            store.kill_service();
        }
        let returned = commit.wait().expect("it ends").success();
        if spared {
            assert!(
                returned,
                "round {round}: a commit that nobody disturbed failed"
            );
            commit_time = (commit_time * 3 + started.elapsed()) / 4;
        }
        let last = done + 1;
        if returned && !lazy {
            durable = last;
        }
        if spared {
            done = last;
            continue;
        }
        if random.chance(5) {
            kill_recovery(&fixture, &mut random, commit_time);
        }
        store.call(["recover"]).expect(0);
        let found = fixture.look();
        done = (durable..=last)
            .rev()
            .find(|number| compare(expected.tree(*number), &found, &options()).is_empty())
            .unwrap_or_else(|| explain(&mut expected, &found, durable, last, round));
        // A recovered commit stays: it was synced along with the rest.
        durable = done;
        killed_between[usize::from(done == last)] += 1;
        store.call(["check"]).expect(0);
    }
    println!(
        "killed before the commit took hold: {}, after: {}",
        killed_between[0], killed_between[1]
    );
    store.assert_at_rest();
    assert_equal(
        "expected (left), at the end (right)",
        expected.tree(done),
        &fixture.look(),
        &options(),
    );
}

/// Recovery may be killed as well, and done again.
fn kill_recovery(fixture: &Fixture, random: &mut Random, commit_time: Duration) {
    let mut recovery = fixture
        .store
        .command(["recover"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    std::thread::sleep(commit_time.mul_f64(random.below(1000) as f64 / 1000.0));
    fixture.store.kill_service();
    recovery.wait().expect("it ends");
}

fn explain(
    expected: &mut Expected,
    found: &Tree,
    first: usize,
    last: usize,
    round: usize,
) -> usize {
    for number in first..=last {
        println!("not generation {number}:");
        for difference in compare(expected.tree(number), found, &options())
            .iter()
            .take(15)
        {
            println!("  {difference}");
        }
    }
    panic!("round {round}: after recovery the base is none of the generations {first} to {last}");
}

#[test]
fn a_killed_service_aborts_what_was_open_and_nothing_else() {
    let fixture = Fixture::new("kill-open", "echo old > file");
    let store = &fixture.store;
    store.run("echo committed > file").expect(0);
    let before = fixture.look();
    let view = store.begin();
    store
        .exec(&view, "echo lost > file; echo lost > new")
        .expect(0);
    let held = fs::File::open(view.path.join("file")).expect("opened");
    store.kill_service();
    assert!(
        fs::read(view.path.join("file")).is_err(),
        "a dead service's view answers with an error"
    );
    drop(held);
    store.call(["commit", &view.id]).expect(NO_SUCH);
    store.call(["status", &view.id]).expect(NO_SUCH);
    store.call(["abort", &view.id]).expect(NO_SUCH);
    assert_equal(
        "before (left) and after (right)",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    store
        .run("test $(cat file) = committed; test ! -e new; echo again > file")
        .expect(0);
    store.assert_at_rest();
    assert_eq!(
        fs::read_to_string(fixture.base.join("file")).expect("read"),
        "again\n"
    );
}

#[test]
fn a_run_whose_service_is_killed_fails_and_changes_nothing() {
    let fixture = Fixture::new("kill-run", "echo old > file");
    let store = &fixture.store;
    let before = fixture.look();
    let ready = fixture.scratch.join("ready");
    let script = format!(
        "echo new > file; : > {}; while cat file; do sleep 0.01; done",
        ready.display()
    );
    let outcome = std::thread::scope(|scope| {
        let running = scope.spawn(|| store.run_with(&["--on-error", "commit"], &script));
        while !ready.exists() && !running.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        store.kill_service();
        running.join().expect("the run did not panic")
    });
    assert_ne!(outcome.code, 0, "{outcome}");
    store.call(["recover"]).expect(0);
    assert_equal(
        "before (left) and after (right)",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    store.assert_at_rest();
}

#[test]
fn a_run_that_is_killed_itself_is_aborted() {
    let fixture = Fixture::new("kill-client", "echo old > file");
    let store = &fixture.store;
    let before = fixture.look();
    let (ready, go) = (fixture.scratch.join("ready"), fixture.scratch.join("go"));
    let script = format!(
        "echo new > file; echo $ATOMDIR_TX > {0}.part; mv {0}.part {0}
         while [ -e {0} ] && [ ! -e {1} ]; do sleep 0.01; done",
        ready.display(),
        go.display()
    );
    let mut run = store
        .command(["run", "--", "sh", "-ec", &script])
        .spawn()
        .expect("started");
    while !ready.exists() && run.try_wait().expect("asked").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    run.kill().expect("killed");
    run.wait().expect("ended");
    let id = fs::read_to_string(&ready).expect("the script had begun");
    // The service sees the connection close a moment later.
    while store.call(["status", id.trim()]).code == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    store.call(["status", id.trim()]).expect(NO_SUCH);
    assert_equal(
        "before (left) and after (right)",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    // The command outlived its run; it may end now, or when the files go.
    fs::write(&go, "").expect("written");
    store.assert_at_rest();
}

/// What comes after a commit counts as committed, also where the service dies
/// before its next checkpoint: recovery does not bring the commit's state back.
#[test]
fn outside_changes_stay_when_the_service_is_killed() {
    let fixture = Fixture::new("outside-after", "mkdir old; echo 1 > old/a; echo 1 > old/b");
    let store = &fixture.store;
    let script = "echo new > gone; mkdir made; echo new > made/gone; echo new > moved;
        echo new > replaced; echo new > changed; echo 2 > old/a; chmod 600 old/b; mv old kept";
    store.run(script).expect(0);
    atomdir_testing::shell(
        store.path(),
        "rm gone; rm -r made; mv moved elsewhere; echo outside > other; mv other replaced;
         echo outside > changed; echo outside > kept/a; chmod 640 kept/b; mv kept old",
    )
    .expect(0);
    let before = fixture.look();
    store.kill_service();
    store.call(["recover"]).expect(0);
    assert_equal("after recovery", &before, &fixture.look(), &options());
    // The same while a commit waits to be applied.
    store
        .run_with(&["--durability", "lazy"], "echo new > another")
        .expect(0);
    store.kill_service();
    store.call(["recover"]).expect(0);
    std::fs::remove_file(store.path().join("another")).ok();
    assert_equal("after another", &before, &fixture.look(), &options());
}
