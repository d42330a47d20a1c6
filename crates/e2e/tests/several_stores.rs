#![cfg(test)]

//! One command in the transactions of several stores: all of them commit, or none. The client is killed
//! between the steps of the commit by leaving out the rest of them.

use atomdir::client::{BeginOptions, Connection, Others};
use atomdir::{StartService, TransactionId, find};
use atomdir_testing::exit_code::{CONFLICT, USAGE};
use atomdir_testing::{Fixture, Store, native_views_possible, shell, wait_until};
use std::fs;
use std::path::Path;

/// Runs a script in the transactions of both stores; `$a` and `$b` are their roots.
fn run(
    fixture: &Fixture,
    other: &Store,
    options: &[&str],
    script: &str,
) -> atomdir_testing::Outcome {
    let (a, b) = (fixture.base.display(), other.path().display());
    let other = other.path().to_str().expect("it is text");
    let mut words = vec!["-C", other, "run"];
    words.extend(options);
    let script = format!("a='{a}' b='{b}'; {script}");
    words.extend(["--", "sh", "-ec", &script]);
    fixture.store.call(words)
}

fn listed(store: &Store) -> Vec<serde_json::Value> {
    let text = store.call(["--json", "list"]).expect(0).text();
    let listed: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    listed["transactions"].as_array().expect("a list").clone()
}

#[test]
fn all_stores_have_the_commit_or_none_has() {
    Fixture::for_each_owner("several-stores", "echo old > file", |fixture| {
        let other = fixture.beside();
        run(
            fixture,
            &other,
            &[],
            "echo 1 >> $a/file; echo 1 > $b/new; cat $b/new $a/file",
        )
        .expect(0);
        shell(&fixture.base, "grep -q 1 file && grep -q 1 ../beside/new");
        // Only the second has changed, so it decides alone.
        run(fixture, &other, &[], "echo 2 >> $b/new").expect(0);
        run(fixture, &other, &[], "true").expect(0);
        run(
            fixture,
            &other,
            &[],
            "echo bad > $a/file; rm $b/new; exit 3",
        )
        .expect(3);
        run(fixture, &other, &["--dry-run"], "rm $a/file $b/new").expect(0);
        // Someone else commits first, in either store.
        let signs = fixture.scratch.join("signs");
        shell(fixture.scratch.path(), "mkdir -m 1777 signs");
        for (first, name) in [(&fixture.store, "file"), (&other, "new")] {
            let ready = signs.join("ready");
            let go_on = signs.join("go-on");
            let script = format!(
                "echo mine > $a/file; echo mine > $b/new; touch '{}'; \
                 until test -e '{}'; do sleep 0.05; done",
                ready.display(),
                go_on.display()
            );
            let outcome = std::thread::scope(|scope| {
                let running = scope.spawn(|| run(fixture, &other, &[], &script));
                wait_until("the command runs", || {
                    ready.exists() || running.is_finished()
                });
                first.run(&format!("echo theirs > {name}")).expect(0);
                fs::write(&go_on, "").expect("it is written");
                running.join().expect("it ends")
            });
            outcome.expect(CONFLICT);
            fs::remove_file(ready).expect("it is there");
            fs::remove_file(go_on).expect("it is there");
        }
        shell(
            &fixture.base,
            "grep -q theirs file && grep -q theirs ../beside/new",
        );
        assert!(listed(&fixture.store).is_empty() && listed(&other).is_empty());
        for refused in [
            &["--ask"][..],
            &["--isolation", "serializable"],
            &["--in", "none"],
        ] {
            run(fixture, &other, refused, "true").expect(USAGE);
        }
        run(fixture, &fixture.store, &[], "true").expect(USAGE);
        fixture.store.assert_at_rest();
        other.assert_at_rest();
    });
}

/// Each view is native unless its own store is set to exact views. What overlayfs would refuse works in
/// each, and what is left running in any of them is ended before the commit.
#[test]
fn views_of_all_stores_are_native_where_they_can_be() {
    if !native_views_possible("several-stores-native") {
        return;
    }
    Fixture::for_each_owner("several-stores-native", "mkdir -p old/sub", |fixture| {
        let other = fixture.beside();
        other.outside("mkdir -p old/sub").expect(0);
        for (round, exact) in [None, Some(&fixture.store), Some(&other)]
            .into_iter()
            .enumerate()
        {
            for store in [&fixture.store, &other] {
                let is_exact = exact.is_some_and(|exact| exact.path() == store.path());
                let view = if is_exact { "exact" } else { "auto" };
                store.call(["config", "view", view]).expect(0);
            }
            let kinds = run(
                fixture,
                &other,
                &[],
                "for root in $a $b; do kind=$(stat -f -c %T $root/old); echo $kind; cd $root; mv old new; \
                 echo 1 > new/file; if test $kind = overlayfs; then sleep 1000 > new/open 2> /dev/null & \
                 until test -e new/open; do sleep 0.01; done; fi; mv new old; done",
            );
            let expected = match round {
                0 => "overlayfs\noverlayfs\n",
                1 => "fuseblk\noverlayfs\n",
                _ => "overlayfs\nfuseblk\n",
            };
            let kinds = kinds.expect(0).text().replace("fuse\n", "fuseblk\n");
            assert_eq!(kinds, expected);
            for store in [&fixture.store, &other] {
                shell(
                    store.path(),
                    "test -d old/sub && grep -q 1 old/file && rm -f old/file old/open",
                );
            }
        }
        assert!(listed(&fixture.store).is_empty() && listed(&other).is_empty());
        fixture.store.assert_at_rest();
        other.assert_at_rest();
    });
}

