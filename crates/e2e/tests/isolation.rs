//! What transactions see of one another, and which of them may commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, Store, View, binary, capture_output, look, shell, tools_present,
};

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path.as_ref())
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.as_ref().display()))
}

fn write(path: impl AsRef<Path>, text: &str) {
    fs::write(path.as_ref(), text)
        .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.as_ref().display()));
}

/// Asserts that the transaction is open: its changes show and a command can run in it.
#[track_caller]
fn assert_open(store: &Store, view: &View) {
    store.call(["status", &view.id]).expect(0);
    store.exec(view, "ls").expect(0);
}

/// A conflict names the path and the other commit, and leaves the transaction open.
#[track_caller]
fn expect_conflict(store: &Store, view: &View, path: &str, by: &str) -> Outcome {
    let outcome = store.commit(view).expect(CONFLICT).says(&[path, by]);
    assert_open(store, view);
    outcome
}

#[test]
fn uncommitted_changes_are_invisible_to_others() {
    let fixture = Fixture::new("unseen", "echo old > file; mkdir dir");
    let (store, base) = (&fixture.store, &fixture.base);
    let before = look(base);
    let (left, right) = (store.begin(), store.begin());
    store
        .exec(
            &left,
            "echo left > file; mkdir new; mv dir moved; chmod 600 file",
        )
        .expect(0);
    store
        .exec(
            &right,
            "test $(cat file) = old; test -d dir; test ! -e new; echo right > other",
        )
        .expect(0);
    store
        .exec(
            &left,
            "test $(cat file) = left; test ! -e other; test -d moved",
        )
        .expect(0);
    assert_equal(
        "base before (left) and with open transactions (right)",
        &before,
        &look(base),
        &CompareOptions::untouched(),
    );
    store.commit(&left).expect(0);
    assert_eq!(read(base.join("file")), "left\n");
    store
        .exec(&right, "test $(cat file) = old; test -d dir; test ! -e new")
        .expect(0);
    store.commit(&right).expect(0);
    assert_eq!(read(base.join("other")), "right\n");
    assert_eq!(
        read(base.join("file")),
        "left\n",
        "the second commit must write only what it has changed"
    );
    store.assert_at_rest();
}

#[test]
fn a_transaction_sees_its_own_store_path_and_not_the_control_directory() {
    let fixture = Fixture::new("own-path", "mkdir dir; echo x > dir/file");
    let (store, base) = (&fixture.store, &fixture.base);
    let outcome = store
        .run("pwd; cd dir; pwd; readlink /proc/self/cwd; ls -A ..; test -n \"$ATOMDIR_TX\"")
        .expect(0);
    let path = base.display();
    assert_eq!(
        outcome.text(),
        format!("{path}\n{path}/dir\n{path}/dir\ndir\n")
    );
    // If `atomdir` is started in a subdirectory, the command starts in it, too.
    let mut command = Command::new(binary());
    store.user().dress(&mut command);
    command
        .arg("-C")
        .arg(base.join("dir"))
        .args(["run", "--", "pwd"]);
    assert_eq!(
        capture_output(&mut command).expect(0).text(),
        format!("{path}/dir\n")
    );
    let view = store.begin();
    let names: Vec<_> = fs::read_dir(&view.path)
        .expect("listed")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(names, ["dir"]);
    assert!(fs::symlink_metadata(view.path.join(".atomdir")).is_err());
    store.abort(&view).expect(0);
    store.assert_at_rest();
}

const LIBRARY: &str = r#"
for dir in a b c d; do mkdir -p $dir/sub; echo "in $dir" > $dir/file; echo "in $dir/sub" > $dir/sub/file; done
seq 200000 > numbers
echo secret > private; chmod 600 private; setfattr -n user.k -v old private
ln numbers again; ln -s a/file link
for i in $(seq 300); do echo $i > b/n$i; done
"#;

