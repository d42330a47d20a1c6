//! `atomdir at`: the store as it was after each commit, for root and for an ordinary user, while
//! commits land, after a restart, and what it refuses.

#![cfg(test)]

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use atomdir_testing::exit_code::{CONFLICT, NO_SUCH, NOT_PERMITTED};
use atomdir_testing::steps::{PREPARE, commit_all};
use atomdir_testing::tree::{CompareOptions, Tree, assert_equal};
use atomdir_testing::{
    Fixture, OnTerminal, Outcome, User, binary, look, shell, tools_present, wait_until,
};

fn at(fixture: &Fixture, when: &str, script: &str) -> Outcome {
    let command = ["at", when, "--", "/bin/sh", "-c", script];
    fixture.store.call(command)
}

/// The tree that a command sees.
fn seen(fixture: &Fixture, when: &str) -> Tree {
    let copies = fixture.scratch.path().join("copies");
    shell(
        fixture.scratch.path(),
        "rm -rf copies; mkdir -m 1777 copies",
    );
    at(fixture, when, &format!("cp -a . {}/copy", copies.display())).expect(0);
    look(&copies.join("copy"))
}

fn assert_seen(fixture: &Fixture, when: &str, expected: &Tree) {
    let options = CompareOptions::alike();
    assert_equal(when, &seen(fixture, when), expected, &options);
}

#[test]
fn at_shows_the_store_as_it_was_after_each_commit() {
    Fixture::for_each_owner("past-steps", PREPARE, |one| {
        let trees = commit_all(one);
        let now = one.look();
        for (commit, tree) in trees.iter().enumerate() {
            assert_seen(one, &commit.to_string(), tree);
        }
        one.store.call(["service", "stop"]).expect(0);
        assert_seen(one, "2", &trees[2]);
        one.store.kill_service();
        assert_seen(one, "4", &trees[4]);
        assert_equal("the base", &one.look(), &now, &CompareOptions::alike());
        at(one, "99", "true").expect(NO_SUCH);
    });
}

#[test]
fn a_view_of_the_past_is_read_only_and_says_what_it_is() {
    Fixture::for_each_owner("past-read-only", PREPARE, |one| {
        one.store.run("rm etc/one; echo new > run.sh").expect(0);
        let now = one.look();
        for refused in [
            "echo x > etc/new",
            "echo x >> etc/one",
            "rm etc/one",
            "mv etc etcetera",
            "chmod 600 etc/one",
            "mkdir directory",
        ] {
            let outcome = at(one, "0", refused);
            assert_ne!(outcome.code, 0, "{refused}: {outcome}");
        }
        let atomdir = binary();
        let atomdir = atomdir.display();
        let listed = at(
            one,
            "0",
            &format!("{atomdir} list >&2; {atomdir} commit; true"),
        );
        listed.says(&["as after commit 0, read-only", "it has nothing to commit"]);
        assert_equal("the base", &one.look(), &now, &CompareOptions::alike());

        let sealed = ["at", "--sealed", "0", "--", "/bin/cat", "etc/one"];
        assert_eq!(one.store.call(sealed).expect(0).text(), "one\n");
        let json = ["--json", "at", "0", "--", "/bin/cat", "etc/none"];
        let json = one.store.call(json).expect(1);
        json.says(&["\"commit\":0", "\"exit_code\":1", "\"outside_as_now\":[]"]);
    });
}

