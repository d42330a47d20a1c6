//! `atomdir restore`: what it brings back, what it replaces, and what it refuses.

#![cfg(test)]

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, NOT_PERMITTED};
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal};
use atomdir_testing::{Fixture, OnTerminal, Outcome, User, shell, tools_present};

const PREPARE: &str = "
    mkdir -p etc/conf.d data/old/deep; echo one > etc/one; echo two > etc/two
    ln -s etc/one pointer; echo kept > data/old/deep/file; echo other > data/old/other
    seq 300000 > data/large; printf 'mode' > run.sh; chmod 640 run.sh; touch -d 2001-01-01 etc/one
    ln data/old/deep/file data/link
";

fn restore(fixture: &Fixture, words: &[&str]) -> Outcome {
    fixture.store.call([&["restore"], words].concat())
}

fn assert_same(what: &str, found: &Tree, expected: &Tree) {
    assert_equal(what, found, expected, &CompareOptions::alike());
}

#[test]
fn restore_brings_paths_back_and_leaves_the_rest() {
    Fixture::for_each_view("restore-paths", PREPARE, |one, view| {
        let first = one.look();
        let view = ["--view", view];
        for step in [
            "rm -r etc; mkdir etc; echo made > etc/made",
            "mv data/large data/moved; rm -r data/old; mkdir data/old; echo new > data/old/new",
            "chmod 755 run.sh; ln -sf nowhere pointer",
        ] {
            one.store.run_with(&view, step).expect(0);
        }
        restore(one, &["0", "--", "etc/one", "data/old/deep"]).expect(0);
        shell(
            &one.base,
            "grep -q one etc/one && test $(stat -c %Y etc/one) = $(date -d 2001-01-01 +%s) &&
             grep -q made etc/made && test ! -e etc/two && test -e data/old/new &&
             grep -q kept data/old/deep/file && test ! -e data/old/other && test -e data/moved",
        );
        restore(one, &["0", "--", "data/large"]).expect(0);
        shell(&one.base, "cmp data/large data/moved");
        restore(one, &["0", "--", "data/moved"]).expect(0);
        shell(&one.base, "test ! -e data/moved");
        let before = one.look();
        let all = restore(one, &["--json", "0", "--", "."]).expect(0).text();
        assert_same("all", &one.look(), &first);
        let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
        let commit = all["commit"].as_u64().expect("a number").to_string();
        one.store.call(["undo", &commit]).expect(0);
        assert_same("undone", &one.look(), &before);
    });
}

#[test]
fn restore_replaces_what_anybody_changed_and_that_can_be_undone() {
    Fixture::for_each_owner("restore-outside", PREPARE, |one| {
        one.store.run("echo new > etc/one; rm run.sh").expect(0);
        shell(&one.base, "echo outside > etc/one; echo outside > run.sh");
        let before = one.look();
        let shown = restore(one, &["--dry-run", "0", "--", "etc", "run.sh"]).expect(0);
        let shown = shown.text();
        assert!(
            shown.contains("etc/one") && shown.contains("run.sh"),
            "{shown}"
        );
        assert_same("after --dry-run", &one.look(), &before);
        restore(one, &["0", "--", "etc/one", "run.sh"]).expect(0);
        shell(&one.base, "grep -q one etc/one && grep -q mode run.sh");
        one.store.call(["undo", "2"]).expect(0);
        shell(
            &one.base,
            "grep -q outside etc/one && grep -q outside run.sh",
        );

        let kept = restore(one, &["--keep", "0", "--", "run.sh"])
            .expect(0)
            .text();
        let (id, _) = kept.trim().split_once('\n').expect("two lines");
        shell(&one.base, "echo later > run.sh");
        one.store.call(["commit", id]).expect(CONFLICT);
        one.store.call(["abort", id]).expect(0);
        shell(&one.base, "grep -q later run.sh");
    });
}

/// An undo takes back the directory as a whole or not at all.
#[test]
fn restore_takes_back_a_part_of_a_new_directory() {
    Fixture::for_each_owner("restore-part", PREPARE, |one| {
        one.store
            .run("mkdir made; echo a > made/a; echo b > made/b")
            .expect(0);
        let refused = one
            .store
            .call(["undo", "1", "--", "made/a"])
            .expect(NO_SUCH);
        refused.says(&["atomdir restore"]);
        restore(one, &["0", "--", "made/a"]).expect(0);
        shell(&one.base, "test ! -e made/a && test -e made/b");
    });
}

#[test]
fn restore_refuses_what_is_not_known() {
    let fixture = Fixture::new("restore-refused", PREPARE);
    let store = &fixture.store;
    store
        .run_exact("printf page | dd of=data/large bs=1 conv=notrunc status=none; rm etc/one")
        .expect(0);
    shell(&fixture.base, "echo outside >> data/large");
    restore(&fixture, &["0", "--", "data"])
        .expect(CONFLICT)
        .says(&["data/large", "outside writer"]);
    restore(&fixture, &["0", "--", "etc"]).expect(0);
    restore(&fixture, &["0", "--", "none"]).expect(NO_SUCH);
    restore(&fixture, &["9", "--", "etc"]).expect(NO_SUCH);
    let user = User::ordinary(fixture.scratch.path());
    let allowed = user.uid.to_string();
    store.call(["config", "allow", &allowed]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let refused = store.call_as(&user, ["restore", "0", "--", "etc"]);
    refused.expect(NOT_PERMITTED).says(&["restore files"]);
}

#[test]
fn undo_and_restore_of_many_files_show_on_a_terminal_how_far_they_have_come() {
    if !tools_present("restore-progress", &["script", "split"]) {
        return;
    }
    let fixture = Fixture::new("restore-progress", "");
    let store = &fixture.store;
    store
        .run("mkdir d; cd d; seq 3000 | split -l 1 -a 4")
        .expect(0);
    store
        .run("find d -type f | xargs touch -d 2001-01-01")
        .expect(0);
    for arguments in ["undo 2", "restore 2 -- d"] {
        let printed = OnTerminal::start(store, arguments).end();
        let (looking, committing) = (printed.find("looking back: "), printed.find("committing: "));
        assert!(looking.is_some() && looking < committing, "{printed:?}");
        assert!(printed.contains("3000 changes"), "{printed:?}");
    }
    // Without a terminal, only the result.
    let undone = store.call(["undo"]).expect(0);
    let printed = [undone.stdout, undone.stderr].concat();
    assert!(!String::from_utf8_lossy(&printed).contains("looking back"));
    store.assert_at_rest();
}
