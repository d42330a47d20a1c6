//! Mistakes of users. The exit code must be the documented one, the message must name the path
//! and what to do, and the base must be unchanged.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Stdio};

use atomdir_testing::exit_code::{CANNOT_CREATE, NO_SUCH, USAGE};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Lease, Random, Scratch, Store, User, View, atomdir, pick, shell, wait_until,
};

fn text(path: &Path) -> &str {
    path.to_str().expect("a test's path is text")
}

#[test]
fn usage_errors_have_their_exit_code_and_a_message() {
    let fixture = Fixture::new("usage", "true");
    for arguments in [
        &["frobnicate"] as &[&str],
        &["run"],
        &["run", "--isolation", "none", "--", "true"],
        &["run", "--retry", "many", "--", "true"],
        &["exec"],
        &["commit", "1", "2"],
        &["--no-such-option"],
    ] {
        let outcome = fixture.store.call(arguments).expect(USAGE);
        assert!(!outcome.stderr.is_empty(), "{outcome}");
    }
    fixture.store.call(["--help"]).expect(0);
    fixture.store.call(["--version"]).expect(0);
}

#[test]
fn commands_that_only_a_shell_knows_get_a_hint() {
    let fixture = Fixture::new("shell-words", "mkdir d");
    for (command, hint) in [
        (&["echo a; echo b"] as &[&str], "`sh -c 'LINE'`"),
        (&["cd", "d"], "`atomdir -C DIR run -- COMMAND`"),
        (&["source", "d"], "`sh -c 'source ...'`"),
    ] {
        let arguments = [&["run", "--"], command].concat();
        fixture.store.call(arguments).expect(127).says(&[hint]);
    }
}

/// Ids of transactions and numbers of commits look alike.
#[test]
fn diff_of_a_commits_number_names_the_command_that_shows_the_commit() {
    let fixture = Fixture::new("diff-of-commit", "echo 1 > a");
    fixture.store.run("true").expect(0);
    fixture.store.run("echo 2 > a").expect(0);
    let transaction_2 = "transaction 2 is no longer open: it was committed as 1";
    let diff = |number: &str| fixture.store.call(["diff", number]).expect(NO_SUCH);
    diff("1").says(&["for commit 1: `atomdir show 1 --patch`"]);
    let outcome = diff("2").says(&[transaction_2, "`atomdir show 1` shows"]);
    assert!(!outcome.error_text().contains("for commit 2"), "{outcome}");
}

#[test]
fn verbs_refuse_a_directory_that_is_no_store() {
    let scratch = Scratch::new("not-a-store");
    let plain = scratch.join("plain");
    fs::create_dir(&plain).expect("made");
    for verb in [
        &["run", "--", "true"] as &[&str],
        &["begin"],
        &["list"],
        &["log"],
        &["recover"],
        &["check"],
        &["commit", "1"],
    ] {
        let mut arguments = vec!["-C", text(&plain)];
        arguments.extend(verb);
        atomdir(&scratch, &arguments)
            .expect(NO_SUCH)
            .says(&[text(&plain), "init"]);
    }
    assert_eq!(fs::read_dir(&plain).expect("listed").count(), 0);
    let missing = scratch.join("missing");
    let outcome = atomdir(&scratch, ["-C", text(&missing), "list"]);
    outcome.expect_one_of(&[NO_SUCH]).says(&[text(&missing)]);
}

