#![cfg(test)]

//! Parts of a transaction's changes land or are dropped, and the rest stays open.

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::{Fixture, Store, View, atomdir_in, shell};

const PREPARE: &str = "mkdir site lib; echo one > site/index; echo two > site/old; echo l > lib/a
    echo gone > site/gone";

const CHANGES: &str = "echo more >> site/index; mv site/old site/new; rm site/gone
    mkdir -p made/deep; echo x > made/deep/x; echo y > made/y; ln lib/a site/linked; echo z > z";

/// Runs the changes in a view of this kind and keeps the transaction open.
fn kept(store: &Store, view: &str) -> View {
    let run = [
        "run",
        "--view",
        view,
        "--on-success",
        "keep",
        "--",
        "sh",
        "-ec",
        CHANGES,
    ];
    store.call(run).expect(0);
    let status = store.call(["--json", "status"]).expect(0).text();
    let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
    View {
        id: status["transaction"].to_string(),
        path: status["view"].as_str().expect("it is exact by now").into(),
    }
}

fn tree(fixture: &Fixture) -> String {
    let find = "find . -path ./.atomdir -prune -o -type f -print | sort |
        while read -r file; do echo \"${file#./} $(tr '\\n' , < \"$file\")\"; done";
    shell(&fixture.base, find).text()
}

fn changes(store: &Store, view: &View) -> Vec<String> {
    let listed = store.call(["diff", &view.id, "--name-status"]).expect(0);
    listed.text().lines().map(str::to_owned).collect()
}

fn inside(store: &Store, view: &View, script: &str) -> String {
    store.exec(view, script).expect(0).text()
}

#[test]
fn a_part_lands_and_the_rest_stays_open() {
    Fixture::for_each_view("parts-land", PREPARE, |fixture, kind| {
        let store = &fixture.store;
        let view = kept(store, kind);
        let seen = inside(
            store,
            &view,
            "find . -type f | sort | xargs cat; find . | sort",
        );
        let landed = store
            .call(["commit", &view.id, "--", "made/deep/x"])
            .expect(0);
        assert!(landed.text().contains("stays open"), "{landed}");
        let base = tree(fixture);
        assert!(
            base.contains("made/deep/x x,\n") && !base.contains("made/y"),
            "{base}"
        );
        assert!(
            landed.text().contains("A made\n"),
            "the output must list the directory that was committed as well\n{landed}"
        );
        // Both ends of the rename, and the new name of a file whose other names stay.
        store
            .call([
                "commit",
                &view.id,
                "--",
                "site/old",
                "site/new",
                "site/linked",
            ])
            .expect(0);
        let base = tree(fixture);
        for (text, is_there) in [
            ("site/new two", true),
            ("site/old", false),
            ("site/linked l", true),
            ("site/index one,\n", true),
            ("more", false),
            ("site/gone", true),
        ] {
            assert_eq!(base.contains(text), is_there, "{text}: {base}");
        }
        let still = inside(
            store,
            &view,
            "find . -type f | sort | xargs cat; find . | sort",
        );
        assert_eq!(still, seen, "the view is as before");
        let left = store
            .call(["diff", &view.id, "--name-status"])
            .expect(0)
            .text();
        assert_eq!(left, "A made/y\nD site/gone\nM site/index\nA z\n");
        let same = "[ site/linked -ef lib/a ] && echo later >> made/deep/x && echo ok";
        assert_eq!(inside(store, &view, same), "ok\n");
        store.commit(&view).expect(0);
        let base = tree(fixture);
        for text in [
            "made/deep/x x,later,",
            "made/y y,",
            "site/index one,more,",
            "z z",
        ] {
            assert!(base.contains(text), "{text}: {base}");
        }
        assert!(!base.contains("site/gone"), "{base}");
    });
}

#[test]
fn a_part_is_dropped_and_the_rest_stays_open() {
    Fixture::for_each_view("parts-drop", PREPARE, |fixture, kind| {
        let store = &fixture.store;
        let before = tree(fixture);
        let view = kept(store, kind);
        let mut all = changes(store, &view);
        // Paths are relative to the directory in which the command is called.
        let site = store.path().join("site");
        let abort = ["abort", &view.id, "--", "index", "../made/deep", "gone"];
        let dropped = atomdir_in(store.user(), &site, abort).expect(0);
        assert!(dropped.text().contains("stays open"), "{dropped}");
        let left = changes(store, &view);
        all.retain(|line| {
            !["site/index", "made/deep", "site/gone"]
                .iter()
                .any(|path| line.contains(path))
        });
        assert_eq!(left, all);
        let read = "cat site/index site/gone; [ ! -e made/deep ] && echo gone";
        assert_eq!(inside(store, &view, read), "one\ngone\ngone\n");
        store
            .call(["abort", &view.id, "--", "made", "site", "z"])
            .expect(0);
        let nothing = store.call(["diff", &view.id, "--name-status"]).expect(0);
        assert_eq!(nothing.text(), "");
        store.commit(&view).expect(0);
        assert_eq!(tree(fixture), before);
    });
}

