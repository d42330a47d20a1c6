#![cfg(test)]

//! Conflicts are listed and numbered, and a commit takes sides in them.

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, Outcome, View};

const PREPARE: &str = "mkdir dir; for name in a b c d; do echo old > $name; done; echo x > dir/x";

fn read(fixture: &Fixture, path: &str) -> Option<String> {
    fs::read_to_string(fixture.base.join(path)).ok()
}

/// A transaction of which a commit and an outside writer have changed the same.
fn in_conflict(fixture: &Fixture) -> View {
    let store = &fixture.store;
    let view = store.begin();
    let mine = "for name in a b c new; do echo mine > $name; done; rm -r dir; echo mine > mine";
    store.exec(&view, mine).expect(0);
    store
        .run("for name in a b new dir/y; do echo theirs > $name; done")
        .expect(0);
    fs::write(fixture.base.join("c"), "outside\n").expect("written");
    view
}

fn take(fixture: &Fixture, view: &View, sides: &[&str]) -> Outcome {
    let commit = ["commit", &view.id];
    fixture.store.call(commit.iter().chain(sides))
}

#[test]
fn a_commit_takes_the_sides_that_were_named() {
    Fixture::for_each_owner("conflict-sides", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = in_conflict(fixture);
        store
            .commit(&view)
            .expect(CONFLICT)
            .says(&["atomdir conflicts"]);
        let listed = store.call(["conflicts", &view.id]).expect(0).text();
        let lines: Vec<&str> = listed.lines().collect();
        for (number, path, by) in [
            ("1", "a:", "by commit 1"),
            ("2", "b:", "by commit 1"),
            ("3", "c:", "by an outside writer"),
            ("4", "dir/y:", "by commit 1"),
            ("5", "new:", "by commit 1"),
        ] {
            let is_it = |line: &&str| {
                line.trim_start().starts_with(&format!("{number}  {path}")) && line.contains(by)
            };
            assert!(lines.iter().any(is_it), "{number}: {listed}");
        }
        let json = store.call(["--json", "conflicts", &view.id]).expect(0);
        let json: serde_json::Value = serde_json::from_str(&json.text()).expect("it is JSON");
        assert_eq!(json["conflicts"][2]["by"], "outside");
        assert_eq!(json["conflicts"][0]["commit"], 1);
        assert!(json["conflicts"][0]["time"].is_string(), "{json}");
        // Each must be named, and each once.
        take(fixture, &view, &["--take-mine", "1,3,5"]).expect(CONFLICT);
        take(
            fixture,
            &view,
            &["--take-mine", "1,4", "--take-theirs", "all"],
        )
        .expect(USAGE);
        take(fixture, &view, &["--take-mine", "9"]).expect(USAGE);
        assert_eq!(store.exec(&view, "cat b").expect(0).text(), "mine\n");
        let sides = ["--take-mine", "1,3,5", "--take-theirs", "all"];
        let done = take(fixture, &view, &sides).expect(0).text();
        assert!(done.contains("M b\n") && done.contains("D dir\n"), "{done}");
        for (path, text) in [
            ("a", "mine\n"),
            ("b", "theirs\n"),
            ("c", "mine\n"),
            ("d", "old\n"),
            ("dir/x", "x\n"),
            ("dir/y", "theirs\n"),
            ("mine", "mine\n"),
            ("new", "mine\n"),
        ] {
            assert_eq!(read(fixture, path).as_deref(), Some(text), "{path}");
        }
    });
}

#[test]
fn a_change_that_came_after_the_list_is_not_overwritten() {
    Fixture::for_each_owner("conflict-late", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = in_conflict(fixture);
        let all = ["--take-mine", "1,2,3,5", "--take-theirs", "4"];
        // Nothing was listed yet.
        take(fixture, &view, &["--take-mine", "all"]).expect(CONFLICT);
        store.call(["conflicts", &view.id]).expect(0);
        store.run("echo later > a").expect(0);
        fs::write(fixture.base.join("c"), "later!\n").expect("written");
        take(fixture, &view, &all)
            .expect(CONFLICT)
            .says(&["a:", "c:"]);
        assert_eq!(read(fixture, "a").as_deref(), Some("later\n"));
        assert_eq!(read(fixture, "b").as_deref(), Some("theirs\n"));
        store.call(["conflicts", &view.id]).expect(0);
        take(fixture, &view, &all).expect(0);
        assert_eq!(read(fixture, "a").as_deref(), Some("mine\n"));
        assert_eq!(read(fixture, "c").as_deref(), Some("mine\n"));
    });
}