#[test]
fn init_refuses_what_cannot_be_a_store() {
    let fixture = Fixture::new("init", "mkdir -p below/further; echo x > file");
    let scratch = &fixture.scratch;
    let below = fixture.base.join("below");
    atomdir(scratch, ["init", text(&below)])
        .expect(CANNOT_CREATE)
        .says(&[text(&fixture.base)]);
    assert!(!below.join(".atomdir").exists());
    atomdir(scratch, ["init", text(scratch.path())])
        .expect(CANNOT_CREATE)
        .says(&[text(&fixture.base)]);
    assert!(!scratch.join(".atomdir").exists());
    let missing = scratch.join("missing");
    atomdir(scratch, ["init", text(&missing)])
        .expect_one_of(&[NO_SUCH, CANNOT_CREATE])
        .says(&[text(&missing)]);
    let file = scratch.join("file");
    fs::write(&file, "").expect("written");
    atomdir(scratch, ["init", text(&file)])
        .expect_one_of(&[NO_SUCH, CANNOT_CREATE])
        .says(&[text(&file)]);
    // Doing it again is harmless, even with commits in the log.
    fixture.store.run("echo y > file").expect(0);
    atomdir(scratch, ["init", text(&fixture.base)]).expect(0);
    fixture.store.run("test $(cat file) = y").expect(0);
    fixture.store.assert_at_rest();
}

#[test]
fn control_directory_may_be_elsewhere_on_the_same_file_system() {
    let scratch = Scratch::new("control");
    let base = scratch.join("base");
    fs::create_dir(&base).expect("made");
    let elsewhere = scratch.join("tmpfs");
    fs::create_dir(&elsewhere).expect("made");
    shell(scratch.path(), "mount -t tmpfs none tmpfs");
    let far = elsewhere.join("control");
    atomdir(&scratch, ["init", text(&base), "--control", text(&far)])
        .expect(CANNOT_CREATE)
        .says(&[text(&far), "file system"]);
    assert_eq!(
        fs::read_dir(&base).expect("listed").count(),
        0,
        "nothing is left of the attempt"
    );
    let near = scratch.join("control");
    atomdir(&scratch, ["init", text(&base), "--control", text(&near)]).expect(0);
    let store = Store::existing(&base, &User::root(scratch.path()));
    store.run("test ! -e .atomdir; echo new > file").expect(0);
    store.kill_service();
    store
        .run("test $(cat file) = new; echo newer > file")
        .expect(0);
    store.call(["service", "stop", "--abort"]).expect(0);
    assert_eq!(
        fs::read_to_string(base.join("file")).expect("read"),
        "newer\n"
    );
}

#[test]
fn unknown_and_ended_transactions_are_refused() {
    let fixture = Fixture::new("ids", "true");
    let store = &fixture.store;
    let (committed, aborted) = (store.begin(), store.begin());
    store.exec(&committed, "echo new > file").expect(0);
    store.commit(&committed).expect(0);
    store.abort(&aborted).expect(0);
    for id in [committed.id.as_str(), aborted.id.as_str(), "424242"] {
        for verb in ["commit", "abort", "status", "diff"] {
            store.call([verb, id]).expect(NO_SUCH).says(&[id]);
        }
        store
            .call(["exec", id, "--", "true"])
            .expect(NO_SUCH)
            .says(&[id]);
    }
    store
        .call(["show", "424242"])
        .expect(NO_SUCH)
        .says(&["424242"]);
    assert!(
        fs::read_dir(&committed.path).is_err(),
        "an ended transaction's view is gone"
    );
    store.assert_at_rest();
}

#[test]
fn commands_exit_code_is_returned() {
    let fixture = Fixture::new("codes", "echo old > file");
    let store = &fixture.store;
    let before = fixture.look();
    store.run("echo new > file; exit 3").expect(3);
    store.run("echo new > file; kill -KILL $$").expect(137);
    let outcome = store.call(["run", "--", "/no/such/program"]).expect(127);
    outcome.says(&["/no/such/program"]);
    store.call(["run", "--", text(&fixture.base)]).expect(126);
    store.run_with(&["--dry-run"], "echo new > file").expect(0);
    store
        .run_with(&["--on-success", "abort"], "echo new > file")
        .expect(0);
    store
        .run_with(&["--timeout", "0.2"], "echo new > file; sleep 1000")
        .expect(124);
    store.assert_at_rest();
    assert_equal(
        "before and after",
        &before,
        &fixture.look(),
        &CompareOptions::untouched(),
    );
    store
        .run_with(&["--on-error", "commit"], "echo new > file; exit 9")
        .expect(9);
    assert_eq!(
        fs::read_to_string(fixture.base.join("file")).expect("read"),
        "new\n"
    );
    store.assert_at_rest();
    store
        .run_with(
            &["--timeout", "0.2", "--on-error", "keep"],
            "echo newer > file; sleep 1000",
        )
        .expect(124)
        .says(&["stays open"]);
    store.call(["commit"]).expect(0);
    store.assert_at_rest();
}

