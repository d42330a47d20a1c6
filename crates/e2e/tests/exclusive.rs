//! Exclusive transactions: each holds a lock on the whole store, and its overlay lies over the base
//! itself. `native.rs` commits every kind of change in such a view, `outside_writers.rs` compares
//! its conflicts with those of exact views.

#![cfg(test)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use atomdir_testing::exit_code::{CONFIGURATION, CONFLICT, NOT_PERMITTED};
use atomdir_testing::tree::{CompareOptions, assert_equal};
use atomdir_testing::{
    Fixture, Outcome, User, binary, capture_output, for_each_owner, native_views_possible, shell,
    unmount, users_can_mount, wait_until,
};

const TREE: &str = "mkdir -p d/s e many empty; echo old > d/f; echo old > d/s/g; echo old > h
    for i in 1 2 3 4 5; do echo $i > many/$i; done; ln -s h link";
const EXCLUSIVE: [&str; 1] = ["--exclusive"];

fn for_each_store(test: &str, check: impl Fn(&Fixture)) {
    if native_views_possible(test) {
        // A long name would make the path of the service's socket too long.
        Fixture::for_each_owner("exclusive", TREE, check);
    }
}

fn exclusive(fixture: &Fixture, script: &str) -> Outcome {
    fixture.store.run_with(&EXCLUSIVE, script)
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.base.join(name)).expect("it can be read")
}

/// By which programs tell whether two names are one file.
const NUMBERS: &str = "find . -mindepth 1 -name .atomdir -prune -o -printf '%i %p\\n' | sort -k 2
    ls -1i d many; find . -inum $(stat -c %i h) | sort";
/// What such programs make of them.
const USES: &str =
    "du -ab --exclude=.atomdir d e h many link; tar -c --sort=name --exclude=.atomdir . | tar -t";

#[test]
fn exclusive_view_shows_inode_numbers_of_the_base_and_no_control_directory() {
    let test = "exclusive_view_shows_inode_numbers_of_the_base_and_no_control_directory";
    for_each_store(test, |one| {
        shell(one.scratch.path(), "mkdir -m 1777 shown");
        let shown = one.scratch.join("shown");
        let read = |name: &str| fs::read_to_string(shown.join(name)).expect("it is there");
        let shown = shown.display();
        if one.store.user().is_root() {
            // An ordinary user's store may have no file with several names.
            one.store.outside("ln h d/name").expect(0);
        }
        let plain = one.store.outside(NUMBERS).expect(0).text();
        let plain_uses = one.store.outside(USES).expect(0).text();
        // A changed object keeps its number.
        let script = format!(
            "{{ {NUMBERS}; }} > {shown}/before; {{ {USES}; }} > {shown}/uses
            echo more >> h; chmod 640 many/1; chmod 700 d many; touch d/f; rm link; ln -s h link
            rm d/s/g; echo old > d/s/g
            {{ {NUMBERS}; }} > {shown}/after; ls -a > {shown}/list"
        );
        exclusive(one, &script).expect(0);
        assert_eq!(read("before"), plain);
        assert_eq!(read("uses"), plain_uses);
        let is_old = |line: &&str| !["./link", "./d/s/g"].iter().any(|new| line.ends_with(new));
        let after = read("after");
        let (after, plain) = (after.lines().filter(is_old), plain.lines().filter(is_old));
        assert_eq!(after.collect::<Vec<_>>(), plain.collect::<Vec<_>>());
        let list = read("list");
        assert!(!list.contains(".atomdir"), "{list}");
        exclusive(one, "test ! -e .atomdir && ! ls .atomdir 2> /dev/null").expect(0);
    });
}

