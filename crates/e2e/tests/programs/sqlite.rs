//! SQLite in both of its journal modes, by one process and by two at once. It
//! locks ranges of bytes, and in WAL mode shares memory through a file.

use std::path::Path;

use atomdir_testing::{Fixture, Scenario, WAIT_UNTIL, shell, tools_present};

const PREPARE: &str = r#"
sqlite3 old.db "PRAGMA journal_mode=delete; CREATE TABLE t(id INTEGER PRIMARY KEY, text);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 5000)
    INSERT INTO t SELECT i, 'old row ' || i || hex(zeroblob(100)) FROM n; CREATE INDEX x ON t(text);"
sqlite3 wal.db "PRAGMA journal_mode=wal; CREATE TABLE t(id INTEGER PRIMARY KEY, text);
    INSERT INTO t SELECT value, 'old row ' || value FROM generate_series(1, 20000);" > /dev/null
sqlite3 counter.db "CREATE TABLE c(n); INSERT INTO c VALUES(0);"
sqlite3 counter-wal.db "PRAGMA journal_mode=wal; CREATE TABLE c(n); INSERT INTO c VALUES(0);" > /dev/null
"#;

#[test]
fn one_process_works_as_in_a_plain_directory() {
    if !tools_present("sqlite", &["sqlite3"]) {
        return;
    }
    let script = r#"
for mode in delete truncate persist wal; do
    sqlite3 new-$mode.db "PRAGMA journal_mode=$mode; CREATE TABLE t(id INTEGER PRIMARY KEY, b);
        INSERT INTO t SELECT value, zeroblob(value % 3000) FROM generate_series(1, 1000);
        BEGIN; DELETE FROM t WHERE id % 3 = 0; ROLLBACK;
        BEGIN; UPDATE t SET b = zeroblob(10) WHERE id % 7 = 0; COMMIT; VACUUM; PRAGMA integrity_check;
        SELECT count(*), sum(length(b)) FROM t;"
    # What a finished journal holds is random.
    rm -f new-$mode.db-journal
done
for db in old.db wal.db; do
    sqlite3 $db "UPDATE t SET text = 'new' WHERE id % 10 = 0; DELETE FROM t WHERE id % 11 = 0;
        PRAGMA integrity_check; SELECT count(*), count(DISTINCT text) FROM t;"
done
sqlite3 old.db "PRAGMA mmap_size=100000000; SELECT sum(length(text)) FROM t;"
sqlite3 old.db .dump | sha256sum
sqlite3 old.db ".backup copy.db" && sqlite3 copy.db .dump | sha256sum
ls
"#;
    Scenario::shell("sqlite", script)
        .prepare(PREPARE)
        .same_output()
        .check_for_each_owner();
}

/// Both count in one row. If locks did not work, a step would be lost.
#[test]
fn two_processes_at_once_lose_no_update() {
    if !tools_present("sqlite-two", &["sqlite3"]) {
        return;
    }
    let script = r#"
count() {
    i=0
    while [ $i -lt 60 ]; do
        sqlite3 -cmd '.timeout 60000' "$1" "BEGIN IMMEDIATE; UPDATE c SET n = n + 1; COMMIT;"
        i=$((i + 1))
    done
}
for db in counter.db counter-wal.db; do
    count $db & first=$!
    count $db & second=$!
    # A reader that holds its own snapshot of the database meanwhile.
    sqlite3 -cmd '.timeout 60000' $db "BEGIN; SELECT n >= 0 FROM c; SELECT n >= 0 FROM c; COMMIT;"
    wait $first; wait $second
    sqlite3 $db "SELECT n FROM c; PRAGMA integrity_check;"
done
ls
"#;
    Scenario::shell("sqlite-two", script)
        .prepare(PREPARE)
        .same_output()
        .check_for_each_owner();
}

/// A process that is killed in the middle of its SQLite transaction leaves a hot journal.
/// The next process in the same view rolls back from it.
#[test]
fn next_process_rolls_back_from_a_hot_journal() {
    if !tools_present("sqlite-hot", &["sqlite3", "timeout"]) {
        return;
    }
    let script = r#"
has_written() { [ $(cat $1-journal $1-wal 2> /dev/null | wc -c) -gt 100000 ]; }
for db in old.db wal.db; do
    mkfifo held
    sqlite3 -cmd 'PRAGMA cache_size=10' $db < held > /dev/null & pid=$!
    exec 3> held
    echo "BEGIN; UPDATE t SET text = 'half done ' || id; SELECT 1;" >&3
    # The cache is small, so by then changed pages have reached the file system.
    wait_until has_written $db
    kill -9 $pid; wait $pid || true
    exec 3>&-
    rm held
    sqlite3 $db "PRAGMA integrity_check; SELECT count(*) FROM t WHERE text LIKE 'half%';"
    sqlite3 $db .dump | sha256sum
done
"#;
    Scenario::shell("sqlite-hot", &format!("{WAIT_UNTIL}{script}"))
        .prepare(PREPARE)
        .same_output()
        .without("old.db-journal")
        .without("wal.db-wal")
        .without("wal.db-shm")
        .check_for_each_owner();
}

/// Processes may enter a transaction one by one. Locks and shared memory must work
/// between them all the same.
#[test]
fn commands_in_one_transaction_lose_no_update() {
    if !tools_present("sqlite-exec", &["sqlite3"]) {
        return;
    }
    Fixture::for_each_owner("sqlite-exec", PREPARE, three_commands_count);
}

fn three_commands_count(fixture: &Fixture) {
    let store = &fixture.store;
    let view = store.begin();
    let count = r#"
for i in $(seq 40); do for db in counter.db counter-wal.db; do
    sqlite3 -cmd '.timeout 60000' $db "BEGIN IMMEDIATE; UPDATE c SET n = n + 1; COMMIT;"
done; done"#;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| store.exec(&view, count).expect(0));
        }
    });
    let counted = |directory: &Path| {
        let script = "for db in counter.db counter-wal.db; do sqlite3 $db 'SELECT n FROM c'; done";
        shell(directory, script).text()
    };
    assert_eq!(counted(&fixture.base), "0\n0\n", "nothing is committed yet");
    store.commit(&view).expect(0);
    assert_eq!(counted(&fixture.base), "120\n120\n");
}