/// Commits change the base one after another. After each the test compares one old view, and
/// after the last also a view that nobody has read before.
#[test]
fn a_snapshot_does_not_change() {
    if !tools_present("a_snapshot_does_not_change", &["setfattr", "setfacl"]) {
        return;
    }
    let fixture = Fixture::new("snapshot", LIBRARY);
    let (store, base) = (&fixture.store, &fixture.base);
    let before = look(base);
    let watcher = store.begin();
    let sleeper = store.begin();
    assert_equal(
        "base (left) and view (right)",
        &before,
        &look(&watcher.path),
        &CompareOptions::copied(),
    );
    let held = fs::File::open(watcher.path.join("c/sub/file")).expect("opened early");
    for change in [
        "printf new | dd of=numbers bs=1 seek=500000 conv=notrunc status=none",
        "echo whole > a/file; echo more >> b/file",
        "truncate -s 10 numbers; truncate -s 2M again",
        "rm -r c; rm link",
        "chmod 644 private; chown 5:5 private; setfattr -n user.k -v new private; setfacl -m u:5:r a",
        "mv a A; mkdir a; echo new > a/file",
        "mv b/sub b/SUB; mv b/n1 b/N1; rm b/n2*; for i in $(seq 400 500); do echo $i > b/n$i; done",
        "mv d t; mv b d; mv t b",
        "rm -r A a b d; rm numbers",
    ] {
        store.run(change).expect(0);
        let what = format!("base of old (left), and the old view after: {change} (right)");
        assert_equal(
            &what,
            &before,
            &look(&watcher.path),
            &CompareOptions::copied(),
        );
    }
    assert_equal(
        "base of old (left), and a view first read now (right)",
        &before,
        &look(&sleeper.path),
        &CompareOptions::copied(),
    );
    assert_eq!(
        std::io::read_to_string(held).expect("read late"),
        "in c/sub\n"
    );
    store
        .exec(
            &watcher,
            "test $(cat c/file | wc -l) = 1; ls -R | wc -l; cat b/n299 link",
        )
        .expect(0);
    store.commit(&watcher).expect(0);
    store.exec(&sleeper, "echo mine > unrelated").expect(0);
    store.commit(&sleeper).expect(0);
    assert_eq!(read(base.join("unrelated")), "mine\n");
    store.assert_at_rest();
}

#[test]
fn a_snapshot_begins_at_begin_not_at_first_use() {
    let fixture = Fixture::new("begins", "echo 1 > file");
    let store = &fixture.store;
    let mut views = Vec::new();
    for number in 2..8 {
        views.push(store.begin());
        store
            .run(&format!(
                "echo {number} > file; echo {number} > new{number}"
            ))
            .expect(0);
    }
    for (index, view) in views.iter().enumerate() {
        assert_eq!(read(view.path.join("file")), format!("{}\n", index + 1));
        assert_eq!(fs::read_dir(&view.path).expect("listed").count(), index + 1);
        store.abort(view).expect(0);
    }
    store.assert_at_rest();
}

/// Names that are kept for an older snapshot must not count in the link counts that others see.
#[test]
fn a_kept_snapshot_does_not_show_in_later_link_counts() {
    let fixture = Fixture::new("link-counts", "echo old > file; ln file again");
    let store = &fixture.store;
    let older = store.begin();
    store.run("rm again").expect(0);
    store.run("test $(stat -c %h file) = 1").expect(0);
    store.exec(&older, "test $(stat -c %h file) = 2").expect(0);
    store.abort(&older).expect(0);
    store.assert_at_rest();
    let file = &fixture.look().entries[Path::new("file")];
    assert_eq!(file.links, 1);
}

/// Whatever a transaction does to a file with several names, the link count is right at
/// once, and older snapshots keep theirs.
#[test]
fn link_counts_are_right_after_a_file_loses_a_name() {
    for script in [
        "rm file fifo link",
        "echo new >> file; rm file",
        "chmod 600 file fifo; rm file fifo",
        "echo new >> file; echo other > other; mv other file",
        "rm -r dir",
        "echo new >> dir/file; chmod 600 dir/fifo; rm -r dir",
        "mv dir/file moved; rm -r dir",
        "echo x > x; mv again y; mv x file; mv y again; ln again z",
        "echo x > x; mv file y; mv x file; mv y link2; mv again link",
    ] {
        for keeps_old in [false, true] {
            println!("case: {script}, older snapshot: {keeps_old}");
            let fixture = Fixture::new("names", FILES_WITH_NAMES);
            let (store, base) = (&fixture.store, &fixture.base);
            let plain = fixture.scratch.join("plain");
            fs::create_dir(&plain).expect("made");
            shell(&plain, FILES_WITH_NAMES);
            shell(&plain, script);
            let before = look(base);
            let older = keeps_old.then(|| store.begin());
            store.run(script).expect(0);
            let alike = CompareOptions::alike();
            assert_equal(script, &look(&plain), &look(base), &alike);
            if let Some(older) = &older {
                let copied = CompareOptions::copied();
                assert_equal(script, &before, &look(&older.path), &copied);
            }
            store.kill_service();
            store.call(["recover"]).expect(0);
            assert_equal(script, &look(&plain), &look(base), &alike);
        }
    }
}