#[test]
fn option_and_setting_make_runs_and_shells_exclusive() {
    let test = "option_and_setting_make_runs_and_shells_exclusive";
    let atomdir = binary();
    let atomdir = atomdir.display();
    // The only transaction is the one that it runs in.
    let probe = format!(
        "{atomdir} status | grep '^lock  *exclusive . and all below' || true
         {atomdir} status | grep '^view  *exclusive$' || true"
    );
    for_each_store(test, |one| {
        let store = &one.store;
        let program = one.scratch.join("shell");
        fs::write(&program, format!("#!/bin/sh\n{probe}\necho new > h\n")).expect("written");
        shell(one.scratch.path(), "chmod 755 shell");
        let is_exclusive = |ran: Outcome| {
            let shown = ran.expect(0).text().lines().count();
            assert_ne!(shown, 1, "the lock, or the kind of view, is not shown");
            shown > 0
        };
        let in_shell = |options: &[&str]| {
            store.outside("echo old > h").expect(0);
            let mut command = store.command(["shell", "--on-success", "commit"]);
            let ran = capture_output(command.args(options).env("SHELL", &program));
            assert_eq!(read(one, "h"), "new\n");
            is_exclusive(ran)
        };
        assert!(is_exclusive(exclusive(one, &probe)));
        assert!(in_shell(&["--exclusive"]));
        assert!(!in_shell(&[]) && !is_exclusive(store.run(&probe)));
        store.call(["config", "view", "exclusive"]).expect(0);
        assert_eq!(store.call(["config", "view"]).text(), "exclusive\n");
        assert!(in_shell(&[]) && is_exclusive(store.run(&probe)));
        for view in ["exact", "native", "auto"] {
            assert!(!in_shell(&["--view", view]), "{view}");
        }
        let serializable = store.run_with(&["--isolation", "serializable"], "true");
        serializable.expect(CONFIGURATION).says(&["nobody sees"]);
        // The setting is not for nested transactions, which have exact views only.
        store.run_exact(&format!("{atomdir} run -- true")).expect(0);
        let view = store.begin();
        store.exec(&view, "echo begun > h").expect(0);
        store.commit(&view).expect(0);
        store.call(["config", "view", ""]).expect(0);
        assert!(!is_exclusive(store.run(&probe)));
    });
}

#[test]
fn exclusive_run_is_tried_again_after_a_conflict() {
    for_each_store("exclusive_run_is_tried_again_after_a_conflict", |one| {
        let tries = one.scratch.join("signs/tries");
        let script = format!("echo once >> {}; echo mine >> h", tries.display());
        let retry = ["--exclusive", "--retry", "3"];
        let ran = one.run_and_meanwhile(&retry, &script, || {
            drop(one.store.outside("echo out > h").expect(0));
        });
        ran.expect(0);
        assert_eq!(read(one, "h"), "out\nmine\n");
        let tries = fs::read_to_string(tries).expect("it is there");
        assert_eq!(tries, "once\nonce\n");
    });
}

#[test]
fn exclusive_transaction_keeps_others_from_committing_until_it_ends() {
    let test = "exclusive_transaction_keeps_others_from_committing_until_it_ends";
    for_each_store(test, |one| {
        let store = &one.store;
        let ran = one.run_and_meanwhile(&EXCLUSIVE, "echo mine > h", || {
            // Others read and begin, but cannot commit.
            store.run("test \"$(cat h)\" = old").expect(0);
            let view = store.begin();
            store.exec(&view, "echo other > d/f").expect(0);
            store
                .commit(&view)
                .expect(CONFLICT)
                .says(&["locked", "transaction 1"]);
            store
                .run("echo new > new")
                .expect(CONFLICT)
                .says(&["locked"]);
            let list = store.call(["list"]).expect(0).text();
            assert!(list.contains(&view.id), "{list}");
            store.abort(&view).expect(0);
        });
        ran.expect(0);
        store.call(["abort", "--all", "--quiet"]).expect(0);
        assert_eq!(
            (read(one, "h"), read(one, "d/f")),
            ("mine\n".into(), "old\n".into())
        );
        store.run("echo other > d/f").expect(0);
        assert_eq!(read(one, "d/f"), "other\n");
    });
}

#[test]
fn exclusive_transactions_wait_for_each_other_and_for_locks() {
    let test = "exclusive_transactions_wait_for_each_other_and_for_locks";
    for_each_store(test, |one| {
        let store = &one.store;
        let view = store.begin();
        store.call(["lock", &view.id, "h"]).expect(0);
        let children: Vec<_> = (0..3)
            .map(|_| {
                let script = "test ! -e lock; touch lock; echo x >> h; rm lock";
                let mut command = store.command(["run", "--exclusive", "--", "sh", "-ec", script]);
                let command = command.stdin(Stdio::null()).stderr(Stdio::piped());
                command.spawn().expect("it starts")
            })
            .collect();
        wait_until("all three to wait", || {
            let open = store.call(["--json", "service", "status"]).expect(0).text();
            let value: serde_json::Value = serde_json::from_str(&open).expect("JSON");
            value["open"].as_u64().is_none_or(|open| open >= 1)
        });
        // A transaction that waits has seen nothing yet, so what is committed meanwhile is no conflict.
        store.exec(&view, "echo locked > h").expect(0);
        store.commit(&view).expect(0);
        for child in children {
            let ended = child.wait_with_output().expect("it ends");
            Outcome::from_output("atomdir run".to_owned(), ended).expect(0);
        }
        assert_eq!(read(one, "h"), "locked\nx\nx\nx\n");
    });
}

