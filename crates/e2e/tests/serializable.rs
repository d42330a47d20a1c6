//! Under `--isolation serializable`, a commit conflicts if something that was read has
//! changed: contents, attributes, names found and not found, listings. Under `snapshot`
//! it does not.

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{
    Fixture, Outcome, Owner, User, for_each_owner, full_tier, shell, tools_present,
};

const TREE: &str = "echo 1 > x; echo 1 > y; mkdir dir; echo old > dir/file; mkdir out; ln -s x link; \
     ln x linked; head -c 1048576 /dev/zero > pages";

const SERIALIZABLE: &[&str] = &["--isolation", "serializable"];

/// `reader` reads, and writes something of its own, while `change` changes the
/// base; then the reader commits.
fn outcome_of(
    owner: Owner,
    isolation: &[&str],
    reader: &str,
    change: impl Fn(&Fixture),
) -> Outcome {
    let fixture = Fixture::owned_by("serializable", owner, TREE);
    let store = &fixture.store;
    let view = store.begin_with(isolation);
    store.exec(&view, reader).expect(0);
    change(&fixture);
    let outcome = store.commit(&view);
    if outcome.code != 0 {
        store.abort(&view).expect(0);
    }
    store.assert_at_rest();
    outcome
}

/// The same with a reader in a native view.
fn outcome_of_native(
    owner: Owner,
    isolation: &[&str],
    reader: &str,
    change: impl Fn(&Fixture),
) -> Outcome {
    let fixture = Fixture::owned_by("serializable-native", owner, TREE);
    let options = [&["--view", "native"], isolation].concat();
    let outcome = fixture.run_and_meanwhile(&options, reader, || change(&fixture));
    fixture.store.call(["abort", "--all"]).expect(0);
    fixture.store.assert_at_rest();
    outcome
}

/// What is read, what changes it, which path the conflict names, and what it reports
/// about the read.
const CHANGED: &[(&str, &str, &str, &str)] = &[
    ("cat x > out/mine", "echo 2 > x", "x", "it was read"),
    (
        "cat y > out/mine",
        "printf 2 | dd of=y conv=notrunc status=none",
        "y",
        "it was read",
    ),
    (
        "stat -c %a x > out/mine",
        "chmod 600 x",
        "x",
        "its attributes were read",
    ),
    ("stat -c %s x > out/mine", "echo 2 >> x", "x", "it was read"),
    ("stat -c %Y x > out/mine", "echo 2 > x", "x", "it was read"),
    (
        "stat -c %h x > out/mine",
        "ln x more",
        "x",
        "its attributes were read",
    ),
    (
        "stat -c %a dir > out/mine",
        "chmod 700 dir",
        "dir",
        "its attributes were read",
    ),
    (
        "getfattr --only-values -n user.k x > out/mine 2>&1 || :",
        "setfattr -n user.k -v v x",
        "x",
        "its attributes were read",
    ),
    (
        "test -e dir/file; echo > out/mine",
        "rm dir/file",
        "dir/file",
        "was looked up",
    ),
    (
        "test -e dir/file; echo > out/mine",
        "echo new > t; mv t dir/file",
        "dir/file",
        "was looked up",
    ),
    (
        "test ! -e dir/new; echo > out/mine",
        "echo new > dir/new",
        "dir/new",
        "was looked up while there was none",
    ),
    (
        "ls dir > out/mine",
        "echo new > dir/new",
        "dir",
        "was listed",
    ),
    ("ls dir > out/mine", "rm dir/file", "dir", "was listed"),
    (
        "ls dir > out/mine",
        "mv dir/file dir/moved",
        "dir",
        "was listed",
    ),
    (
        "readlink link > out/mine",
        "ln -sfn y link",
        "link",
        "was looked up",
    ),
    (
        "cat dir/file > out/mine",
        "mv dir moved",
        "dir",
        "was looked up",
    ),
    // After the first read the kernel answers from its cache; the first read counts.
    (
        "cat x x > out/mine; cat x > /dev/null; stat x > /dev/null",
        "echo 2 > x",
        "x",
        "it was read",
    ),
    (
        "ls dir > /dev/null; ls dir > out/mine",
        "echo new > dir/new",
        "dir",
        "was listed",
    ),
    ("cmp x y; echo > out/mine", "echo 2 > y", "y", "it was read"),
];

