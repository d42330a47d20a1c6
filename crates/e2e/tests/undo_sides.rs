//! `atomdir undo` where something was changed again later: the list, the sides, skipped paths; and
//! which commits words and times mean.

#![cfg(test)]

use std::fs;

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, USAGE};
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal};
use atomdir_testing::{Fixture, Outcome, shell};

fn assert_same(what: &str, found: &Tree, expected: &Tree) {
    assert_equal(what, found, expected, &CompareOptions::alike());
}

fn undo(one: &Fixture, words: &[&str]) -> Outcome {
    one.store.call([&["undo"], words].concat())
}

fn read(one: &Fixture, path: &str) -> String {
    fs::read_to_string(one.base.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn a_refused_undo_has_one_line_for_each_path_and_counts_the_rest() {
    let prepare = "for i in $(seq 10 68); do echo 0 > f$i; done";
    Fixture::for_each_owner("sides-list", prepare, |one| {
        one.store
            .run_exact("for i in $(seq 10 68); do echo 1 >> f$i; chmod 600 f$i; done")
            .expect(0);
        one.store
            .run_exact("for i in $(seq 10 68); do echo 2 >> f$i; chmod 640 f$i; done")
            .expect(0);
        let paths = |outcome: &Outcome| {
            let text = outcome.error_text();
            text.lines().filter(|line| line.starts_with("  f")).count()
        };
        let refused = undo(one, &["1"]).expect(CONFLICT);
        assert_eq!(paths(&refused), 20, "{refused}");
        let refused = refused.says(&[
            "at 59 paths",
            "  f10: ",
            "its contents were changed, by commit 2",
            "and 39 more paths; --all lists them",
            "--take-theirs",
            "--take-mine",
            "--skip PATH",
        ]);
        assert!(!refused.error_text().contains("  f68"), "{refused}");
        let refused = undo(one, &["--all", "1"]).expect(CONFLICT);
        assert_eq!(paths(&refused), 59, "{refused}");
        undo(one, &["1", "--take-mine"]).expect(0);
        assert_eq!(read(one, "f10"), "0\n");
        let undone = one.store.call(["--json", "undo"]).expect(0);
        let undone = undone.says(&["takes back commit 3: undo 1 --take-mine"]);
        assert!(undone.text().contains("\"undone\":[3]"), "{undone}");
        assert_eq!(read(one, "f10"), "0\n1\n2\n");
    });
}

const PREPARE: &str = "
    mkdir -p d/e; for f in one two three d/four d/e/five; do echo old > $f; done
    seq 300000 > large; ln -s one link; echo gone > gone
";

/// One commit changes all of it, in all ways.
const CHANGE: &str = "
    for f in one two three d/four d/e/five; do echo new > $f; done; printf more | dd of=large bs=1 seek=99000 conv=notrunc status=none
    ln -sfn two link; rm gone; echo made > made; mkdir m; echo in > m/in; chmod 600 two
";

#[test]
fn their_side_leaves_later_changes_and_undoes_the_rest() {
    Fixture::for_each_owner("sides-theirs", PREPARE, |one| {
        one.store.run_exact(CHANGE).expect(0);
        one.store
            .run_exact("echo later >> one; echo later >> d/four")
            .expect(0);
        shell(
            &one.base,
            "echo outside >> two; echo outside > gone; sed -i s/made/remade/ made; echo x > m/x",
        );
        let before = one.look();
        undo(one, &["1"]).expect(CONFLICT);
        let refused = undo(one, &["1", "--take-theirs=d"]).expect(CONFLICT);
        assert!(!refused.error_text().contains("  d/four"), "{refused}");
        assert_same("after refusals", &one.look(), &before);
        let shown = undo(one, &["1", "--take-theirs", "--dry-run"]).expect(0);
        let shown = shown.says(&["leaves one", "by commit 2", "leaves two", "outside writer"]);
        assert!(shown.text().contains("d/e/five"), "{shown}");
        assert_same("after --dry-run", &one.look(), &before);
        undo(one, &["1", "--take-theirs"]).expect(0);
        for (path, text) in [
            ("one", "new\nlater\n"),
            ("two", "new\noutside\n"),
            ("three", "old\n"),
            ("d/four", "new\nlater\n"),
            ("d/e/five", "old\n"),
            ("gone", "outside\n"),
            ("made", "remade\n"),
            ("m/in", "in\n"),
            ("m/x", "x\n"),
            ("link", "old\nlater\n"),
        ] {
            let text = if path == "link" { "new\nlater\n" } else { text };
            assert_eq!(read(one, path), text, "{path}");
        }
        assert_eq!(
            fs::read_link(one.base.join("link"))
                .expect("a link")
                .to_str(),
            Some("one")
        );
        assert!(!read(one, "large").contains("more"));
        undo(one, &["last"]).expect(0);
        assert_same("the undo of the undo", &one.look(), &before);
    });
}

#[test]
fn my_side_brings_back_what_was_there_before_and_can_be_undone() {
    Fixture::for_each_owner("sides-mine", PREPARE, |one| {
        let old = one.look();
        one.store.run_exact(CHANGE).expect(0);
        one.store
            .run_exact("echo later >> one; echo later > d/four")
            .expect(0);
        shell(
            &one.base,
            "echo outside >> two; echo outside > gone; sed -i s/made/remade/ made; echo x > m/x
             sed -i s/new/newer/ three; chmod 755 two; ln -sfn three link; rm d/e/five",
        );
        let later = one.look();
        let refused = undo(one, &["1", "--take-mine=one"]).expect(CONFLICT);
        assert!(!refused.error_text().contains("  one"), "{refused}");
        assert_same("after a refusal", &one.look(), &later);
        undo(one, &["1", "--take-mine"])
            .expect(0)
            .says(&["overwrites one", "overwrites m/x"]);
        assert_same("my side", &one.look(), &old);
        let log = one.store.call(["log", "--oneline"]).expect(0).text();
        assert!(log.contains("[undone by 3]"), "{log}");
        undo(one, &["3"]).expect(0);
        assert_same("the undo of that", &one.look(), &later);
        undo(one, &["4"]).expect(0);
        assert_same("my side again", &one.look(), &old);
    });
}

#[test]
fn my_side_is_refused_where_the_old_state_is_not_known_or_a_directory_would_be_lost() {
    Fixture::for_each_owner("sides-refused", PREPARE, |one| {
        one.store.run_exact("printf more | dd of=large bs=1 seek=99000 conv=notrunc status=none; mkdir n; echo 1 > n/f").expect(0);
        shell(
            &one.base,
            "echo outside >> large; mkdir n/sub; echo 2 > n/sub/g",
        );
        let before = one.look();
        let refused = undo(one, &["1", "--take-mine", "--skip", "n"]).expect(USAGE);
        refused.says(&["'large'", "is not known", "--take-theirs=PATH"]);
        let refused = undo(one, &["1", "--take-mine", "--skip", "large"]).expect(USAGE);
        refused.says(&["'n/sub'", "directory", "--take-theirs=PATH"]);
        assert_same("after refusals", &one.look(), &before);
        let both = [
            "1",
            "--take-mine",
            "--take-theirs=large",
            "--take-theirs=n/sub",
        ];
        undo(one, &both).expect(0);
        assert_same("all of it stays", &one.look(), &before);
        undo(one, &["1", "--take-mine", "--take-theirs"])
            .expect(USAGE)
            .says(&["only one side"]);
    });
}

#[test]
fn names_that_belong_together_are_not_torn_apart() {
    let prepare = "echo 1 > a; ln a b; echo 2 > c; mkdir d; echo 3 > d/f";
    Fixture::for_each_owner("sides-names", prepare, |one| {
        one.store.run_exact("mv c moved; rm b; mv d e").expect(0);
        one.store
            .run_exact("echo later > c; echo other > b; mkdir d; echo x > d/x")
            .expect(0);
        let before = one.look();
        undo(one, &["1", "--take-mine"]).expect(USAGE);
        assert_same("after a refusal", &one.look(), &before);
        undo(one, &["1", "--take-theirs"]).expect(0);
        assert_same("all of it stays", &one.look(), &before);
        undo(
            one,
            &["1", "--take-theirs=d", "--take-theirs=b", "--take-theirs=c"],
        )
        .expect(0);
        assert_same("all of it stays again", &one.look(), &before);
    });
}

#[test]
fn skipped_paths_stay_with_all_that_needs_them() {
    Fixture::for_each_owner(
        "sides-skip",
        "mkdir a b; echo 1 > a/f; echo 1 > b/f",
        |one| {
            one.store
                .run_exact("echo 2 > a/f; echo 2 > b/f; mkdir n; echo 2 > n/f")
                .expect(0);
            one.store
                .run_exact("echo 3 > n/g; mkdir n/k; mv b/f n/k/f")
                .expect(0);
            let before = one.look();
            undo(one, &["1..2", "--skip", "n/none"])
                .expect(USAGE)
                .says(&["n/none"]);
            undo(one, &["1..2", "--skip", "nothing"]).expect(NO_SUCH);
            assert_same("after refusals", &one.look(), &before);
            // The directory stays, since something stays in it.
            undo(one, &["1..2", "--skip", "n/g"]).expect(0);
            assert_eq!(
                (read(one, "n/g"), read(one, "n/f")),
                ("3\n".into(), "2\n".into())
            );
            assert_eq!(
                (read(one, "a/f"), read(one, "b/f")),
                ("1\n".into(), "1\n".into())
            );
            assert!(!one.base.join("n/k").exists());
            undo(one, &["3"]).expect(0);
            assert_same("the undo of that", &one.look(), &before);
            undo(one, &["1..2", "--skip", "n/k", "--skip", "a"]).expect(0);
            assert_eq!(
                (read(one, "n/k/f"), read(one, "a/f")),
                ("2\n".into(), "2\n".into())
            );
            assert!(!one.base.join("n/g").exists() && !one.base.join("b/f").exists());
        },
    );
}

#[test]
fn what_changes_while_the_undo_is_open_is_not_overwritten() {
    Fixture::for_each_owner("sides-since", PREPARE, |one| {
        one.store
            .run_exact("echo new > one; echo new > two")
            .expect(0);
        shell(&one.base, "echo outside >> one");
        let kept = undo(one, &["1", "--take-mine", "--keep"]).expect(0).text();
        let (id, _) = kept.trim().split_once('\n').expect("two lines");
        shell(&one.base, "echo later >> one");
        one.store
            .call(["commit", id])
            .expect(CONFLICT)
            .says(&["one"]);
        assert_eq!(read(one, "one"), "new\noutside\nlater\n");
        one.store.call(["abort", id]).expect(0);
    });
}

#[test]
fn words_times_and_open_ranges_mean_commits_and_are_named() {
    Fixture::for_each_owner("sides-words", "echo 0 > f", |one| {
        undo(one, &[]).expect(NO_SUCH).says(&["no commits"]);
        undo(one, &["2h"])
            .expect(NO_SUCH)
            .says(&["no commit was made since then"]);
        for number in ["1", "2", "3", "4"] {
            one.store.run_exact(&format!("echo {number} > f")).expect(0);
        }
        undo(one, &["--dry-run"])
            .expect(0)
            .says(&["takes back commit 4: "]);
        undo(one, &["HEAD~1..", "--dry-run"])
            .expect(0)
            .says(&["takes back commit 4: ", "takes back commit 3: "]);
        undo(one, &["..3"])
            .expect(USAGE)
            .says(&["name the first commit"]);
        undo(one, &["last~9"])
            .expect(NO_SUCH)
            .says(&["only 4 commits"]);
        undo(one, &["9.."]).expect(NO_SUCH);
        undo(one, &["3.."]).expect(0);
        assert_eq!(read(one, "f"), "2\n");
        // The newest commit is the undo itself.
        undo(one, &["last"])
            .expect(0)
            .says(&["takes back commit 5: undo 3..4"]);
        assert_eq!(read(one, "f"), "4\n");
        undo(one, &["yesterday", "--dry-run"]).expect(0);
        undo(one, &["2h"]).expect(0);
        assert_eq!(read(one, "f"), "0\n");
        let log = one.store.call(["log", "--oneline"]).expect(0).text();
        assert!(log.contains("undo 1..6"), "{log}");
    });
}