/// The outsider acts after the transaction's step, or before it.
#[test]
fn outside_writers_conflict_with_an_exclusive_transaction() {
    let test = "outside_writers_conflict_with_an_exclusive_transaction";
    if !native_views_possible(test) {
        return;
    }
    let steps = [
        ("echo mine >> d/f", "echo out > d/f"),
        ("echo mine >> d/f", "chmod 600 d/f"),
        ("echo mine >> d/f", "rm d/f"),
        ("echo mine >> d/f", "mv d/f moved"),
        ("echo mine >> d/f", "echo out > t; mv t d/f"),
        ("echo mine >> d/f", "mv d t; mkdir d; echo out > d/f"),
        ("echo mine >> d/f; ln d/f e/f2", "rm d/f"),
        ("echo mine >> d/f; ln d/f e/f2", "echo out > t; mv t d/f"),
        ("ln d/f d/f2", "rm d/f"),
        ("chmod 600 d/f", "echo out > d/f"),
        ("chmod 600 d/f", "rm d/f"),
        ("chmod 600 d/f", "echo out > t; mv t d/f"),
        ("rm d/f", "echo out > d/f"),
        ("rm d/f", "echo out > t; mv t d/f"),
        ("rm d/f", "rm d/f"),
        ("mv d/f e/f", "echo out > t; mv t d/f"),
        ("mv d/f e/f", "rm d/f"),
        ("echo mine > d/new", "echo out > d/new"),
        ("echo mine > d/new", "mkdir d/new"),
        ("mkdir d/new", "mkdir d/new"),
        (
            "mkdir d/new; echo mine > d/new/x",
            "mkdir d/new; echo out > d/new/x",
        ),
        ("rm -r d", "echo out > d/new"),
        ("rm -r d", "rm d/f"),
        ("rm -r d", "echo out > d/s/g"),
        ("rm -r d", "mv d t; mkdir d"),
        ("rm -r d; mkdir d", "mv d t; mkdir d"),
        ("rmdir empty", "mv empty t; mv e empty"),
        ("chmod 700 d", "chmod 711 d"),
        ("chmod 700 d", "mv d t"),
        ("echo mine > d/s/new", "mv d/s t"),
        ("echo mine > d/s/new", "mv d/s t; mv e d/s"),
        ("rm d/s/g", "mv d/s t; mkdir d/s; echo out > d/s/g"),
        ("echo mine > link", "echo out > h"),
        ("rm link; ln -s mine link", "ln -sf out link"),
    ];
    for_each_owner(test, |owner| {
        for (mine, outside) in steps {
            let fixture = Fixture::owned_by("exclusive-outside", owner, TREE);
            let theirs = || drop(fixture.store.outside(outside).expect(0));
            let keep = ["--exclusive", "--on-conflict", "abort"];
            let what = format!("{mine} | {outside}");
            let ran = fixture.run_and_meanwhile(&keep, mine, theirs);
            assert_eq!(ran.code, CONFLICT, "{what}: {ran}");
            let plain = Fixture::owned_by("exclusive-plain", owner, TREE);
            plain.store.outside(outside).expect(0);
            let same = CompareOptions {
                root: false,
                ..CompareOptions::alike()
            };
            assert_equal(
                &format!("{what}: expected, found"),
                &plain.look(),
                &fixture.look(),
                &same,
            );
        }
    });
}

#[test]
fn outside_writers_elsewhere_do_not_conflict_with_an_exclusive_transaction() {
    let test = "outside_writers_elsewhere_do_not_conflict_with_an_exclusive_transaction";
    for_each_store(test, |one| {
        let ran = one.run_and_meanwhile(
            &EXCLUSIVE,
            "echo mine >> d/f; rm -r many; mv h hh; mkdir n; echo x > n/x",
            || {
                drop(
                    one.store
                        .outside("echo out > e/out; echo out > d/out")
                        .expect(0),
                )
            },
        );
        ran.expect(0);
        assert_eq!(read(one, "d/f"), "old\nmine\n");
        assert_eq!(
            (read(one, "e/out"), read(one, "d/out")),
            ("out\n".into(), "out\n".into())
        );
        assert_eq!(read(one, "hh"), "old\n");
        for gone in ["many", "h"] {
            assert!(!one.base.join(gone).exists(), "{gone}");
        }
    });
}

