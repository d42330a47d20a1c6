#![cfg(test)]

//! Conflicts are listed and numbered, and a commit takes sides in them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, Outcome, View, capture_output, tools_present};

const PREPARE: &str = "mkdir dir; for name in a b c d; do echo old > $name; done; echo x > dir/x";

fn read(fixture: &Fixture, path: &str) -> Option<String> {
    fs::read_to_string(fixture.base.join(path)).ok()
}

/// A transaction in conflict with a commit and with an outside writer.
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
        // Each conflict must get exactly one side.
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

/// A conflict about a directory: what is there, what the transaction does and what others do, and
/// what is there after the transaction's side was taken. `None`: that side cannot be taken.
const DIRECTORIES: [(&str, &str, &str, Option<&str>); 11] = [
    ("chmod 755 .", "chmod 700 .", "chmod 711 .", Some("700\n")),
    ("mkdir d", "chmod 700 d", "chmod 711 d", Some("755 d:700\n")),
    (
        "mkdir d; echo x > d/x",
        "rm -r d",
        "chmod 711 d",
        Some("755\n"),
    ),
    (
        "mkdir -p d/e; echo x > d/e/x",
        "rm -r d",
        "chmod 711 d/e; echo y > d/e/x",
        Some("755\n"),
    ),
    (
        "mkdir d",
        "mv d e; chmod 700 e",
        "chmod 711 d",
        Some("755 e:700\n"),
    ),
    (
        "true",
        "mkdir d; chmod 700 d",
        "echo f > d",
        Some("755 d:700\n"),
    ),
    ("mkdir d; echo x > d/x", "rm -r d", "echo n > d/n", None),
    ("mkdir d; echo x > d/x", "chmod 700 d", "rm -r d", None),
    (
        "true",
        "mkdir d; chmod 700 d",
        "mkdir d; echo y > d/y",
        None,
    ),
    ("mkdir d", "mv d e", "mv d f", None),
    (
        "mkdir d; echo x > d/x",
        "rm -r d",
        "rm d/x; echo y > d/x",
        None,
    ),
];

#[test]
fn taking_a_side_of_a_directory_works_or_is_refused_with_the_reason() {
    let look = "find . -path ./.atomdir -prune -o -path . -printf %m -o -printf ' %P:%m' | \
                tr '\\n' ' '; echo";
    for (prepare, mine, theirs, outcome) in DIRECTORIES {
        Fixture::for_each_owner("conflict-directories", prepare, |fixture| {
            let store = &fixture.store;
            let what = format!("{prepare}, {mine}, {theirs}");
            store.run_exact("chmod 755 .").expect(0);
            let view = store.begin();
            store.exec(&view, mine).expect(0);
            store.run_exact(theirs).expect(0);
            let there = store.run_exact(look).expect(0).text();
            store.commit(&view).expect(CONFLICT);
            store.call(["conflicts", &view.id]).expect(0);
            let taken = take(fixture, &view, &["--take-mine", "all"]);
            match outcome {
                Some(outcome) => {
                    taken.expect(0);
                    let now = store.run_exact(look).expect(0).text();
                    assert_eq!(now, outcome, "{what}");
                }
                None => {
                    taken.expect(USAGE).says(&["side cannot be taken"]);
                    take(fixture, &view, &["--take-theirs", "all"]).expect(0);
                    let now = store.run_exact(look).expect(0).text();
                    assert_eq!(now, there, "{what}");
                }
            }
        });
    }
}

/// A commit removes the contents of a directory only if they are still as they were listed.
#[test]
fn a_change_after_the_list_in_a_removed_directory_is_not_lost() {
    Fixture::for_each_owner("conflict-removed", PREPARE, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store.exec(&view, "rm -r dir").expect(0);
        fs::write(fixture.base.join("dir/x"), "outside\n").expect("written");
        store.call(["conflicts", &view.id]).expect(0);
        fs::write(fixture.base.join("dir/x"), "later!\n").expect("written");
        take(fixture, &view, &["--take-mine", "1"])
            .expect(CONFLICT)
            .says(&["dir/x:"]);
        assert_eq!(read(fixture, "dir/x").as_deref(), Some("later!\n"));
        store.call(["conflicts", &view.id]).expect(0);
        take(fixture, &view, &["--take-mine", "1"]).expect(0);
        assert!(!fixture.base.join("dir").exists());
    });
}