const FILES_WITH_NAMES: &str = "mkdir dir; echo old > file; ln file again; ln file dir/file;
    mkfifo fifo; ln fifo fifo2; ln fifo dir/fifo; ln -s target link; ln -P link link2; ln -P link dir/link";

/// Spinellis, "User-level operating system transactions" (2009), shows this
/// schedule of transactions and an outside writer as a table.
#[test]
fn the_schedule_of_spinellis() {
    let fixture = Fixture::new("spinellis", "echo 0 > a; echo 0 > b; echo 0 > c");
    let (store, base) = (&fixture.store, &fixture.base);
    let first = store.begin();
    write(base.join("a"), "outside\n");
    store.exec(&first, "echo first > b").expect(0);
    let second = store.begin();
    store.commit(&first).expect(0);

    store.exec(&second, "echo second > b").expect(0);
    write(base.join("c"), "outside\n");
    let third = store.begin();
    expect_conflict(store, &second, "b", &first.id);

    store.exec(&third, "echo third > c").expect(0);
    store.commit(&third).expect(0);
    let fourth = store.begin();
    store.exec(&fourth, "echo fourth > c").expect(0);
    write(base.join("c"), "outside again\n");
    expect_conflict(store, &fourth, "c", "outside");

    assert_eq!(read(base.join("a")), "outside\n");
    assert_eq!(read(base.join("b")), "first\n");
    assert_eq!(read(base.join("c")), "outside again\n");
    store.abort(&second).expect(0);
    store.abort(&fourth).expect(0);
    store.assert_at_rest();
}

/// No change by an outside writer is ever lost.
#[test]
fn outside_writers_are_detected() {
    for (name, inside, outside, path) in [
        ("rewrite", "echo in > file", "echo out > file", "file"),
        (
            "in place",
            "echo in > file",
            "printf X | dd of=file conv=notrunc status=none",
            "file",
        ),
        ("append", "echo in >> file", "echo out >> file", "file"),
        (
            "replace",
            "echo in > file",
            "echo out > t; mv t file",
            "file",
        ),
        ("remove", "echo in > file", "rm file", "file"),
        ("removed inside", "rm file", "echo out >> file", "file"),
        ("same name", "echo in > new", "echo out > new", "new"),
        ("mode", "chmod 600 file", "chmod 640 file", "file"),
        ("owner", "chown 5 file", "chown 6 file", "file"),
        ("renamed away", "mv file mine", "mv file theirs", "file"),
        ("directory", "echo in > dir/new", "rmdir dir", "dir"),
        ("filled", "rmdir dir", "echo out > dir/new", "dir"),
        (
            "replaced by a link",
            "echo in > dir/new",
            "rmdir dir; ln -s /tmp dir",
            "dir",
        ),
    ] {
        let fixture = Fixture::new("outside", "echo old > file; mkdir dir");
        let (store, base) = (&fixture.store, &fixture.base);
        let view = store.begin();
        store.exec(&view, inside).expect(0);
        shell(base, outside);
        let after = look(base);
        println!("case: {name}");
        expect_conflict(store, &view, path, "outside");
        assert_equal(name, &after, &look(base), &CompareOptions::untouched());
        store.abort(&view).expect(0);
        assert_equal(name, &after, &look(base), &CompareOptions::untouched());
        store.assert_at_rest();
    }
}

#[test]
fn outside_writes_to_other_paths_do_not_conflict_and_later_transactions_see_them() {
    let fixture = Fixture::new("elsewhere", "echo old > file; mkdir dir; echo o > other");
    let (store, base) = (&fixture.store, &fixture.base);
    let view = store.begin();
    store
        .exec(&view, "echo in > file; echo in > dir/mine")
        .expect(0);
    shell(
        base,
        "echo out > other; echo out > dir/theirs; mkdir new; cat file",
    );
    store.commit(&view).expect(0);
    store.run("test $(cat other) = out; test $(cat dir/theirs) = out; test -d new; test $(cat file) = in").expect(0);
    shell(base, "rm other; mv dir/theirs dir/moved; echo again > file");
    store
        .run("test ! -e other; test -e dir/moved; test ! -e dir/theirs; test $(cat file) = again")
        .expect(0);
    store.assert_at_rest();
}

