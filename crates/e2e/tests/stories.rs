#![cfg(test)]

//! Four stories of transactions that did not go as their users expected, as root and as an ordinary
//! user. Each uses only verbs and options that `atomdir help VERB` names, and what messages offer.

use std::fs;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{Fixture, OnTerminal, Outcome, Store};

const SITE: &str = "mkdir -p conf www; seq 9 > www/index; echo port 80 > conf/site
    echo secret > conf/key; chmod 600 conf/key; echo old > www/old; chmod 644 www/* conf/site";

fn read(one: &Fixture, path: &str) -> String {
    fs::read_to_string(one.base.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Checks that the command's help names the verb, and that the verb's own help has these words.
fn help(store: &Store, verb: &str, words: &[&str]) {
    let all = store.call(["help"]).expect(0).text();
    assert!(
        all.contains(&format!("  {verb} ")),
        "{verb} is not in\n{all}"
    );
    let own = store.call(["help", verb]).expect(0).text();
    for word in words {
        assert!(own.contains(word), "no {word:?} in\n{own}");
    }
}

/// What the message's hint offers to type: the words between backquotes.
fn offered(outcome: &Outcome, start: &str) -> Vec<String> {
    let text = outcome.error_text();
    let offered = text.split('`').skip(1).step_by(2);
    let mut offered = offered.filter(|words| words.starts_with(start));
    let found = offered
        .next()
        .unwrap_or_else(|| panic!("no {start:?} in\n{text}"));
    found.split(' ').skip(1).map(str::to_owned).collect()
}

/// A cleaning script has deleted too much. Its commit is found in the log, looked at, and taken
/// back: first one file, from the time before, then all of it.
#[test]
fn an_undo_takes_back_a_shell_command() {
    Fixture::for_each_owner("story-undo", SITE, |one| {
        let store = &one.store;
        let before = one.look();
        store
            .run("rm -r conf; echo '<h1>' > www/index; rm www/old")
            .expect(0);
        store.run("echo later > www/later").expect(0);

        help(store, "log", &["PATH"]);
        let log = store.call(["log", "--", "conf"]).expect(0).text();
        assert_eq!(
            log.lines()
                .filter(|line| line.contains("rm -r conf"))
                .count(),
            1,
            "{log}"
        );
        let commit = log
            .lines()
            .find(|line| line.contains("rm -r conf"))
            .expect("it is listed");
        let commit = commit.split_whitespace().next().expect("its number");
        help(store, "show", &["--patch"]);
        let shown = store.call(["show", commit, "--patch"]).expect(0).text();
        assert!(shown.contains("-port 80"), "{shown}");

        help(store, "restore", &["0: before the first", "--dry-run"]);
        let dry = store
            .call(["restore", "--dry-run", "0", "--", "conf/site"])
            .expect(0);
        assert!(dry.text().contains("conf/site") && !one.base.join("conf").exists());
        store.call(["restore", "0", "--", "conf/site"]).expect(0);
        assert_eq!(read(one, "conf/site"), "port 80\n");

        // The undo would take back what the restore has done since: that is a conflict.
        help(store, "undo", &["--dry-run", "PATH", "nothing is undone"]);
        let refused = store.call(["undo", commit]).expect(CONFLICT);
        refused.says(&["conf"]);
        let restored = store.call(["log"]).expect(0).text();
        let restored = restored.lines().find(|line| line.contains("restore 0"));
        let restored = restored.and_then(|line| line.split_whitespace().next());
        let restored = restored.expect("the restore is a commit");
        store.call(["undo", restored]).expect(0);
        store.call(["undo", commit]).expect(0);
        assert_eq!(read(one, "www/later"), "later\n");
        store.run("rm www/later").expect(0);
        assert_equal(
            "all is back",
            &one.look(),
            &before,
            &CompareOptions::alike(),
        );
    });
}

/// A formatter has changed more than it should: what is good lands, file by file and hunk by
/// hunk, and the rest is dropped.
#[test]
fn changes_are_accepted_file_by_file() {
    Fixture::for_each_owner("story-accept", SITE, |one| {
        let store = &one.store;
        help(store, "run", &["--ask", "--on-success", "keep"]);
        let change = "sed -i -e 1s/.*/one/ -e 9s/.*/nine/ www/index; echo 8080 > conf/site
            rm www/old; echo tmp > www/tmp";
        let kept = store.run_with(&["--on-success", "keep"], change).expect(0);
        // The note says how to go on.
        let diff = offered(&kept, "atomdir diff");
        let changes = store.call(diff.iter().map(String::as_str).chain(["--name-status"]));
        let changes = changes.expect(0).text();
        assert_eq!(changes, "M conf/site\nM www/index\nD www/old\nA www/tmp\n");
        let commit = offered(&kept, "atomdir commit");
        let id = commit[1].as_str();

        help(
            store,
            "commit",
            &["--patch", "only the changes at and below them"],
        );
        store.call(["commit", id, "--", "conf/site"]).expect(0);
        assert_eq!(read(one, "conf/site"), "8080\n");
        assert!(one.base.join("www/old").exists());
        let mut asked = OnTerminal::start(store, &format!("commit --patch {id} -- www/index"));
        for answer in ["y", "n"] {
            asked.wait_for("of 2? ");
            asked.type_in(&format!("{answer}\n"));
        }
        asked.end();
        assert_eq!(read(one, "www/index"), "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
        help(store, "abort", &["PATH"]);
        store
            .call(["abort", id, "--", "www/index", "www/tmp"])
            .expect(0);
        store.call(["commit", id]).expect(0);
        assert!(!one.base.join("www/old").exists() && !one.base.join("www/tmp").exists());

        // With --ask the question comes by itself; without an answer nothing is lost.
        let mut asked = OnTerminal::start(store, "run --ask -- sh -c 'echo asked > www/asked'");
        asked.wait_for("eep open: ");
        asked.type_in("\x04");
        let printed = asked.end();
        assert!(printed.contains("stays open") && !one.base.join("www/asked").exists());
        let mut asked = OnTerminal::start(store, "run --ask -- sh -c 'echo yes > www/yes'");
        asked.wait_for("eep open: ");
        asked.type_in("y\n");
        asked.end();
        assert_eq!(read(one, "www/yes"), "yes\n");
        store.call(["commit"]).expect(0);
        assert_eq!(read(one, "www/asked"), "asked\n");
    });
}