#[test]
fn changed_reads_conflict_under_serializable() {
    let test = "changed_reads_conflict_under_serializable";
    if !tools_present(test, &["getfattr", "setfattr"]) {
        return;
    }
    for_each_owner(test, |owner| {
        for (reader, writer, path, what) in CHANGED {
            println!("{reader} | {writer}");
            let change = |fixture: &Fixture| {
                let exact = ["--view", "exact"];
                fixture.store.run_with(&exact, writer).expect(0);
            };
            let line = format!("  {path}: ");
            outcome_of(owner, SERIALIZABLE, reader, change)
                .expect(CONFLICT)
                .says(&[&line, what, "commit 1"]);
            // If the file has several names, the conflict may name another.
            outcome_of_native(owner, SERIALIZABLE, reader, change)
                .expect(CONFLICT)
                .says(&[what, "commit 1"]);
        }
    });
}

#[test]
fn changed_reads_do_not_conflict_under_snapshot() {
    for (reader, writer, ..) in CHANGED.iter().filter(|row| !row.1.contains("fattr")) {
        println!("{reader} | {writer}");
        let change = |fixture: &Fixture| {
            fixture.store.run(writer).expect(0);
        };
        outcome_of(User::root, &[], reader, change).expect(0);
        if full_tier() {
            outcome_of_native(User::root, &[], reader, change).expect(0);
        }
    }
}

#[test]
fn reads_changed_from_outside_conflict() {
    let test = "reads_changed_from_outside_conflict";
    if !tools_present(test, &["getfattr", "setfattr"]) {
        return;
    }
    for (reader, writer, path, _) in CHANGED {
        println!("{reader} | {writer}");
        let change = |fixture: &Fixture| {
            shell(&fixture.base, writer);
        };
        let line = format!("  {path}: ");
        outcome_of(User::root, SERIALIZABLE, reader, change)
            .expect(CONFLICT)
            .says(&[&line, "outside"]);
    }
}

#[test]
fn unread_changes_do_not_conflict() {
    for (reader, writer) in [
        ("cat x > out/mine", "echo 2 > y"),
        ("cat x > out/mine", "echo other > out/theirs"),
        (
            "test ! -e dir/new; echo > out/mine",
            "echo newer > dir/newer",
        ),
        ("cat x > out/mine", "touch -a x"),
        // The listing gives the kernel the attributes of these objects, but reads none of them.
        (
            "ls dir > out/mine",
            "echo new > dir/file; chmod 600 dir/file",
        ),
        (
            "ls -f > out/mine",
            "chmod 700 dir; echo 2 > x; echo new > dir/new",
        ),
        (
            "test -d dir; echo > out/mine",
            "echo new > dir/new; rm dir/file",
        ),
        ("readlink link > out/mine", "echo 2 > x"),
        ("echo > out/mine", "echo 2 > x; rm -r dir"),
    ] {
        println!("{reader} | {writer}");
        let change = |fixture: &Fixture| {
            fixture.store.run(writer).expect(0);
        };
        outcome_of(User::root, SERIALIZABLE, reader, change).expect(0);
        if full_tier() {
            outcome_of_native(User::root, SERIALIZABLE, reader, change).expect(0);
        }
    }
}

/// A transaction that only reads has its place in the order at its snapshot, so it does
/// not conflict with commits. It conflicts with outside writers, who may change what it reads.
#[test]
fn read_only_transaction_conflicts_only_with_outside_writers() {
    let reader = "cat x dir/file; ls dir; test ! -e dir/new";
    let change = "echo 2 > x; mv dir/file dir/new";
    outcome_of(User::root, SERIALIZABLE, reader, |fixture| {
        fixture.store.run(change).expect(0);
    })
    .expect(0);
    outcome_of(User::root, SERIALIZABLE, reader, |fixture| {
        shell(&fixture.base, change);
    })
    .expect(CONFLICT)
    .says(&["  x: ", "outside"]);
}