const COUNT: &str = "n=$(cat counter); echo $((n+1)) > counter";
const PROCESSES: usize = 8;
const ROUNDS: usize = 25;

#[test]
fn eight_processes_count_in_one_file_without_lost_updates() {
    let fixture = Fixture::new("counter", "echo 0 > counter");
    let (store, base) = (&fixture.store, &fixture.base);
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    // A run that loses every time gives up with 75 after so many tries.
                    store.run_with(&["--retry", "1000"], COUNT).expect(0);
                }
            });
        }
    });
    assert_eq!(
        read(base.join("counter")),
        format!("{}\n", PROCESSES * ROUNDS)
    );
    store.assert_at_rest();
}

#[test]
fn eight_processes_on_eight_files_never_conflict() {
    let fixture = Fixture::new(
        "counters",
        "for i in 0 1 2 3 4 5 6 7; do echo 0 > counter$i; done",
    );
    let (store, base) = (&fixture.store, &fixture.base);
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            let store = &store;
            let script = COUNT.replace("counter", &format!("counter{process}"));
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    store.run(&script).expect(0);
                }
            });
        }
    });
    for process in 0..PROCESSES {
        assert_eq!(
            read(base.join(format!("counter{process}"))),
            format!("{ROUNDS}\n")
        );
    }
    store.assert_at_rest();
}

/// Runs the script with `--status-fd`, and returns the line written there.
fn run_with_status(fixture: &Fixture, options: &[&str], script: &str) -> (Outcome, String) {
    let status = fixture.base.with_file_name("status");
    let inner = fixture.store.command(
        ["run", "--status-fd", "9"]
            .iter()
            .chain(options)
            .chain(&["--", "sh", "-ec", script]),
    );
    let mut command = Command::new("sh");
    fixture.store.user().dress(&mut command);
    let open_descriptor = "status=$1; shift; exec \"$@\" 9> \"$status\"";
    command.args(["-c", open_descriptor, "sh"]).arg(&status);
    command.arg(inner.get_program()).args(inner.get_args());
    (capture_output(&mut command), read(&status))
}

/// The command itself may exit with 75, so the outcome is reported separately.
#[test]
fn run_distinguishes_its_outcome_from_the_commands() {
    let fixture = Fixture::new("outcomes", "echo old > file");
    let file = fixture.base.join("file");
    let (outcome, status) = run_with_status(&fixture, &[], "echo new > file");
    outcome.expect(0);
    assert!(status.starts_with("committed "), "{status:?}");

    let (outcome, status) = run_with_status(&fixture, &[], "echo newer > file; exit 75");
    outcome.expect(CONFLICT);
    assert!(status.starts_with("aborted"), "{status:?}");
    assert_eq!(read(&file), "new\n");

    let (outcome, status) =
        run_with_status(&fixture, &["--on-success", "keep"], "echo kept > file");
    outcome.expect(0);
    let id = status
        .trim()
        .strip_prefix("kept ")
        .unwrap_or_else(|| panic!("{status:?}"));
    assert_eq!(read(&file), "new\n");
    fixture.store.call(["commit", id]).expect(0);
    assert_eq!(read(&file), "kept\n");
    fixture.store.assert_at_rest();
}

#[test]
fn a_run_that_conflicts_changes_nothing_and_says_why() {
    let fixture = Fixture::new("run-conflict", "echo old > file; echo old > other");
    let first = "echo in > file; echo in > other";
    let meanwhile = || write(fixture.base.join("file"), "out\n");
    let outcome = fixture.run_and_meanwhile(&["--status-fd", "1"], first, meanwhile);
    let status = outcome.text();
    outcome.expect(CONFLICT).says(&["file", "outside"]);
    assert!(status.starts_with("conflict"), "{status:?}");
    assert_eq!(read(fixture.base.join("file")), "out\n");
    assert_eq!(read(fixture.base.join("other")), "old\n");
    fixture.store.assert_at_rest();
}
