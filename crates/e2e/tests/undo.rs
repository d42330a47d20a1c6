//! `atomdir undo`: what it takes back, what it refuses, and that neither a restart of the
//! service nor its death makes a difference.

#![cfg(test)]

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, NOT_PERMITTED, USAGE};
use atomdir_testing::steps::{PREPARE, STEPS, commit_all};
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal};
use atomdir_testing::{Fixture, Outcome, User, shell};

/// Compares everything but times and holes.
fn assert_same(what: &str, found: &Tree, expected: &Tree) {
    assert_equal(what, found, expected, &CompareOptions::alike());
}

fn undo(fixture: &Fixture, words: &[&str]) -> Outcome {
    fixture.store.call([&["undo"], words].concat())
}

#[test]
fn undo_takes_back_any_number_of_commits_and_itself() {
    Fixture::for_each_owner("undo-steps", PREPARE, |one| {
        let trees = commit_all(one);
        let firsts = (1..=STEPS.len()).rev();
        for (newest, first) in (STEPS.len()..).zip(firsts) {
            undo(one, &[&format!("{first}..{newest}")]).expect(0);
            assert_same(STEPS[first - 1], &one.look(), &trees[first - 1]);
        }
        undo(one, &["7..12"]).expect(0);
        assert_same("the undo of all undos", &one.look(), &trees[STEPS.len()]);
        undo(one, &["1..6", "7..12", "13"]).expect(0);
        assert_same("everything", &one.look(), &trees[0]);
    });
}

#[test]
fn one_undo_after_the_other_goes_back_step_by_step() {
    Fixture::for_each_owner("undo-back", PREPARE, |one| {
        let trees = commit_all(one);
        for commit in (1..=STEPS.len()).rev() {
            undo(one, &[&commit.to_string()]).expect(0);
            assert_same(STEPS[commit - 1], &one.look(), &trees[commit - 1]);
        }
    });
}

#[test]
fn commit_is_undone_once_until_the_undo_is_undone() {
    Fixture::for_each_owner("undo-once", PREPARE, |one| {
        let before = one.look();
        one.store.run_exact("echo first > etc/one").expect(0);
        one.store.run_exact("echo second > etc/two").expect(0);
        undo(one, &["1"]).expect(0);
        let refused = undo(one, &["1", "2"]).expect(USAGE);
        refused.says(&["commit 1 has been undone already, by commit 3", "undo 3"]);
        undo(one, &["3"]).expect(0);
        shell(&one.base, "grep -q first etc/one");
        undo(one, &["1", "2"]).expect(0);
        assert_same("both commits", &one.look(), &before);
    });
}

#[test]
fn undo_works_after_a_restart_and_after_the_service_was_killed() {
    Fixture::for_each_owner("undo-restart", PREPARE, |one| {
        let trees = commit_all(one);
        one.store.call(["service", "stop"]).expect(0);
        let recovery = one.store.call(["--json", "recover", "--dry-run"]).expect(0);
        let recovery: serde_json::Value = serde_json::from_str(&recovery.text()).expect("JSON");
        assert_eq!(recovery["leftovers"], 0, "{recovery}");
        undo(one, &["4..6"]).expect(0);
        assert_same("after a restart", &one.look(), &trees[3]);
        one.store.kill_service();
        undo(one, &["1..7"]).expect(0);
        assert_same("after a kill", &one.look(), &trees[0]);
    });
}

#[test]
fn undo_never_takes_back_what_came_later() {
    Fixture::for_each_owner("undo-later", PREPARE, |one| {
        one.store
            .run_exact("echo first > etc/one; echo first > etc/two")
            .expect(0);
        one.store.run("echo second > etc/one").expect(0);
        let before = one.look();
        let refused = undo(one, &["1"]).expect(CONFLICT);
        refused.says(&["etc/one", "by commit 2", "FIRST..LAST"]);
        assert_same("after a refusal", &one.look(), &before);
        undo(one, &["1", "--", "etc/two"]).expect(0);
        shell(&one.base, "grep -q second etc/one && grep -q two etc/two");

        one.store.run("echo third > run.sh").expect(0);
        shell(&one.base, "echo outside >> run.sh");
        let refused = undo(one, &["4"]).expect(CONFLICT);
        let refused = refused.says(&["run.sh", "outside writer", "atomdir restore 3 -- PATH"]);
        // Nor is there a later commit that could be undone as well.
        assert!(!refused.error_text().contains("FIRST..LAST"), "{refused}");
        shell(&one.base, "grep -q outside run.sh");
        undo(one, &["1..2", "--", "etc/one"]).expect(0);
        shell(&one.base, "grep -q one etc/one");
    });
}