/// Each transaction keeps the rule "x or y is 1" by what it read. Both together break it.
#[test]
fn write_skew_is_refused_under_serializable_and_allowed_under_snapshot() {
    let test = "write_skew_is_refused_under_serializable_and_allowed_under_snapshot";
    for_each_owner(test, |owner| {
        for (isolation, is_refused) in [(SERIALIZABLE, true), (&[] as &[&str], false)] {
            let fixture = Fixture::owned_by("skew", owner, TREE);
            let store = &fixture.store;
            let views = [(); 2].map(|()| store.begin_with(isolation));
            store
                .exec(&views[0], "test $(cat y) = 1; echo 0 > x")
                .expect(0);
            store
                .exec(&views[1], "test $(cat x) = 1; echo 0 > y")
                .expect(0);
            store.commit(&views[0]).expect(0);
            let second = store.commit(&views[1]);
            if is_refused {
                second.expect(CONFLICT).says(&["  x: ", "it was read"]);
                let id = views[1].id.as_str();
                store.call(["conflicts", id]).expect(0);
                let taken = store.call(["commit", id, "--take-mine", "all"]);
                taken.expect(USAGE).says(&["has read 'x'", "abort"]);
                store.abort(&views[1]).expect(0);
            } else {
                second.expect(0);
            }
            let both_zero = ["x", "y"]
                .iter()
                .all(|name| fs::read_to_string(fixture.base.join(name)).expect("read") == "0\n");
            assert_eq!(both_zero, !is_refused);
            store.assert_at_rest();
        }
    });
}

/// Each transaction adds a name because it found fewer than two names, or because it did not find
/// two certain names. The other's name is a phantom.
#[test]
fn phantoms_are_refused_under_serializable_and_allowed_under_snapshot() {
    let counts = "test $(ls dir | wc -l) -lt 2; echo > dir/NAME";
    let looks = "test ! -e dir/a; test ! -e dir/b; echo > dir/NAME";
    for script in [counts, looks] {
        for (isolation, is_refused) in [(SERIALIZABLE, true), (&[] as &[&str], false)] {
            let fixture = Fixture::new("phantom", TREE);
            let store = &fixture.store;
            let views = [(); 2].map(|()| store.begin_with(isolation));
            store
                .exec(&views[0], &script.replace("NAME", "a"))
                .expect(0);
            store
                .exec(&views[1], &script.replace("NAME", "b"))
                .expect(0);
            store.commit(&views[0]).expect(0);
            let second = store.commit(&views[1]);
            if is_refused {
                second.expect(CONFLICT).says(&["dir"]);
                store.abort(&views[1]).expect(0);
            } else {
                second.expect(0);
            }
            store.assert_at_rest();
        }
    }
}

#[test]
fn serializable_run_retries_until_it_commits() {
    const PROCESSES: usize = 4;
    const ROUNDS: usize = 10;
    // Each transaction moves one from the larger pile to the smaller. It reads one file to
    // write another, so snapshots alone would not keep the sum.
    let fixture = Fixture::new("piles", "echo 40 > a; echo 40 > b; mkdir notes");
    let store = &fixture.store;
    std::thread::scope(|scope| {
        for process in 0..PROCESSES {
            scope.spawn(move || {
                let script = "a=$(cat a); b=$(cat b); test $((a + b)) = 80; \
                     if [ $a -gt $b ]; then echo $((a - 1)) > a; echo $((b + 1)) > b; \
                     else echo $((a + 1)) > a; echo $((b - 1)) > b; fi";
                for round in 0..ROUNDS {
                    let script = format!("{script}; echo > notes/{process}-{round}");
                    store
                        .run_with(&["--isolation", "serializable", "--retry", "1000"], &script)
                        .expect(0);
                }
            });
        }
    });
    let notes = fs::read_dir(fixture.base.join("notes")).expect("listed");
    assert_eq!(notes.count(), PROCESSES * ROUNDS);
    store.run("test $(($(cat a) + $(cat b))) = 80").expect(0);
    store.assert_at_rest();
}