#[test]
fn killed_command_and_killed_service_free_the_store() {
    let test = "killed_command_and_killed_service_free_the_store";
    for_each_store(test, |one| {
        let before = one.look();
        let untouched = || {
            let same = CompareOptions::untouched();
            assert_equal("before, after", &before, &one.look(), &same);
        };
        let ready = one.scratch.join("signs/ready");
        let start = || {
            shell(one.scratch.path(), "rm -rf signs; mkdir -m 1777 signs");
            let script = format!(
                "echo mine > h; rm -r many; echo $$ > {}; exec sleep 1000 > /dev/null 2>&1",
                ready.display()
            );
            let mut command = one
                .store
                .command(["run", "--exclusive", "--", "sh", "-ec", &script]);
            let command = command.stdin(Stdio::null()).stderr(Stdio::null());
            let child = command.spawn().expect("it starts");
            let has_written = || fs::read(&ready).is_ok_and(|text| text.ends_with(b"\n"));
            wait_until("the command's changes", has_written);
            child
        };
        let mut child = start();
        child.kill().expect("killed");
        child.wait().expect("it has ended");
        let left = fs::read_to_string(&ready).expect("it is there");
        shell(one.scratch.path(), &format!("kill -KILL {left}"));
        // This waits until the service has noticed.
        exclusive(one, "test \"$(cat h)\" = old").expect(0);
        untouched();
        let mut child = start();
        assert!(one.store.kill_service());
        let status = child.wait().expect("it ends");
        assert!(!status.success());
        untouched();
        exclusive(one, "echo new > h").expect(0);
        assert_eq!(read(one, "h"), "new\n");
    });
}

/// The time of the commit to be confirmed passes while the store is locked.
#[test]
fn unconfirmed_commit_takes_itself_back_once_an_exclusive_transaction_has_ended() {
    let test = "unconfirmed_commit_takes_itself_back_once_an_exclusive_transaction_has_ended";
    for_each_store(test, |one| {
        let store = &one.store;
        store
            .run_with(&["--confirm", "3s"], "echo trial > d/f")
            .expect(0);
        let script = "cat d/f > e/before; echo mine > h";
        let ran = one.run_and_meanwhile(&EXCLUSIVE, script, || {
            let before = read(one, "d/f");
            thread::sleep(Duration::from_secs(4));
            assert_eq!(read(one, "d/f"), before);
        });
        ran.expect(0);
        wait_until("the commit to be taken back", || {
            read(one, "d/f") == "old\n"
        });
        assert_eq!(read(one, "h"), "mine\n");
        let log = store.call(["log"]).expect(0).text();
        assert!(log.contains("nobody has confirmed it"), "{log}");
    });
}

#[test]
fn exclusive_transactions_can_be_sealed_kept_and_looked_at() {
    let test = "exclusive_transactions_can_be_sealed_kept_and_looked_at";
    for_each_store(test, |one| {
        let store = &one.store;
        store
            .run_with(&["--exclusive", "--sealed"], "echo sealed > h; mv d dd")
            .expect(0);
        assert_eq!(
            (read(one, "h"), read(one, "dd/f")),
            ("sealed\n".into(), "old\n".into())
        );
        let listed = store.run_with(&["--exclusive", "--dry-run"], "rm -r many; chmod -R g+w dd");
        let listed = listed.expect(0).text();
        assert!(
            listed.contains("D many/1") && listed.contains("M dd/f"),
            "{listed}"
        );
        assert!(one.base.join("many/1").exists());
        let keep = ["--exclusive", "--on-success", "keep"];
        let ran = one.run_and_meanwhile(&keep, "echo kept > h; rm many/1", || {
            let listed = store.call(["list", "--json"]).expect(0).text();
            let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
            let id = listed["transactions"][0]["transaction"].to_string();
            let diff = store.call(["diff", &id]).expect(0).text();
            assert!(diff.contains("+kept") && diff.contains("many/1"), "{diff}");
        });
        ran.expect(0);
        store.run("echo other > other").expect(CONFLICT);
        store.call(["abort", "--all", "--quiet"]).expect(0);
        store.run("echo other > other").expect(0);
    });
}