#[test]
fn a_shell_on_a_terminal_shows_the_past_and_changes_nothing() {
    let test = "a_shell_on_a_terminal_shows_the_past_and_changes_nothing";
    if !tools_present(test, &["script"]) {
        return;
    }
    Fixture::for_each_owner("past-shell", "echo then > file", |one| {
        one.store.run("echo now > file; echo now > new").expect(0);
        let mut shell = OnTerminal::start(&one.store, "at 0");
        // The terminal prints what is typed as well, so answers are spelled differently there.
        for (typed, answer) in [
            ("cat file; pwd | cat\n", "then"),
            ("test -t 0 && test ! -e new && echo o''nly\n", "only"),
            ("echo x > file || echo re''fused\n", "refused"),
            ("rm -f file || echo st''ays\n", "stays"),
        ] {
            shell.type_in(typed);
            shell.wait_for(answer);
        }
        shell.type_in("exit 3\n");
        let printed = shell.end();
        let base = one.base.display().to_string();
        assert!(printed.contains(&base), "the store's own path: {printed}");
        let now = std::fs::read_to_string(one.base.join("file"));
        assert_eq!(now.expect("it is there"), "now\n");
        let list = one.store.call(["list"]).expect(0).text();
        assert_eq!(list, "", "the view ends with its shell");
    });
}

#[test]
fn an_open_view_stays_as_it_was_while_commits_land_and_history_goes() {
    Fixture::for_each_owner("past-open", PREPARE, |one| {
        one.store
            .run("echo new > etc/one; rm -r data/old")
            .expect(0);
        let script = format!(
            "cat etc/one data/old/deep/file; read x; cat etc/one data/old/deep/file; {} list",
            binary().display()
        );
        let mut reading = one
            .store
            .command(["at", "0", "--", "/bin/sh", "-c", &script]);
        let mut reading = reading
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut printed = BufReader::new(reading.stdout.take().expect("it is piped")).lines();
        let mut next = || printed.next().expect("it prints").expect("text");
        assert_eq!([next(), next()], ["one", "kept"]);
        one.store
            .run("echo newer > etc/one; mkdir data/old")
            .expect(0);
        one.store.call(["undo", "2"]).expect(0);
        one.store.call(["undo", "1"]).expect(0);
        one.store
            .run_exact("rm -r data/old; echo last > etc/one")
            .expect(0);
        one.store.call(["prune", "--all"]).expect(0);
        drop(reading.stdin.take());
        assert_eq!([next(), next()], ["one", "kept"]);
        let listed: Vec<String> = printed.map(|line| line.expect("text")).collect();
        let listed = listed.join("\n");
        assert!(listed.contains("bytes of forgotten history"), "{listed}");
        reading.wait().expect("it ends");
        at(one, "0", "true").expect(NO_SUCH).says(&["is not kept"]);
    });
}

#[test]
fn outside_changes_since_are_refused_or_shown_as_they_are() {
    Fixture::for_each_owner("past-outside", PREPARE, |one| {
        one.store
            .run_exact("printf page | dd of=data/large bs=1 conv=notrunc status=none; rm etc/one")
            .expect(0);
        shell(&one.base, "echo outside > etc/two; echo outside > etc/one");
        let look = "cat etc/one etc/two; tail -n 1 data/large";
        assert_eq!(
            at(one, "0", look).expect(0).text(),
            "one\noutside\n300000\n"
        );
        shell(&one.base, "echo outside >> data/large");
        let refused = at(one, "0", look).expect(CONFLICT);
        refused.says(&["data/large", "outside writer"]);
        let allowed = ["at", "--outside-as-now", "0", "--", "/bin/sh", "-c", look];
        let allowed = one.store.call(allowed).expect(0);
        let allowed = allowed.says(&["shown as it is now: data/large"]);
        assert_eq!(allowed.text(), "one\noutside\noutside\n");
    });
}

