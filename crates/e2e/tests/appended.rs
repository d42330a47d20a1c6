//! Files to which both a transaction and others have only appended.

use std::fs;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, Outcome};

const PREPARE: &str = "mkdir logs; seq 3 > logs/app.log; seq 3 > ledger; seq 3 > in-place.log";

fn read(fixture: &Fixture, path: &str) -> String {
    fs::read_to_string(fixture.base.join(path)).expect("it is there")
}

fn prepared(test: &str, check: impl Fn(&Fixture)) {
    Fixture::for_each_owner(test, PREPARE, |fixture| {
        let set = fixture.store.call(["config", "append", "*.log"]).expect(0);
        assert_eq!(set.text(), "");
        check(fixture);
    });
}

/// Runs a script in a transaction, and another one meanwhile, by a commit or outside.
fn append(fixture: &Fixture, view: &str, (mine, theirs): (&str, &str), by_commit: bool) -> Outcome {
    let store = &fixture.store;
    let options = ["--view", view, "--on-success", "keep"];
    store.run_with(&options, mine).expect(0);
    match by_commit {
        true => drop(store.run(theirs).expect(0)),
        false => drop(fixture.store.outside(theirs)),
    }
    store.call(["commit"])
}

#[test]
fn what_both_have_appended_to_a_log_lands() {
    prepared("appended", |fixture| {
        let mut expected = "1\n2\n3\n".to_owned();
        for (view, by_commit) in [
            ("exact", true),
            ("exact", false),
            ("auto", true),
            ("auto", false),
        ] {
            let scripts = (
                "echo mine >> logs/app.log; echo mine >> in-place.log",
                "echo theirs >> logs/app.log; echo theirs >> in-place.log",
            );
            append(fixture, view, scripts, by_commit).expect(0);
            expected += "theirs\nmine\n";
            assert_eq!(
                read(fixture, "logs/app.log"),
                expected,
                "{view}, {by_commit}"
            );
            assert_eq!(
                read(fixture, "in-place.log"),
                expected,
                "{view}, {by_commit}"
            );
        }
        let script = "echo mine > new.log";
        append(fixture, "exact", (script, "echo theirs > new.log"), true).expect(0);
        assert_eq!(read(fixture, "new.log"), "theirs\nmine\n");
    });
}

#[test]
fn whatever_else_both_have_done_is_a_conflict_and_nothing_is_written() {
    prepared("appended-not", |fixture| {
        let store = &fixture.store;
        for (mine, theirs) in [
            // No name that was set.
            ("echo mine >> ledger", "echo theirs >> ledger"),
            ("echo mine >> logs/app.log", "echo theirs > logs/app.log"),
            ("echo mine > logs/app.log", "echo theirs >> logs/app.log"),
            ("echo mine >> logs/app.log", "sed -i 1d logs/app.log"),
            ("echo mine >> logs/app.log", "rm logs/app.log"),
            ("echo mine >> logs/app.log", "printf theirs >> logs/app.log"),
            // One of two is enough.
            (
                "echo mine >> logs/app.log; echo mine > ledger",
                "echo theirs >> logs/app.log; echo theirs > ledger",
            ),
        ] {
            for by_commit in [true, false] {
                append(fixture, "exact", (mine, theirs), by_commit).expect(CONFLICT);
                let diff = store.call(["diff"]).expect(0).text();
                assert!(!diff.contains("theirs"), "{mine}, {theirs}: {diff}");
                store.call(["abort"]).expect(0);
                let prepare = PREPARE.replace("mkdir logs;", "");
                fixture.store.outside(&prepare);
            }
        }
    });
}

/// A refused attempt leaves nothing in the view that a later one would append once more.
#[test]
fn a_later_attempt_appends_once() {
    prepared("appended-later", |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store
            .exec(&view, "echo mine >> logs/app.log; echo mine > ledger")
            .expect(0);
        store.run("echo theirs >> logs/app.log").expect(0);
        let holder = store.begin();
        store.call(["lock", &holder.id, "ledger"]).expect(0);
        store.commit(&view).expect(CONFLICT);
        store.abort(&holder).expect(0);
        store.commit(&view).expect(0);
        assert_eq!(read(fixture, "logs/app.log"), "1\n2\n3\ntheirs\nmine\n");
    });
}

#[test]
fn serializable_transactions_have_read_what_they_append_to() {
    prepared("appended-serializable", |fixture| {
        let store = &fixture.store;
        let view = store.begin_with(&["--isolation", "serializable"]);
        store.exec(&view, "echo mine >> logs/app.log").expect(0);
        store.run("echo theirs >> logs/app.log").expect(0);
        store.commit(&view).expect(CONFLICT);
        store.abort(&view).expect(0);
    });
}
