//! A SQLite database and its write-ahead log are undone, restored, committed and dropped together.

#![cfg(test)]

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, View, shell, tools_present};

const PREPARE: &str = "sqlite3 db 'PRAGMA journal_mode=WAL; CREATE TABLE t(x)' > /dev/null";

/// Runs a statement and kills SQLite before it can move the log into the database.
fn statement(sql: &str) -> String {
    format!("sqlite3 db '{sql}' '.system kill -9 $PPID' > /dev/null || true")
}

fn insert(value: u32) -> String {
    statement(&format!("INSERT INTO t VALUES({value})"))
}

/// Changes the database and leaves the log as it is.
fn checkpoint() -> String {
    statement("PRAGMA wal_checkpoint(PASSIVE)")
}

fn for_each_owner(test: &str, body: impl Fn(&Fixture)) {
    if tools_present(test, &["sqlite3"]) {
        Fixture::for_each_owner(test, PREPARE, body);
    }
}

/// Three commits: a row in SQLite's log, its move to the database, another row in the log.
fn commit_steps(one: &Fixture) {
    for step in [insert(1), checkpoint(), insert(2)] {
        one.store.run(&step).expect(0);
    }
    let changed = |commit: &str| one.store.call(["show", commit]).expect(0).text();
    assert!(!changed("2").contains("db-wal"), "{}", changed("2"));
}

fn assert_rows(one: &Fixture, sum: &str) {
    let check = "sqlite3 db 'PRAGMA integrity_check; SELECT sum(x) FROM t'";
    assert_eq!(shell(&one.base, check).text(), format!("ok\n{sum}\n"));
}

#[test]
fn undo_takes_database_and_log_together_or_refuses() {
    for_each_owner("undo-database", |one| {
        commit_steps(one);
        let refused = one.store.call(["undo", "2"]);
        refused.expect(CONFLICT).says(&["db-wal", "commit 3"]);
        one.store.call(["undo", "2..3"]).expect(0);
        assert_rows(one, "1");
    });
}

#[test]
fn restore_brings_back_the_log_with_the_database() {
    for_each_owner("restore-database", |one| {
        commit_steps(one);
        one.store.call(["restore", "1", "--", "db"]).expect(0);
        assert_rows(one, "1");
    });
    for_each_owner("restore-log", |one| {
        commit_steps(one);
        one.store.call(["restore", "0", "--", "db-wal"]).expect(0);
        assert_rows(one, "");
    });
}

#[test]
fn committing_or_aborting_a_part_takes_database_and_log_together() {
    for_each_owner("land-database", |one| {
        let changes = [insert(1), checkpoint(), "echo 1 > other".into()].join("; ");
        let view = kept(one, &changes);
        one.store.call(["commit", &view.id, "--", "db"]).expect(0);
        let rest = one.store.call(["diff", &view.id, "--name-only"]);
        assert_eq!(rest.expect(0).text(), "other\n");
        one.store.call(["abort", &view.id]).expect(0);
        assert_rows(one, "1");
    });
    for_each_owner("drop-database", |one| {
        let changes = [insert(1), checkpoint(), "echo 1 > other".into()].join("; ");
        let view = kept(one, &changes);
        one.store
            .call(["abort", &view.id, "--", "db-wal"])
            .expect(0);
        one.store.call(["commit", &view.id]).expect(0);
        shell(&one.base, "grep -q 1 other");
        assert_rows(one, "");
    });
}

#[test]
fn sides_of_a_database_and_its_log_are_not_mixed() {
    for_each_owner("sides-database", |one| {
        let view = kept(one, &[insert(1), checkpoint()].join("; "));
        one.store.run(&insert(2)).expect(0);
        one.store.run(&checkpoint()).expect(0);
        one.store.call(["commit", &view.id]).expect(CONFLICT);
        let listed = one.store.call(["conflicts", &view.id]).expect(0).text();
        let number = |path: &str| {
            let mut lines = listed.lines();
            let line = lines.find(|line| line.split_whitespace().any(|word| word == path));
            let line = line.unwrap_or_else(|| panic!("{path} in {listed}"));
            let number: String = line
                .trim()
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            number
        };
        let (database, log) = (number("db:"), number("db-wal:"));
        let mixed = [
            "commit",
            &view.id,
            "--take-mine",
            &database,
            "--take-theirs",
            &log,
        ];
        one.store.call(mixed).expect(USAGE).says(&["db"]);
        one.store
            .call(["commit", &view.id, "--take-theirs", "all"])
            .expect(0);
        assert_rows(one, "2");
    });
}

/// A transaction that is kept open with these changes.
fn kept(one: &Fixture, changes: &str) -> View {
    let view = one.store.begin();
    one.store.exec(&view, changes).expect(0);
    view
}