#[test]
fn times_name_commits_and_only_owner_and_root_look_back() {
    let fixture = Fixture::new("past-times", PREPARE);
    let store = &fixture.store;
    store.run("echo first > etc/one").expect(0);
    let log = store.call(["--json", "log"]).expect(0);
    let log: serde_json::Value = serde_json::from_str(&log.text()).expect("JSON");
    let first = log["commits"][0]["time"]
        .as_str()
        .expect("a time")
        .to_owned();
    store.run("echo second > etc/one").expect(0);
    let print = |when: &str| at(&fixture, when, "cat etc/one").expect(0).text();
    assert_eq!(print(&first), "first\n");
    assert_eq!(print("1h"), "one\n");
    assert_eq!(print("2001-01-01 12:00"), "one\n");
    assert_eq!(print("2999-01-01"), "second\n");
    let user = User::ordinary(fixture.scratch.path());
    let allowed = user.uid.to_string();
    store.call(["config", "allow", &allowed]).expect(0);
    store.call(["service", "stop"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let refused = store.call_as(&user, ["at", "1", "--", "true"]);
    refused.expect(NOT_PERMITTED).says(&["look at the past"]);
}

/// A time stands for the newest commit at that time.
#[test]
fn all_verbs_of_the_past_take_times() {
    Fixture::for_each_owner("past-verbs", PREPARE, |one| {
        let store = &one.store;
        let shown = || shell(&one.base, "cat etc/one").text();
        store.run("echo first > etc/one").expect(0);
        let log = store.call(["--json", "log"]).expect(0).text();
        let log: serde_json::Value = serde_json::from_str(&log).expect("JSON");
        let time = log["commits"][0]["time"].as_str().expect("a time");
        store.run("echo second > etc/one").expect(0);
        assert_eq!(at(one, time, "cat etc/one").expect(0).text(), "first\n");
        let before = "2001-01-01 12:00";
        for (range, old, new) in [
            (format!("{time}.."), "first", "second"),
            (format!("{before}..{time}"), "one", "first"),
            ("1h..".to_owned(), "one", "second"),
        ] {
            let patch = store.call(["diff", &range]).expect(0).text();
            let lines = [format!("\n-{old}\n"), format!("\n+{new}\n")];
            let has_both = lines.iter().all(|line| patch.contains(line));
            assert!(has_both, "{range}: {patch}");
        }
        let dry = ["restore", "--dry-run", time, "--", "etc/one"];
        let dry = store.call(dry).expect(0);
        assert!(dry.text().contains("etc/one"), "{dry}");
        assert_eq!(shown(), "second\n");
        store.call(["restore", time, "--", "etc/one"]).expect(0);
        assert_eq!(shown(), "first\n");
        store.call(["restore", "1h", "--", "etc/one"]).expect(0);
        assert_eq!(shown(), "one\n");
    });
}

#[test]
fn differences_show_directories_and_changed_types_below_a_renamed_directory() {
    let prepare = "mkdir -p d/k p/x; echo secret > d/k/file; echo 1 > p/f";
    Fixture::for_each_owner("past-renamed", prepare, |one| {
        let change = "mv d e; rm -r e/k; echo new > e/k; mkdir q; mv p q/p2";
        let kept = one.store.call([
            "run",
            "--view",
            "exact",
            "--on-success",
            "keep",
            "--",
            "/bin/sh",
            "-ec",
            change,
        ]);
        kept.expect(0);
        let patch = one.store.call(["diff", "1"]).expect(0).text();
        assert!(patch.contains("-secret"), "{patch}");
        one.store.call(["commit", "1"]).expect(0);
        let lines = one.store.call(["diff", "0..1", "--name-status"]).expect(0);
        let lines = lines.text();
        let mut lines: Vec<&str> = lines.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "A e",
                "A e/k",
                "A q",
                "A q/p2",
                "A q/p2/f",
                "A q/p2/x",
                "D d",
                "D d/k",
                "D d/k/file",
                "D p",
                "D p/f",
                "D p/x"
            ]
        );
    });
}

/// Waits until so much time has passed since then.
fn wait_since(then: SystemTime, time: Duration) {
    wait_until("an older commit", || {
        then.elapsed().is_ok_and(|elapsed| elapsed >= time)
    });
}

