#![cfg(test)]

//! Files that others have replaced, removed or moved, and changes of others that are no conflict.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{Fixture, Outcome, User, as_user, shell, tools_present};

fn read(fixture: &Fixture, path: &str) -> Option<String> {
    fs::read_to_string(fixture.base.join(path)).ok()
}

/// The number of the commit that the command has made.
fn number_of(committed: &Outcome) -> String {
    let text = committed.text();
    let number = text
        .strip_prefix("commit ")
        .and_then(|rest| rest.split(':').next());
    number.expect("it has a number").to_owned()
}

/// What the outside writers, or a commit, do to each of these files meanwhile, and what is there after
/// the transaction's side was taken in all of them. The transaction has appended a line.
const TAKEN: [(&str, &str, &str); 6] = [
    ("replaced", "sed -i s/1/theirs/ replaced", "9\nmine\n"),
    ("renamed", "echo theirs > t; mv t renamed", "9\nmine\n"),
    ("made", "rm made; echo theirs > made", "9\nmine\n"),
    ("link", "rm link; ln -s replaced link", "9\nmine\n"),
    ("removed", "rm removed", "9\nmine\n"),
    ("moved", "mv moved elsewhere", "9\nmine\n"),
];

#[test]
fn a_side_can_be_taken_of_replaced_removed_and_moved_files() {
    let prepare = "for name in replaced renamed made link removed moved; do seq 9 > $name; \
                   chmod 640 $name; setfattr -n user.a -v b $name; done";
    if !tools_present("setting extended attributes", &["setfattr"]) {
        return;
    }
    Fixture::for_each_view("conflict-replaced", prepare, |fixture, view| {
        let store = &fixture.store;
        for by_commit in [false, true] {
            store.run(&format!("rm -f *; {prepare}")).expect(0);
            let mine = "for name in *; do cat $name > /dev/null; echo mine >> $name; done";
            let options = ["--view", view, "--on-success", "keep"];
            store.run_with(&options, mine).expect(0);
            for (_, theirs, _) in TAKEN {
                // A commit that moves a file takes what others write to it along.
                match by_commit && !theirs.starts_with("mv") {
                    true => drop(store.run(theirs).expect(0)),
                    false => drop(shell(&fixture.base, theirs)),
                }
            }
            if !by_commit {
                let owner = fs::metadata(&fixture.base).expect("it is there");
                shell(&fixture.base, &format!("chown -h {} *", owner.uid()));
            }
            let listed = store.call(["conflicts"]).expect(0).text();
            for (path, ..) in TAKEN {
                let what = match path {
                    "removed" | "moved" => "it was removed",
                    _ => "it was replaced",
                };
                assert!(
                    listed.contains(&format!("{path}: {what}")),
                    "{view}: {listed}"
                );
            }
            let committed = store.call(["commit", "--take-mine", "all"]).expect(0);
            for (path, _, end) in TAKEN {
                let text = read(fixture, path).unwrap_or_default();
                assert!(
                    text.starts_with("1\n") && text.ends_with(end),
                    "{path}: {text}"
                );
                let found = fixture.base.join(path).symlink_metadata().expect("there");
                assert_eq!(found.permissions().mode() & 0o7777, 0o640, "{path}");
                let named = format!("getfattr -n user.a --only-values {path}");
                assert_eq!(shell(&fixture.base, &named).text(), "b", "{path}");
            }
            assert_eq!(read(fixture, "elsewhere").map(|text| text.len()), Some(18));
            store.call(["undo", &number_of(&committed)]).expect(0);
            assert_eq!(read(fixture, "renamed").as_deref(), Some("theirs\n"));
        }
    });
}

/// A user who may write to a file, and not to its directory, cannot make the file again.
#[test]
fn taking_a_side_replaces_no_file_without_the_right_to_do_so() {
    let prepare = "mkdir -m 755 closed; mkdir -m 1777 sticky; for f in closed/f sticky/f; do \
                   seq 9 > $f; chmod 666 $f; done";
    let fixture = Fixture::new("conflict-rights", prepare);
    let store = &fixture.store;
    let user = User::ordinary(fixture.scratch.path());
    if store.call(["config", "allow", &user.uid.to_string()]).code != 0 {
        return;
    }
    store.call(["service", "start"]).expect(0);
    let begun = store.call_as(&user, ["--json", "begin"]).expect(0).text();
    let begun: serde_json::Value = serde_json::from_str(&begun).expect("it is JSON");
    let id = begun["transaction"].to_string();
    let mine = "echo mine >> closed/f; echo mine >> sticky/f";
    store
        .call_as(&user, ["exec", &id, "--", "sh", "-ec", mine])
        .expect(0);
    shell(&fixture.base, "sed -i s/1/theirs/ closed/f sticky/f");
    let before = ["closed/f", "sticky/f"].map(|path| read(&fixture, path));
    store.call_as(&user, ["conflicts", &id]).expect(0);
    let refused = store.call_as(&user, ["commit", &id, "--take-mine", "all"]);
    assert_ne!(refused.code, 0, "{refused}");
    let after = ["closed/f", "sticky/f"].map(|path| read(&fixture, path));
    assert_eq!(before, after);
    store
        .call_as(&user, ["commit", &id, "--take-theirs", "all"])
        .expect(0);
    store.assert_at_rest();
}

