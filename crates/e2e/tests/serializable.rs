//! Under `--isolation serializable`, what was read must not have changed
//! either: contents, attributes, names found and not found, listings.

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, skip};

const TREE: &str =
    "echo 1 > x; echo 1 > y; mkdir dir; echo old > dir/file; mkdir out; ln -s x link";

/// `reader` reads and writes something of its own while `writer` commits.
fn outcome_of(reader: &str, writer: &str) -> Option<i32> {
    let fixture = Fixture::new("serializable", TREE);
    let store = &fixture.store;
    let refused = store.call(["run", "--isolation", "serializable", "--", "true"]);
    if refused.code != 0 {
        let text = refused.error_text().to_lowercase();
        assert!(text.contains("serializable"), "{refused}");
        skip(
            "serializable",
            "this atomdir refuses --isolation serializable",
        );
        return None;
    }
    let view = store.begin_with(&["--isolation", "serializable"]);
    store.exec(&view, reader).expect(0);
    store.run(writer).expect(0);
    let outcome = store.commit(&view);
    if outcome.code == 75 {
        store.abort(&view).expect(0);
    }
    store.assert_at_rest();
    Some(outcome.code)
}

#[test]
fn what_was_read_and_changed_conflicts() {
    for (reader, writer) in [
        ("cat x > out/mine", "echo 2 > x"),
        (
            "cat y > out/mine",
            "printf 2 | dd of=y conv=notrunc status=none",
        ),
        ("stat -c %a x > out/mine", "chmod 600 x"),
        ("test -e dir/file; echo > out/mine", "rm dir/file"),
        ("test ! -e dir/new; echo > out/mine", "echo new > dir/new"),
        ("ls dir > out/mine", "echo new > dir/new"),
        ("ls dir > out/mine", "rm dir/file"),
        ("readlink link > out/mine", "ln -sfn y link"),
        ("cat dir/file > out/mine", "mv dir moved"),
    ] {
        let Some(code) = outcome_of(reader, writer) else {
            return;
        };
        assert_eq!(code, 75, "{reader} | {writer}");
    }
}

#[test]
fn what_was_not_read_does_not_conflict() {
    for (reader, writer) in [
        ("cat x > out/mine", "echo 2 > y"),
        ("cat x > out/mine", "echo other > out/theirs"),
        (
            "test ! -e dir/new; echo > out/mine",
            "echo newer > dir/newer",
        ),
        ("cat x > out/mine", "touch -a x"),
    ] {
        let Some(code) = outcome_of(reader, writer) else {
            return;
        };
        assert_eq!(code, 0, "{reader} | {writer}");
    }
}

/// Write skew: each keeps the rule "at least one of x, y is 1" by what it
/// read, both together would not.
#[test]
fn write_skew_is_refused() {
    let fixture = Fixture::new("skew", TREE);
    let store = &fixture.store;
    if store
        .call(["run", "--isolation", "serializable", "--", "true"])
        .code
        != 0
    {
        skip(
            "write_skew_is_refused",
            "this atomdir refuses --isolation serializable",
        );
        return;
    }
    let views = [(); 2].map(|()| store.begin_with(&["--isolation", "serializable"]));
    store
        .exec(&views[0], "test $(cat y) = 1; echo 0 > x")
        .expect(0);
    store
        .exec(&views[1], "test $(cat x) = 1; echo 0 > y")
        .expect(0);
    store.commit(&views[0]).expect(0);
    store.commit(&views[1]).expect(CONFLICT).says(&["x"]);
    store.abort(&views[1]).expect(0);
    store.assert_at_rest();
}