#[test]
fn a_conflict_in_one_place_does_not_hold_up_the_rest() {
    Fixture::for_each_owner("parts-conflict", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = kept(store, "exact");
        store.run("echo theirs > site/index").expect(0);
        store.commit(&view).expect(CONFLICT).says(&["site/index"]);
        let part = ["commit", &view.id, "--", "site/index"];
        store.call(part).expect(CONFLICT).says(&["site/index"]);
        store
            .call(["commit", &view.id, "--", "made", "site/new"])
            .expect(0);
        assert!(!tree(fixture).contains("site/old"), "the old name must go");
        assert_eq!(inside(store, &view, "cat site/index"), "one\nmore\n");
        store
            .call(["abort", &view.id, "--", "site/index"])
            .expect(0);
        // The snapshot stays that of the begin.
        assert_eq!(inside(store, &view, "cat site/index"), "one\n");
        store.commit(&view).expect(0);
        let base = tree(fixture);
        assert!(
            base.contains("site/index theirs") && base.contains("z z"),
            "{base}"
        );
    });
}

#[test]
fn changes_that_cannot_be_split_are_refused() {
    Fixture::for_each_owner("parts-refused", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = store.begin_with(&["--isolation", "serializable"]);
        inside(store, &view, "echo x > z");
        let whole = store.call(["commit", &view.id, "--", "z"]).expect(USAGE);
        whole.says(&["as a whole", "read"]);
        store.abort(&view).expect(0);
        let view = store.begin();
        inside(store, &view, "echo x > z");
        let nothing = store
            .call(["commit", &view.id, "--", "z", "site"])
            .expect(USAGE);
        nothing.says(&["changed nothing at 'site'"]);
        let outside = store
            .call(["abort", &view.id, "--", "../other"])
            .expect(USAGE);
        outside.says(&["not in the store"]);
        store.abort(&view).expect(0);
    });
}

/// The record and the view name only the name through which the file was written. In native views
/// ordinary users cannot change files with several names.
#[test]
fn any_name_of_a_changed_file_selects_its_changes() {
    let prepare = "mkdir d; echo one > a; ln a b; ln a d/c; echo one > other";
    Fixture::for_each_owner("parts-names", prepare, |fixture| {
        let store = &fixture.store;
        let contents = |wanted: &str| {
            let shown = shell(&fixture.base, "cat a b d/c | sort -u; stat -c %h a").text();
            assert_eq!(shown, format!("{wanted}\n3\n"));
        };
        let write = ["run", "--view", "exact", "--on-success", "keep", "--"];
        let write = [&write[..], &["sh", "-ec", "echo two > a; echo two > other"]].concat();
        let changed = || {
            store.call(&write).expect(0);
            let status = store.call(["--json", "status"]).expect(0).text();
            let status: serde_json::Value = serde_json::from_str(&status).expect("it is JSON");
            status["transaction"].to_string()
        };

        let id = changed();
        store.call(["abort", &id, "--", "b"]).expect(0);
        let left = store.call(["diff", &id, "--name-status"]).expect(0).text();
        assert_eq!(left, "M other\n");
        store.call(["abort", &id]).expect(0);

        let id = changed();
        store.call(["commit", &id, "--", "d/c"]).expect(0);
        contents("two");
        let left = store.call(["diff", &id, "--name-status"]).expect(0).text();
        assert_eq!(left, "M other\n");
        store.call(["abort", &id]).expect(0);

        store.call(["undo", "1", "--", "b"]).expect(0);
        contents("one");
        let refused = store.call(["undo", "1", "--", "other"]).expect(NO_SUCH);
        refused.says(&["'other' was not changed by these commits"]);
    });
}

/// Whatever a part changes in a directory that outside writers have taken away, it is a conflict, and
/// the rest can land.
#[test]
fn a_part_in_a_directory_that_is_gone_is_a_conflict() {
    for taken in ["rm -rf lib", "mv lib other", "rm -rf lib; mkdir lib"] {
        Fixture::for_each_view("parts-gone", PREPARE, |fixture, kind| {
            let store = &fixture.store;
            let changes = "echo x > lib/new; echo x > lib/a; mkdir lib/made; echo z > z";
            let options = ["--on-success", "keep", "--view", kind];
            store.run_with(&options, changes).expect(0);
            shell(&fixture.base, taken);
            let list = store.call(["--json", "status"]).expect(0).text();
            let status: serde_json::Value = serde_json::from_str(&list).expect("it is JSON");
            let id = status["transaction"].to_string();
            for path in ["lib/new", "lib/made", "lib/a", "lib"] {
                let part = ["commit", &id, "--", path];
                store.call(part).expect(CONFLICT).says(&[path]);
            }
            store.call(["commit", &id, "--", "z"]).expect(0);
            store.call(["abort", &id]).expect(0);
        });
    }
}