/// The file is too long to be remembered, so nobody knows what it was before.
#[test]
fn both_sides_are_offered_whole_where_the_old_text_is_not_known() {
    Fixture::for_each_view("conflict-unknown", "seq 300000 > long", |fixture, view| {
        let store = &fixture.store;
        let options = ["--view", view, "--on-success", "keep"];
        store.run_with(&options, "echo mine >> long").expect(0);
        shell(&fixture.base, "sed -i s/^1$/theirs/ long");
        let patch = store.call(["conflicts", "--patch"]).expect(0).text();
        assert!(
            patch.contains("-theirs\n") && patch.contains("+mine\n"),
            "{patch}"
        );
        let refused = store.call(["commit", "--merge"]).expect(CONFLICT);
        refused.says(&["what it was before is not known", "--markers"]);
        store
            .call(["commit", "--merge", "--markers"])
            .expect(CONFLICT);
        let open = store.call(["--json", "list"]).expect(0).text();
        let open: serde_json::Value = serde_json::from_str(&open).expect("it is JSON");
        let id = open["transactions"][0]["transaction"].to_string();
        let edit =
            "grep -c '^[<>=]\\{7\\}' long; sed -i -e '/^=\\{7\\}/,$d' -e '/^<\\{7\\}/d' long";
        let marked = store.call(["exec", &id, "--", "sh", "-ec", edit]).expect(0);
        assert_eq!(marked.text(), "3\n");
        store.call(["commit", &id, "--take-mine", "1"]).expect(0);
        let text = read(fixture, "long").expect("it is there");
        assert!(text.starts_with("1\n2\n") && text.ends_with("300000\nmine\n"));
    });
}

/// A transaction and an outsider, or two transactions, make the same things.
#[test]
fn equal_creations_and_times_alone_do_not_conflict() {
    let prepare = "seq 9 > touched; seq 9 > again";
    Fixture::for_each_view("conflict-equal", prepare, |fixture, view| {
        let store = &fixture.store;
        let make = "mkdir -p objects/ab/cd; echo same > objects/ab/one; ln -s one objects/ab/link; \
                    echo cached > cache";
        for by_commit in [false, true] {
            let mine = format!(
                "{make}; echo mine > objects/ab/mine; echo mine >> touched; cat again > \
                                /dev/null; echo mine >> again"
            );
            let options = ["--view", view, "--on-success", "keep"];
            store.run_with(&options, &mine).expect(0);
            let theirs = format!("{make}; echo theirs > objects/ab/theirs");
            let outside = "touch touched; seq 9 > again";
            let owner = fs::metadata(&fixture.base).expect("it is there").uid();
            let outsider = |script: &str| {
                as_user(owner, || shell(&fixture.base, script));
            };
            match by_commit {
                true => drop(store.run(&theirs).expect(0)),
                false => outsider(&theirs),
            }
            outsider(outside);
            let inode = |path: &str| fixture.base.join(path).metadata().expect("there").ino();
            let made = inode("objects/ab/one");
            store.call(["conflicts"]).expect(0).says(&["no conflicts"]);
            let committed = store.call(["commit"]).expect(0);
            assert!(!committed.text().contains("cache"), "{committed}");
            assert_eq!(inode("objects/ab/one"), made, "theirs stays");
            for (path, text) in [
                ("objects/ab/mine", "mine\n"),
                ("objects/ab/theirs", "theirs\n"),
                ("objects/ab/link", "same\n"),
                ("cache", "cached\n"),
                ("touched", "1\n2\n3\n4\n5\n6\n7\n8\n9\nmine\n"),
                ("again", "1\n2\n3\n4\n5\n6\n7\n8\n9\nmine\n"),
            ] {
                assert_eq!(read(fixture, path).as_deref(), Some(text), "{view}: {path}");
            }
            // An undo of the commit leaves alone what the others have made.
            store.call(["undo", &number_of(&committed)]).expect(0);
            assert_eq!(read(fixture, "cache").as_deref(), Some("cached\n"));
            assert!(read(fixture, "objects/ab/mine").is_none());
            store.run("rm -r objects cache").expect(0);
        }
    });
}