#[test]
fn prune_forgets_what_is_older_and_keeps_the_rest() {
    Fixture::for_each_owner("past-prune", "echo first > file", |one| {
        let store = &one.store;
        let kept = |text: &str| -> serde_json::Value { serde_json::from_str(text).expect("JSON") };
        // A machine that commits slowly needs more time between the two commits.
        let pruned_one = [2, 4, 8, 16, 32, 64]
            .map(Duration::from_secs)
            .into_iter()
            .any(|apart| {
                store.run("echo old > file").expect(0);
                let old = SystemTime::now();
                wait_since(old, apart);
                let young = SystemTime::now();
                store.run("echo young > file").expect(0);
                let age = old.elapsed().expect("the clock is not set back").as_secs();
                let limit = format!("{age}s");
                let arguments = ["--json", "prune", "--older-than", &limit];
                let pruned = kept(&store.call(arguments).expect(0).text());
                let took = young.elapsed().expect("the clock is not set back");
                let log = kept(&store.call(["--json", "log", "-n", "2"]).expect(0).text());
                let [young, old] =
                    [0, 1].map(|number| log["commits"][number]["commit"].to_string());
                store.call(["undo", &old]).expect(NO_SUCH);
                if took.as_secs() >= age {
                    // The younger commit has reached the age, too.
                    return false;
                }
                assert_eq!(pruned["commits"], 1, "{pruned}");
                assert_eq!(pruned["oldest_commit"].to_string(), young);
                assert!(
                    store
                        .call(["at", &old, "--", "cat", "file"])
                        .expect(0)
                        .text()
                        == "old\n"
                );
                store.call(["undo", &young]).expect(0);
                let file = std::fs::read_to_string(one.base.join("file")).expect("it is there");
                assert_eq!(file, "old\n");
                true
            });
        assert!(
            pruned_one,
            "the commits took longer than the time between them"
        );
    });
}

/// Whatever an outside writer has done to a file that a commit left, the verbs that present the commit
/// say that they do not know how it was.
#[test]
fn contents_that_may_be_an_outside_writers_are_presented_with_a_warning() {
    let acts = [
        "echo outside > file",
        "echo outside > n; mv n file",
        "rm file",
        "chmod 600 file",
        "mv file elsewhere",
    ];
    let verbs: [&[&str]; 4] = [
        &["show", "1", "--patch"],
        &["diff", "0..1"],
        &["at", "1", "--", "true"],
        &["restore", "--dry-run", "1", "--", "."],
    ];
    let fixture = Fixture::new("past-outside", "echo old > other");
    for (number, act) in (1..).zip(acts) {
        fixture
            .store
            .run("echo ours > file; rm -f elsewhere")
            .expect(0);
        let commit = (number * 2 - 1).to_string();
        let before = (number * 2 - 2).to_string();
        let call = |verb: &[&str], json: bool| {
            let range = format!("{before}..{commit}");
            let words = verb.iter().map(|word| match *word {
                "1" => commit.as_str(),
                "0..1" => range.as_str(),
                word => word,
            });
            let words: Vec<&str> = words.chain(json.then_some("--json")).collect();
            let words = match words.iter().position(|word| *word == "--") {
                // Options come before the command.
                Some(place) if json => {
                    [&["--json"], &words[..place], &words[place..words.len() - 1]].concat()
                }
                _ => words,
            };
            fixture.store.call(words).expect(0).error_text()
        };
        for verb in verbs {
            assert!(
                !call(verb, false).contains("warning"),
                "{verb:?} before {act}"
            );
        }
        shell(fixture.store.path(), act);
        for verb in verbs {
            let text = call(verb, false);
            assert!(
                text.contains("warning: ") && text.contains("file"),
                "{verb:?}, {act}: {text}"
            );
            let json = call(verb, true);
            assert!(json.contains("file"), "{verb:?} --json, {act}: {json}");
        }
        fixture
            .store
            .run("rm -f file elsewhere; echo done >> other")
            .expect(0);
    }
}