/// Which of the two comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// The commit waits for a lease, so it is not in the log yet.
    Abort,
    /// The base shows the commit, so it is in the log.
    Commit,
    /// The abort starts after so many looks at the commit.
    Either,
}

const FIRST: [First; 3] = [First::Abort, First::Commit, First::Either];

/// So long that a commit changes it in place instead of replacing it.
const LENGTH: usize = 2 << 20;

#[test]
fn concurrent_abort_and_commit_agree() {
    let mut random = Random::for_test("concurrent_abort_and_commit_agree");
    let fixture = Fixture::new("abort-commit", &format!("truncate -s {LENGTH} file"));
    let store = &fixture.store;
    let file = fixture.base.join("file");
    // How many looks fit into a commit that nobody disturbs.
    let mut undisturbed = start(store, &["commit", &change(store, 1).id]);
    let looks = look_while(&mut undisturbed, usize::MAX);
    assert!(undisturbed.wait().expect("it ends").success());
    let (mut expected, mut commits, mut aborts) = (1, 0, 0);
    for (number, first) in (2..2 + pick(15, 201)).zip(FIRST.into_iter().cycle()) {
        // A lease is impossible while the service has the file open for writing.
        store.call(["service", "stop", "--abort"]).expect(0);
        let view = change(store, number);
        let lease = (first == First::Abort).then(|| Lease::on(&file));
        let mut commit = start(store, &["commit", &view.id]);
        match (first, &lease) {
            (_, Some(lease)) => wait_for(&mut commit, || lease.is_in_the_way()),
            (First::Commit, _) => wait_for(&mut commit, || first_byte(&file) == number),
            _ => _ = look_while(&mut commit, random.below(looks + 1)),
        }
        let aborted = store.abort(&view).code;
        drop(lease);
        let committed = commit.wait().expect("it ends").code();
        match (committed, aborted) {
            (Some(0), NO_SUCH) if first != First::Abort => {
                expected = number;
                commits += usize::from(first == First::Either);
            }
            (Some(NO_SUCH), 0) if first != First::Commit => {
                aborts += usize::from(first == First::Either);
            }
            codes => panic!("round {number}, {first:?}: commit and abort returned {codes:?}"),
        }
        assert_eq!(first_byte(&file), expected, "round {number}, {first:?}");
    }
    println!("where both were possible, {commits} commits and {aborts} aborts came first");
    store.assert_at_rest();
}

/// A transaction that has changed the first page of `file`.
fn change(store: &Store, number: u8) -> View {
    let view = store.begin();
    let staged = fs::File::options().write(true).open(view.path.join("file"));
    let staged = staged.expect("it is in the view");
    staged.write_all_at(&[number; 4096], 0).expect("written");
    view
}

fn first_byte(path: &Path) -> u8 {
    let mut byte = [0];
    let file = fs::File::open(path).expect("opened");
    file.read_exact_at(&mut byte, 0).expect("read");
    byte[0]
}

fn start(store: &Store, arguments: &[&str]) -> Child {
    let mut command = store.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("started")
}

/// Waits until something has happened, unless the command fails before.
fn wait_for(command: &mut Child, mut has_happened: impl FnMut() -> bool) {
    wait_until("the moment of the commit", || {
        let ended = command.try_wait().expect("asked");
        let has_failed = ended.is_some_and(|status| !status.success());
        assert!(!has_failed, "the commit failed");
        has_happened()
    });
}

/// Looks at the command `times` times, or until it ends. Returns how often.
fn look_while(command: &mut Child, times: usize) -> usize {
    let goes_on = |_: &usize| command.try_wait().expect("asked").is_none();
    (0..times).take_while(goes_on).count()
}