/// Two people edit the same site. The second commit is refused, loses nothing, and is then
/// merged where that can be done, and decided where it cannot.
#[test]
fn failed_merge_keeps_the_changes() {
    Fixture::for_each_owner("story-merge", SITE, |one| {
        let store = &one.store;
        let mine = store.begin_with(&["-m", "mine"]);
        let change = "sed -i 1s/.*/mine/ www/index; echo mine > conf/site; echo mine > www/old";
        store.exec(&mine, change).expect(0);
        let other =
            "sed -i 9s/.*/theirs/ www/index; echo theirs > conf/site; echo theirs > www/old";
        store.run(other).expect(0);

        let refused = store.commit(&mine).expect(CONFLICT);
        let listed = offered(&refused, "atomdir conflicts");
        let listed = store.call(&listed).expect(0).text();
        let number = |path: &str| {
            let line = listed
                .lines()
                .find(|line| line.split_whitespace().nth(1) == Some(path));
            let number = line.and_then(|line| line.split_whitespace().next());
            number
                .unwrap_or_else(|| panic!("no {path} in\n{listed}"))
                .to_owned()
        };
        help(
            store,
            "conflicts",
            &["--patch", "--take-mine", "--take-theirs", "--merge"],
        );
        let both = store
            .call(["conflicts", &mine.id, "--patch"])
            .expect(0)
            .text();
        assert!(both.contains("mine") && both.contains("theirs"), "{both}");

        // Not all can be merged: nothing is committed, and the message says what is left.
        let merge = offered(&refused, "atomdir commit");
        let merged = store.call(&merge).expect(CONFLICT);
        merged.says(&["conf/site", "--take-mine", "--take-theirs"]);
        assert_eq!(read(one, "conf/site"), "theirs\n");
        help(
            store,
            "commit",
            &["--take-mine", "--take-theirs", "--merge"],
        );
        let (site, old) = (number("conf/site:"), number("www/old:"));
        let sides = ["--take-mine", &site, "--take-theirs", &old, "--merge"];
        let done = store
            .call(["commit", &mine.id].iter().chain(&sides))
            .expect(0);
        assert!(
            done.text().contains("www/old"),
            "the output must name what was given up\n{done}"
        );
        assert_eq!(
            read(one, "www/index"),
            "mine\n2\n3\n4\n5\n6\n7\n8\ntheirs\n"
        );
        assert_eq!(
            (read(one, "conf/site"), read(one, "www/old")),
            ("mine\n".into(), "theirs\n".into())
        );
    });
}

/// The decision waits until tomorrow, over the death of the service and a stop of it.
#[test]
fn decision_waits_until_tomorrow() {
    Fixture::for_each_owner("story-tomorrow", SITE, |one| {
        let store = &one.store;
        help(
            store,
            "run",
            &[
                "--on-error",
                "It stays open, to be looked at and ended later",
            ],
        );
        let failed = store.run_with(&["--on-error", "keep"], "echo half > conf/site; false");
        let failed = failed.expect(1);
        let list = offered(&failed, "atomdir list");
        let id = offered(&failed, "atomdir commit")[1].clone();
        store.kill_service();
        // Nothing was discarded, so there is no notice.
        let listed = store.call(&list).expect(0);
        assert_eq!(listed.error_text(), "");
        assert!(listed.text().contains(&id), "{listed}");
        help(store, "exec", &["It stays open"]);
        store
            .call(["exec", &id, "--", "sh", "-c", "echo whole > conf/site"])
            .expect(0);

        help(store, "sync", &["TX"]);
        store.call(["sync", &id]).expect(0);
        let refused = store.call(["service", "stop"]).expect(CONFLICT);
        let keep = offered(&refused, "atomdir service stop --keep");
        store.call(&keep).expect(0);
        store.call(["service", "start"]).expect(0);
        assert_eq!(read(one, "conf/site"), "port 80\n");
        let diff = store.call(["diff", &id]).expect(0).text();
        assert!(
            diff.contains("+whole") && diff.contains("-port 80"),
            "{diff}"
        );
        store.call(["commit", &id]).expect(0);
        assert_eq!(read(one, "conf/site"), "whole\n");
        assert_eq!(store.call(["list", "--ended"]).expect(0).text(), "");
    });
}
