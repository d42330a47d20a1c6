//! Files to which both a transaction and others have only appended.

use std::fs;
use std::path::Path;

use atomdir::{CommitError, Door, Isolation, Store, StoreOptions, Transaction};
use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, Outcome, call_here, for_each_user_of_a_store};

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

/// What the base, or the view of a refused transaction, has at the end.
type Seen = Vec<(String, String)>;

fn add(tx: &Transaction, path: &str, text: &str) {
    let old = tx.read_to_string(path).unwrap_or_default();
    tx.write(path, old + text).expect("written");
}

/// Commits one transaction after another, which began later. `None`: the other is an outside writer.
fn both(store: &Store, mine: Transaction, theirs: Option<&[&str]>) -> Result<(), Box<Refusal>> {
    match theirs {
        Some(paths) => {
            let tx = store.begin().expect("begun");
            for path in paths {
                add(&tx, path, "theirs\n");
            }
            tx.commit().expect("nobody is in the way");
        }
        None => outside(store.root(), "logs/app.log"),
    }
    match mine.try_commit() {
        Ok(_) => Ok(()),
        Err(refused) => Err(Box::new(Refusal(refused.error, refused.transaction))),
    }
}

struct Refusal(CommitError, Transaction);

fn outside(root: &Path, path: &str) {
    let text = fs::read_to_string(root.join(path)).expect("read");
    fs::write(root.join(path), text + "outside\n").expect("written");
}

/// Appends in every way that lands, and in some that are conflicts.
fn append_by_library(store: &Store) -> Seen {
    let mut seen = Seen::new();
    let tx = store.begin().expect("begun");
    for path in ["new.log", "late.log"] {
        if tx.metadata(path).is_ok() {
            tx.remove_file(path).expect("removed");
        }
    }
    tx.create_dir_all("logs").expect("made");
    for path in ["logs/app.log", "second.log", "ledger"] {
        tx.write(path, "1\n2\n").expect("written");
    }
    tx.commit().expect("nobody is in the way");
    let begin = || store.begin().expect("begun");
    let note = |path: &str| {
        let text = fs::read_to_string(store.root().join(path)).expect("it is there");
        (path.to_owned(), text)
    };

    let (mine, logs) = (begin(), ["logs/app.log", "second.log", "new.log"]);
    for path in logs {
        add(&mine, path, "mine\n");
    }
    assert!(both(store, mine, Some(&logs)).is_ok());
    let mine = begin();
    add(&mine, "logs/app.log", "again\n");
    assert!(both(store, mine, None).is_ok());
    seen.extend(logs.map(note));

    // One conflict of another kind is enough, and then nothing is written to the view.
    let (mine, other) = (begin(), ["ledger", "second.log"]);
    for path in other {
        add(&mine, path, "mine\n");
    }
    let Err(refused) = both(store, mine, Some(&other)) else {
        panic!("no name that was set");
    };
    let Refusal(error, mine) = *refused;
    let is_conflict = matches!(error, CommitError::Conflict { .. });
    seen.extend(other.map(|path| {
        let text = mine.read_to_string(path).expect("read");
        (format!("{path}, {is_conflict}"), text)
    }));
    drop(mine);

    let mine = begin();
    mine.write("second.log", "anew\n").expect("written");
    assert!(both(store, mine, Some(&["second.log"])).is_err());

    let serializable = store.transaction().isolation(Isolation::Serializable);
    let mine = serializable.begin().expect("begun");
    add(&mine, "logs/app.log", "mine\n");
    assert!(both(store, mine, Some(&["logs/app.log"])).is_err());

    // A refused attempt leaves nothing in the view, and a later one appends once.
    let mine = begin();
    add(&mine, "logs/app.log", "late\n");
    mine.write("late.log", "late\n").expect("written");
    let holder = begin();
    holder
        .lock("late.log", atomdir::LockMode::Exclusive)
        .expect("locked");
    let Err(refused) = both(store, mine, Some(&["logs/app.log"])) else {
        panic!("it is locked");
    };
    drop(holder);
    let Refusal(_, mine) = *refused;
    mine.commit().expect("nobody is in the way");
    seen.extend(["logs/app.log", "late.log"].map(note));
    seen
}

#[test]
fn the_library_appends_alike_by_both_doors() {
    let name = "the_library_appends_alike_by_both_doors";
    for_each_user_of_a_store(name, |one| {
        let base = one.path();
        atomdir::init(base, None).expect("a store");
        call_here(base, &["config", "append", "*.log"]).expect(0);
        let open = |door| StoreOptions::new().door(door).open(base);
        let embedded = open(Door::Embedded).expect("opened");
        let seen = append_by_library(&embedded);
        embedded.close().expect("closed");
        call_here(base, &["service", "start"]).expect(0);
        let served = open(Door::Service).expect("it runs");
        assert_eq!(seen, append_by_library(&served));
        drop(served);
        call_here(base, &["service", "stop"]).expect(0);

        let texts: Vec<&str> = seen.iter().map(|(_, text)| &**text).collect();
        let expected = [
            "1\n2\ntheirs\nmine\noutside\nagain\n",
            "1\n2\ntheirs\nmine\n",
            "theirs\nmine\n",
            "1\n2\nmine\n",
            "1\n2\ntheirs\nmine\nmine\n",
            "1\n2\ntheirs\nmine\noutside\nagain\ntheirs\ntheirs\nlate\n",
            "late\n",
        ];
        assert_eq!(texts, expected);
        assert!(seen[3].0.ends_with("true"), "{seen:?}");
    });
}
