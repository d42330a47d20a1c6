//! The extension in a Rust program, with the SQLite that rusqlite builds, which is newer than Debian's.

use crate::programs::{SERVICE, extension};
use atomdir_testing::{Fixture, users_can_mount};
use rusqlite::{Connection, LoadExtensionGuard, ffi};

fn load() -> Connection {
    let first = Connection::open_in_memory().expect("in memory");
    // SAFETY: the extension is this tree's own.
    unsafe {
        let _allowed = LoadExtensionGuard::new(&first).expect("allowed");
        let loaded = first.load_extension(extension(), None::<&str>);
        loaded.expect("the extension loads");
    }
    first
}

fn value(connection: &Connection) -> i64 {
    let found = connection.query_row("select v from t", (), |row| row.get(0));
    found.expect("one row")
}

fn conflict_between_two_connections(fixture: &Fixture, door: &str) {
    let _first = load();
    let uri = format!("file:{}/db?vfs=atomdir{door}", fixture.base.display());
    let open = || Connection::open(&uri).expect("it opens");
    let (one, other) = (open(), open());
    let all = |connection: &Connection, statements| connection.execute_batch(statements);
    all(&one, "create table t(v); insert into t values(1)").expect("done");
    all(&one, "begin; update t set v = v + 1").expect("done");
    all(&other, "begin; update t set v = v + 10").expect("done");
    all(&one, "commit").expect("committed");
    let refused = all(&other, "commit").expect_err("both changed one page");
    let code = refused.sqlite_error().map(|error| error.extended_code);
    assert_eq!(code, Some(ffi::SQLITE_BUSY_SNAPSHOT), "{refused}");
    assert!(other.is_autocommit(), "SQLite has rolled it back");
    all(&other, "update t set v = v + 10").expect("done");
    assert_eq!((value(&one), value(&other)), (12, 12));
    drop((one, other));
    let plain = Connection::open(fixture.base.join("db")).expect("a plain file");
    let found = plain.query_row("pragma integrity_check", (), |row| row.get(0));
    assert_eq!((value(&plain), found), (12, Ok("ok".to_owned())));
}

#[test]
fn a_rust_program_with_a_newer_sqlite_uses_the_extension() {
    let test = "a_rust_program_with_a_newer_sqlite_uses_the_extension";
    println!("SQLite {}", rusqlite::version());
    assert!(rusqlite::version_number() > 3_040_001);
    let fixture = Fixture::new("sqlite-rust", "true");
    conflict_between_two_connections(&fixture, "");
    fixture.store.assert_at_rest();
    if users_can_mount(test) {
        let fixture = Fixture::new("sqlite-rust-service", "true");
        fixture.store.call(["service", "start"]).expect(0);
        conflict_between_two_connections(&fixture, SERVICE);
        fixture.store.assert_at_rest();
    }
}