#[test]
fn exclusive_transaction_is_refused_with_the_reason() {
    let test = "exclusive_transaction_is_refused_with_the_reason";
    let atomdir = binary();
    let atomdir = atomdir.display();
    for_each_store(test, |one| {
        let store = &one.store;
        let serializable = ["--exclusive", "--isolation", "serializable"];
        let refused = store.run_with(&serializable, "true").expect(CONFIGURATION);
        refused.says(&["serializable", "nobody sees"]);
        let nested = exclusive(one, &format!("{atomdir} run -- true"));
        nested.expect(CONFIGURATION).says(&["is exclusive"]);
        let begun = exclusive(one, &format!("{atomdir} begin"));
        begun.expect(CONFIGURATION).says(&["is exclusive"]);
        let saved = exclusive(one, &format!("{atomdir} savepoint a"));
        saved.expect(CONFIGURATION).says(&["no savepoints"]);
        let nested = store.run(&format!("{atomdir} run --exclusive -- true"));
        nested.expect(CONFIGURATION).says(&["nested"]);
        let taken = exclusive(one, "mkdir .atomdir; echo new > h");
        taken.expect(CONFIGURATION).says(&["control directory"]);
        assert_eq!(read(one, "h"), "old\n");
        store.call(["abort", "--all", "--quiet"]).expect(0);
        if !store.user().is_root() {
            store.outside("ln h name").expect(0);
            let refused = exclusive(one, "true").expect(CONFIGURATION);
            refused.says(&["several names"]);
            store.outside("rm name").expect(0);
        }
        shell(&one.base, "mount -t tmpfs none empty");
        let refused = exclusive(one, "true");
        unmount(&one.base.join("empty"));
        refused.expect(CONFIGURATION).says(&["mounted"]);
        exclusive(one, "true").expect(0);
        assert!(Path::new(&one.base).join("empty").exists());
    });
}

#[test]
fn exclusive_transaction_lands_in_part_when_others_have_closed_the_rest() {
    let test = "exclusive_transaction_lands_in_part_when_others_have_closed_the_rest";
    if !users_can_mount(test) {
        return;
    }
    let cases = [
        ("echo mine > d/f", "chown 0:0 d/f; chmod 600 d/f"),
        ("chmod 640 d/f", "chown 0:0 d/f; chmod 600 d/f"),
        ("echo mine > d/s/g", "chown 0:0 d/s; chmod 700 d/s"),
        ("rm d/s/g", "chown 0:0 d; chmod 700 d"),
        ("rm -r d/s", "chmod 0 d/s"),
    ];
    for (mine, theirs) in cases {
        let one = Fixture::owned_by("exclusive-closed", User::ordinary, TREE);
        let script = format!("{mine}; echo rest > h");
        let ran = one.run_and_meanwhile(&EXCLUSIVE, &script, || drop(shell(&one.base, theirs)));
        ran.expect_one_of(&[CONFLICT, NOT_PERMITTED]).says(&["d/"]);
        one.store.call(["commit", "1", "--", "h"]).expect(0);
        assert_eq!(
            (read(&one, "h"), read(&one, "d/f")),
            ("rest\n".into(), "old\n".into())
        );
        assert_eq!(read(&one, "d/s/g"), "old\n");
        one.store.call(["abort", "--all", "--quiet"]).expect(0);
    }
}

/// overlayfs takes such a device for a sign that a name is gone.
#[test]
fn a_device_of_number_0_is_not_lost_by_an_exclusive_transaction() {
    let test = "a_device_of_number_0_is_not_lost_by_an_exclusive_transaction";
    if !native_views_possible(test) {
        return;
    }
    let fixture = Fixture::new(
        "exclusive-device",
        "mkdir d; mknod d/old c 0 0; echo x > d/x",
    );
    let abort = ["--exclusive", "--on-conflict", "abort"];
    for script in ["rm d/x; rmdir d", "echo new > d/old"] {
        fixture.store.run_with(&abort, script).expect(CONFLICT);
        let found = fs::symlink_metadata(fixture.base.join("d/old")).expect("it is there");
        assert_eq!(found.rdev(), 0);
        assert!(fixture.base.join("d/x").exists());
    }
    fixture
        .store
        .run_with(&abort, "echo more >> d/x; mv d e")
        .expect(0);
    assert!(fs::symlink_metadata(fixture.base.join("e/old")).is_ok());
}