/// A transaction of each store, as the command has them when it has done its work.
struct Joint {
    first: (Connection, TransactionId),
    second: (Connection, TransactionId),
}

fn connect(root: &Path) -> Connection {
    let store = find(root).expect("it is a store");
    Connection::open(&store, &StartService::Never).expect("the service answers")
}

/// Changes `file` in both, and has the second vote.
fn vote(first: &Store, second: &Store, contents: &str) -> Joint {
    for store in [first, second] {
        store.call(["service", "start"]).expect(0);
    }
    let (first, second) = (first.path(), second.path());
    let begin = |root: &Path| {
        let mut connection = connect(root);
        let transaction = connection.begin(&BeginOptions::default()).expect("begun");
        fs::write(transaction.view_path.join("file"), contents).expect("it is written");
        (connection, transaction.id)
    };
    let mut joint = Joint {
        first: begin(first),
        second: begin(second),
    };
    let (connection, transaction) = &mut joint.first;
    let coordinates = connection.coordinate(*transaction, Others::Refuse, &mut |_| {});
    assert!(coordinates.expect("nobody is in the way"));
    let coordinator = connection.introduce(*transaction).expect("it is open");
    let (connection, transaction) = &mut joint.second;
    let voted = connection.vote(*transaction, &coordinator, Others::Refuse, &mut |_| {});
    assert!(voted.expect("nobody is in the way"));
    joint
}

fn holds(store: &Store, contents: &str) -> bool {
    fs::read_to_string(store.path().join("file")).is_ok_and(|read| read == contents)
}

/// The client dies after the vote, before or after the decision, and so may the services: in the end
/// both stores have the commit, or neither.
#[test]
fn services_learn_the_decision_from_one_another() {
    let fixture = Fixture::new("several-stores-killed", "echo old > file");
    let (first, second) = (&fixture.store, fixture.beside());
    shell(second.path(), "echo old > file");
    // Whether the coordinator commits, and which services are killed before and after that.
    for (kills, commits) in (0..4).flat_map(|kills| [(kills, true), (kills, false)]) {
        for store in [first, &second] {
            shell(store.path(), "echo old > file");
        }
        let contents = format!("{kills} {commits}");
        let Joint {
            first: one,
            second: two,
        } = vote(first, &second, &contents);
        let doubtful = two.1.to_string();
        drop(two);
        if kills & 1 != 0 {
            assert!(second.kill_service());
        }
        // Nothing but the decision ends it.
        second.call(["abort", &doubtful]).expect(CONFLICT);
        let aborting = ["--on-conflict", "abort"];
        second
            .run_with(&aborting, "echo theirs > file")
            .expect(CONFLICT);
        let decides = listed(&second)[0]["in_doubt"]["store"].clone();
        assert_eq!(decides, first.path().to_str().expect("it is text"));
        let (mut connection, coordinator) = one;
        if commits {
            connection
                .commit_coordinator(coordinator, &mut |_| {})
                .expect("nobody is in the way");
        }
        drop(connection);
        if kills & 2 != 0 {
            first.kill_service();
            second.kill_service();
        }
        let expected = if commits { &contents } else { "old\n" };
        wait_until("it has learned the decision", || listed(&second).is_empty());
        assert!(
            holds(first, expected) && holds(&second, expected),
            "{contents}"
        );
    }
    first.assert_at_rest();
    second.assert_at_rest();
}

/// The store that decides is gone, and the administrator decides for the other one alone.
#[test]
fn administrators_decide_if_the_other_store_is_lost() {
    let fixture = Fixture::new("several-stores-lost", "echo old > file");
    let (first, second) = (&fixture.store, fixture.beside());
    shell(second.path(), "echo old > file");
    for (decision, outside) in [("--abort", false), ("--commit", false), ("--commit", true)] {
        let Joint {
            first: one,
            second: two,
        } = vote(first, &second, decision);
        let doubtful = two.1.to_string();
        second.kill_service();
        drop((one, two));
        first.kill_service();
        let away = first.path().with_file_name("away");
        fs::rename(first.path(), &away).expect("it is moved");
        wait_until("it says that it cannot ask", || {
            listed(&second)[0]["in_doubt"]["reason"].as_str().is_some()
        });
        // The end of the service ends no doubt either.
        second.call(["service", "stop", "--abort"]).expect(0);
        assert!(listed(&second)[0]["in_doubt"].is_object());
        if outside {
            shell(second.path(), "echo outside > file");
            second
                .call(["resolve", &doubtful, "--commit"])
                .expect(CONFLICT);
            second
                .call(["resolve", &doubtful, "--commit", "--take-mine"])
                .expect(0);
        } else {
            second.call(["resolve", &doubtful, decision]).expect(0);
        }
        assert!(listed(&second).is_empty());
        assert!(holds(
            &second,
            if decision == "--abort" {
                "old\n"
            } else {
                decision
            }
        ));
        fs::rename(&away, first.path()).expect("it is moved back");
    }
    second.call(["resolve", "1", "--abort"]).expect(66);
    second.assert_at_rest();
}
