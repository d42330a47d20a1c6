//! The service is killed before a commit is in the log, while the commit is applied,
//! and at random moments; after recovery the base holds a whole prefix of the commits,
//! and every durable one that had returned.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Stdio};

use atomdir_testing::exit_code::NO_SUCH;
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal, compare};
use atomdir_testing::{Fixture, Lease, Random, Scratch, Store, Waiting, look, pick, wait_until};

const FILES: u64 = 24;

/// Makes generation `number` out of the one before it: new contents, pages overwritten in
/// place, renames, a new directory and a removed one, links, modes.
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
    // The file is so long that a commit changes it in place instead of replacing it.
    pages.set_len(4 << 20)?;
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

/// What every generation looks like: the same changes in a plain directory beside the store.
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

/// When the service is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Never,
    /// The commit waits for a file on which the test holds a lease. The service never waits
    /// for a lease once the commit is in the log.
    BeforeTheLog,
    /// The base shows some of the commit, so the commit is in the log.
    WhileApplied,
    /// After so many looks at the base, which may be before or after the commit.
    Anywhere,
}

const MOMENTS: [Moment; 4] = [
    Moment::Never,
    Moment::BeforeTheLog,
    Moment::WhileApplied,
    Moment::Anywhere,
];

#[test]
fn killed_service_keeps_every_durable_commit() {
    let mut random = Random::for_test("killed_service_keeps_every_durable_commit");
    let fixture = Fixture::new("kill", "true");
    let store = &fixture.store;
    let mut expected = Expected::new();
    // How many commits are applied, and how many must survive.
    let (mut done, mut durable) = (0, 0);
    // How many looks fit into a commit that nobody disturbs.
    let mut looks = 100;
    for round in 0..pick(32, 200) {
        let moment = MOMENTS[round % MOMENTS.len()];
        if moment == Moment::BeforeTheLog {
            // A lease is impossible while the service has the file open for writing.
            store.call(["service", "stop", "--abort"]).expect(0);
            durable = done;
        }
        let lazy = random.chance(3);
        let view = store.begin_with(&["--durability", if lazy { "lazy" } else { "durable" }]);
        make_generation(&view.path, done as u64).expect("the view takes it");
        let lease = (moment == Moment::BeforeTheLog && done > 0)
            .then(|| Lease::on(&fixture.base.join("pages")));
        let mut commit = start(store, &["commit", &view.id]);
        match (moment, &lease) {
            (Moment::Never, _) => looks = look_while(&mut commit, usize::MAX, &fixture),
            (_, Some(lease)) => wait_for(|| lease.is_in_the_way(), &mut commit),
            (Moment::WhileApplied, _) => wait_until_shown(&fixture, done, &mut random, &mut commit),
            _ => drop(look_while(
                &mut commit,
                random.below(looks * 5 / 4 + 1),
                &fixture,
            )),
        }
        if moment != Moment::Never {
            store.kill_service();
        }
        drop(lease);
        let returned = commit.wait().expect("it ends").success();
        let last = done + 1;
        if returned && !lazy {
            durable = last;
        }
        if moment == Moment::Never {
            assert!(
                returned,
                "round {round}: a commit that nobody disturbed failed"
            );
            done = last;
            continue;
        }
        if random.chance(5) {
            kill_recovery(&fixture, &mut random, looks);
        }
        store.call(["recover"]).expect(0);
        // If the kill came before the command's request, the command has started another service,
        // which has opened the transaction again. Its lazy commit may not be in the base yet.
        store.call(["sync"]).expect(0);
        let found = fixture.look();
        let before = done;
        done = (durable..=last)
            .rev()
            .find(|number| compare(expected.tree(*number), &found, &options()).is_empty())
            .unwrap_or_else(|| explain(&mut expected, &found, durable, last, round));
        match moment {
            Moment::BeforeTheLog if before > 0 => assert_eq!(done, before, "round {round}"),
            Moment::WhileApplied => assert_eq!(done, last, "round {round}"),
            _ => {}
        }
        // A recovered commit stays, since recovery synced it with the rest.
        durable = done;
        store.call(["check"]).expect(0);
    }
    store.assert_at_rest();
    assert_equal(
        "expected (left), at the end (right)",
        expected.tree(done),
        &fixture.look(),
        &options(),
    );
}