/// Conflicts name the other commit, not an outside writer, even if the service was killed right
/// after that commit.
#[test]
fn commits_are_named_in_conflicts_after_a_kill() {
    let mine = "printf X | dd of=f conv=notrunc bs=1 seek=50000 status=none";
    let theirs = "printf Y | dd of=f conv=notrunc bs=1 seek=5 status=none";
    for (mine, theirs, outcome) in [
        (mine, theirs, Some("X")),
        (mine, "chmod 600 f", Some("X")),
        (mine, mine, Some("X")),
        ("chmod 600 f", theirs, Some("")),
        ("rm f g", theirs, None),
    ] {
        let prepare = "seq 20000 > f; chmod 644 f; ln f g";
        Fixture::for_each_owner("conflict-killed", prepare, |fixture| {
            let store = &fixture.store;
            let view = store.begin();
            store.exec(&view, mine).expect(0);
            store.run_exact(theirs).expect(0);
            assert!(store.kill_service());
            let listed = store.call(["conflicts", &view.id]).expect(0).text();
            let what = format!("{mine}, {theirs}: {listed}");
            assert!(!listed.contains("outside writer"), "{what}");
            assert!(listed.contains("by commit 1"), "{what}");
            take(fixture, &view, &["--take-mine", "all"]).expect(0);
            let text = read(fixture, "f");
            assert_eq!(text.is_some(), outcome.is_some(), "{what}");
            let has_mine = |text: String| text.contains(outcome.unwrap_or_default());
            assert!(text.is_none_or(has_mine), "{what}");
        });
    }
}

const TEXTS: &str =
    "for name in written replaced both clash attributes outside mixed; do seq 9 > $name; done";

/// Others have changed the start of most texts, and the transaction the end. In `clash` both have
/// changed the same line, both have made `new`, and both have changed the mode of `attributes`.
fn in_texts(fixture: &Fixture) -> View {
    let store = &fixture.store;
    let view = store.begin();
    let mine = "printf 'mine\n' >> written; sed -i 's/9/mine/' replaced both outside mixed; sed -i 's/5/mine/' \
                clash; printf 'mine\n' > new; chmod 600 attributes";
    store.exec(&view, mine).expect(0);
    let theirs = "for name in written replaced; do printf 'X' | dd of=$name conv=notrunc \
                  status=none; done; sed -i 's/1/X/' both; sed -i 's/5/theirs/' clash; printf \
                  'theirs\n' > new; sed -i 's/2/theirs/' mixed; chmod 604 attributes";
    // No snapshot keeps what an outside writer overwrites, but `sed` has read it.
    for name in ["outside", "mixed"] {
        let text = read(fixture, name).expect("it is there");
        fs::write(fixture.base.join(name), text.replace('1', "X")).expect("written");
    }
    store.run(theirs).expect(0);
    view
}

#[test]
fn texts_are_merged_by_lines() {
    Fixture::for_each_owner("conflict-merge", TEXTS, |fixture| {
        let store = &fixture.store;
        let view = in_texts(fixture);
        let refused = take(fixture, &view, &["--merge"]).expect(CONFLICT);
        let refused = refused.says(&[
            "1  attributes: the conflict is not about its contents",
            "3  clash: both sides have changed the same lines",
            "5  new: both sides have changed the same lines",
        ]);
        for merged in ["4  mixed", "6  outside"] {
            assert!(!refused.error_text().contains(merged), "{refused}");
        }
        let patch = store
            .call(["conflicts", &view.id, "--patch"])
            .expect(0)
            .text();
        assert!(
            patch.contains("\n-5\n+theirs\n") && patch.contains("\n-5\n+mine\n"),
            "{patch}"
        );
        let json = store
            .call(["--json", "conflicts", &view.id, "--patch"])
            .expect(0);
        let json: serde_json::Value = serde_json::from_str(&json.text()).expect("it is JSON");
        let theirs = json["conflicts"][2]["theirs"].as_str().expect("it is text");
        assert!(theirs.contains("+theirs"), "{json}");
        // The refused commit has changed nothing in the view.
        assert_eq!(store.exec(&view, "head -n 1 both").expect(0).text(), "1\n");
        let sides = [
            "--merge=2,4,6,7,8",
            "--take-theirs",
            "1,5",
            "--take-mine",
            "all",
        ];
        take(fixture, &view, &sides).expect(0);
        let numbers = |first: &str, last: &str| format!("{first}\n2\n3\n4\n5\n6\n7\n8\n{last}\n");
        for (path, text) in [
            ("written", numbers("X", "9\nmine")),
            ("replaced", numbers("X", "mine")),
            ("both", numbers("X", "mine")),
            ("outside", numbers("X", "mine")),
            ("mixed", numbers("X", "mine").replace('2', "theirs")),
            ("clash", numbers("1", "9").replace('5', "mine")),
            ("new", "theirs\n".to_owned()),
        ] {
            assert_eq!(read(fixture, path), Some(text), "{path}");
        }
        let mode = fixture
            .base
            .join("attributes")
            .metadata()
            .expect("it is there");
        assert_eq!(mode.permissions().mode() & 0o777, 0o604);
    });
}