#[test]
fn refused_undo_and_restore_offer_only_options_that_they_have() {
    Fixture::for_each_owner("undo-locked", PREPARE, |one| {
        let store = &one.store;
        store.run_exact("echo first > etc/one").expect(0);
        let holder = store.begin();
        store.call(["lock", &holder.id, "--", "etc/one"]).expect(0);
        let before = one.look();
        for words in [&["undo", "1"][..], &["restore", "0", "--", "etc/one"]] {
            let refused = store.call(words).expect(CONFLICT);
            let refused = refused.says(&["etc/one: it is locked", "was aborted", "--keep"]);
            for absent in ["--retry", "--on-conflict"] {
                assert!(!refused.error_text().contains(absent), "{refused}");
            }
            assert_same("after a refusal", &one.look(), &before);
        }
        store.abort(&holder).expect(0);
        undo(one, &["1"]).expect(0);
    });
}

#[test]
fn dry_run_shows_and_keep_leaves_the_undo_open() {
    Fixture::for_each_owner("undo-look", PREPARE, |one| {
        let before = one.look();
        one.store.run("rm -r data; echo new > etc/one").expect(0);
        let after = one.look();
        let shown = undo(one, &["1", "--dry-run"]).expect(0);
        assert!(shown.text().contains("etc/one"), "{shown}");
        assert_same("after --dry-run", &one.look(), &after);

        let kept = undo(one, &["1", "--keep"]).expect(0).text();
        let (id, _) = kept.trim().split_once('\n').expect("two lines");
        let there = "grep -q one etc/one && test -e data/old/deep/file";
        let look = ["exec", id, "--", "/bin/sh", "-c", there];
        one.store.call(look).expect(0);
        assert_same("while it is open", &one.look(), &after);
        one.store.call(["commit", id]).expect(0);
        assert_same("after its commit", &one.look(), &before);
    });
}

#[test]
fn nobody_undoes_commits_of_others_but_the_owner_and_root_and_only_what_is_kept() {
    let fixture = Fixture::new("undo-refused", PREPARE);
    let store = &fixture.store;
    store.run("echo new > etc/one").expect(0);
    undo(&fixture, &["2"]).expect(NO_SUCH);
    undo(&fixture, &["1", "--", "etc/two"]).expect(NO_SUCH);
    let user = User::ordinary(fixture.scratch.path());
    let allowed = user.uid.to_string();
    store.call(["config", "allow", &allowed]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let refused = store.call_as(&user, ["undo", "1"]);
    refused
        .expect(NOT_PERMITTED)
        .says(&["only root may undo commit 1, which is another user's"]);

    store.call(["prune", "--all"]).expect(0);
    undo(&fixture, &["1"])
        .expect(NO_SUCH)
        .says(&["is not kept"]);
    store.call(["config", "history-age", "off"]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.run("echo newer > etc/one").expect(0);
    undo(&fixture, &["2"]).expect(NO_SUCH);
    store.assert_at_rest();
}

#[test]
fn a_store_made_without_history_keeps_none() {
    Fixture::for_each_owner("undo-none", "echo 0 > file", |one| {
        // The fixture is a store already; to do it again is harmless.
        one.store.call(["init", "--no-history"]).expect(0);
        one.store.run("echo 1 > file").expect(0);
        undo(one, &["1"]).expect(NO_SUCH);
        let age = one.store.call(["config", "history-age"]).expect(0).text();
        assert_eq!(age, "off\n");
    });
}

#[test]
fn a_new_store_without_history_keeps_none() {
    Fixture::for_each_owner("undo-never", "echo 0 > file", |one| {
        // Only this makes it a store that never had a history.
        shell(&one.base, "rm -r .atomdir");
        one.store.call(["init", "--no-history"]).expect(0);
        one.store.run("echo 1 > file").expect(0);
        undo(one, &["1"]).expect(NO_SUCH);
        let age = one.store.call(["config", "history-age"]).expect(0).text();
        assert_eq!(age, "off\n");
        let view = one.store.begin();
        one.store.exec(&view, "echo 2 > file").expect(0);
        one.store.commit(&view).expect(0);
        one.store.call(["check"]).expect(0);
    });
}

#[test]
fn settings_of_the_history_hold_from_the_next_commit_on() {
    Fixture::for_each_owner("undo-settings", "echo 0 > file", |one| {
        let store = &one.store;
        store.call(["service", "start"]).expect(0);
        let service = store.service_processes();
        store.run("echo 1 > file").expect(0);
        undo(one, &["--dry-run", "1"]).expect(0);
        store.call(["config", "history-age", "off"]).expect(0);
        store.run("echo 2 > file").expect(0);
        undo(one, &["2"]).expect(NO_SUCH);
        store.call(["config", "history-age", "7d"]).expect(0);
        store.run("echo 3 > file").expect(0);
        undo(one, &["3"]).expect(0);
        let file = std::fs::read_to_string(one.base.join("file")).expect("it is there");
        assert_eq!(file, "2\n");
        assert_eq!(store.service_processes(), service, "it was not restarted");
        store.call(["check"]).expect(0);
    });
}