fn start(store: &Store, arguments: &[&str]) -> Child {
    let mut command = store.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("started")
}

/// Looks at the base `times` times, or until the command ends. Returns how often.
fn look_while(command: &mut Child, times: usize, fixture: &Fixture) -> usize {
    let goes_on = |_: &usize| command.try_wait().expect("asked").is_none();
    let looks = (0..times).take_while(goes_on);
    looks
        .inspect(|_| drop(fs::metadata(fixture.base.join("file0"))))
        .count()
}

/// Waits until one of the changes of generation `number` shows in the base.
fn wait_until_shown(fixture: &Fixture, number: usize, random: &mut Random, commit: &mut Child) {
    let base = &fixture.base;
    let made = base.join(format!("dir{number}"));
    let rewritten = base.join(format!("file{}", 4 + random.below(FILES as usize - 4)));
    let first_line = format!("generation {number}\n");
    let is_shown = || match random.below(2) {
        0 => made.exists(),
        _ => fs::read(&rewritten).is_ok_and(|text| text.starts_with(first_line.as_bytes())),
    };
    wait_for(is_shown, commit);
}

/// Waits until something has happened, unless the command fails before.
fn wait_for(mut has_happened: impl FnMut() -> bool, command: &mut Child) {
    wait_until("the moment of the commit", || {
        let ended = command.try_wait().expect("asked");
        assert!(
            ended.is_none_or(|status| status.success()),
            "the commit failed"
        );
        has_happened()
    });
}

/// Starts recovery and kills it. A later recovery must succeed all the same.
fn kill_recovery(fixture: &Fixture, random: &mut Random, looks: usize) {
    let mut recovery = start(&fixture.store, &["recover"]);
    look_while(&mut recovery, random.below(looks + 1), fixture);
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
fn killed_service_loses_only_transactions_that_do_not_survive() {
    let fixture = Fixture::new("kill-open", "echo old > file");
    let store = &fixture.store;
    store.run("echo committed > file").expect(0);
    let before = fixture.look();
    // Its read set is in the service's memory only.
    let view = store.begin_with(&["--isolation", "serializable"]);
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
    let options = ["--on-error", "commit"];
    let kill = || assert!(store.kill_service());
    let outcome = fixture.run_and_meanwhile(&options, "echo new > file", kill);
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
fn killing_a_run_aborts_its_transaction() {
    let fixture = Fixture::new("kill-client", "echo old > file");
    let store = &fixture.store;
    let before = fixture.look();
    let mut run = Waiting::start(store, &["run"], "echo new > file; echo $ATOMDIR_TX", "true");
    run.kill();
    // The service sees the connection close a moment later.
    wait_until("the abort", || store.call(["status", &run.said]).code != 0);
    store.call(["status", &run.said]).expect(NO_SUCH);
    assert_equal(
        "before (left) and after (right)",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    // The command has outlived its run.
    run.let_go();
    store.assert_at_rest();
}

/// Outside changes after a commit stay, even if the service dies before its next
/// checkpoint: recovery does not restore the commit's state over them.
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

/// The service waits for its mounts by a child process.
#[test]
fn killed_child_of_the_service_is_replaced() {
    Fixture::for_each_view("kill-child", "echo 0 > file", |fixture, view| {
        let open = fixture.store.begin();
        for round in 1..4 {
            let script = format!("echo {round} > file");
            // Before the begin, and while a transaction is open.
            assert!(fixture.store.kill_barrier_processes());
            fixture.store.run_with(&["--view", view], &script).expect(0);
            let committed = fs::read_to_string(fixture.base.join("file")).expect("it is there");
            assert_eq!(committed, format!("{round}\n"));
        }
        assert!(fixture.store.kill_barrier_processes());
        fixture.store.exec(&open, "echo last > other").expect(0);
        assert!(fixture.store.kill_barrier_processes());
        fixture.store.commit(&open).expect(0);
        assert!(fixture.base.join("other").exists());
    });
}