/// The path of a tool that git knows, a command line, and a path that does not exist.
#[test]
fn texts_are_merged_by_the_tool_of_gits_configuration() {
    if !tools_present("git's merge tool", &["git"]) {
        return;
    }
    let merging = "#!/bin/sh\nwhile [ $1 != -o ]; do shift; done; cat $3 $4 > $2\n";
    Fixture::for_each_owner("conflict-git-tool", TEXTS, |fixture| {
        let store = &fixture.store;
        let config = fixture.scratch.path().join("gitconfig");
        let tool = fixture.scratch.path().join("our tool");
        fs::write(&tool, merging).expect("it is written");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("it is ours");
        for (setting, exit_code) in [
            ("[mergetool \"tkdiff\"] path = TOOL", 0),
            (
                "[mergetool \"tkdiff\"] cmd = cat $LOCAL $REMOTE > $MERGED",
                0,
            ),
            ("[mergetool \"tkdiff\"] path = /no/such/tool", CONFLICT),
        ] {
            let quoted = format!("\"{}\"", tool.display());
            let setting = setting.replace("TOOL", &quoted);
            fs::write(&config, format!("[merge] tool = tkdiff\n{setting}\n")).expect("written");
            store.run(&format!("rm -f *; {TEXTS}")).expect(0);
            let view = in_texts(fixture);
            store.call(["conflicts", &view.id]).expect(0);
            let arguments = ["--merge=3", "--take-mine", "all", "--tool"];
            let mut merge = store.command(["commit", &view.id].iter().chain(&arguments));
            capture_output(merge.env("GIT_CONFIG_GLOBAL", &config)).expect(exit_code);
            if exit_code == 0 {
                let text = read(fixture, "clash").expect("it is there");
                assert!(text.contains("mine") && text.contains("theirs"), "{text}");
            } else {
                store.call(["abort", &view.id]).expect(0);
            }
        }
    });
}

#[test]
fn texts_that_do_not_merge_are_merged_by_hand() {
    Fixture::for_each_owner("conflict-markers", TEXTS, |fixture| {
        let store = &fixture.store;
        let view = in_texts(fixture);
        store.call(["conflicts", &view.id]).expect(0);
        let clash = ["--merge=3", "--take-mine", "all", "--markers"];
        take(fixture, &view, &clash).expect(CONFLICT);
        assert!(read(fixture, "clash").is_some_and(|text| text.contains("theirs")));
        let edit = "grep -q '^[<]\\{7\\} ' clash && sed -i '/^[<|=>]\\{7\\}/d' clash";
        store.exec(&view, edit).expect(0);
        take(
            fixture,
            &view,
            &["--take-mine", "3", "--take-theirs", "all"],
        )
        .expect(0);
        let text = read(fixture, "clash").expect("it is there");
        assert_eq!(text, "1\n2\n3\n4\nmine\n5\ntheirs\n6\n7\n8\n9\n");
        store.run(&format!("rm *; {TEXTS}")).expect(0);
        let view = in_texts(fixture);
        store.call(["conflicts", &view.id]).expect(0);
        let tool = |command: &str| {
            let arguments = ["--merge=3", "--take-mine", "all", "--tool"];
            let mut merge = store.command(["commit", &view.id].iter().chain(&arguments));
            capture_output(merge.env("ATOMDIR_MERGE", command))
        };
        tool("false")
            .expect(CONFLICT)
            .says(&["3  clash: the merge tool has not merged it"]);
        // The user of the tool may have quit without a decision.
        for (undecided, why) in [
            ("true", "has not changed it"),
            ("echo more >> $MERGED", "has left conflict markers in it"),
        ] {
            let refused = tool(undecided).expect(CONFLICT);
            refused.says(&[&format!("3  clash: the merge tool {why}")]);
        }
        let command = "diff $BASE $REMOTE | grep -q '> theirs' && cat $LOCAL $REMOTE > $MERGED";
        tool(command).expect(0);
        let text = read(fixture, "clash").expect("it is there");
        assert_eq!(
            text,
            "1\n2\n3\n4\nmine\n6\n7\n8\n9\n1\n2\n3\n4\ntheirs\n6\n7\n8\n9\n"
        );
    });
}

/// What is left of it may depend on anything that it has read, so no advice names a side or a part.
#[test]
fn conflict_of_a_serializable_transaction_offers_no_side() {
    let fixture = Fixture::new("sides-serializable", PREPARE);
    let store = &fixture.store;
    let view = store.begin_with(&["--isolation", "serializable"]);
    store.exec(&view, "cat a; echo mine > b").expect(0);
    store.run("echo theirs > a").expect(0);
    for verb in ["commit", "refresh", "conflicts"] {
        let outcome = store.call([verb, &view.id]);
        assert!(!outcome.error_text().contains("--merge"), "{outcome}");
        assert!(!outcome.error_text().contains("PATH"), "{outcome}");
        outcome.says(&["no side can be taken", "atomdir abort"]);
    }
    store.call(["abort", &view.id]).expect(0);
    store.assert_at_rest();
}
