#![cfg(test)]

//! If a transaction has ended otherwise than its user wanted, the user learns which one, how and by
//! whom.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use atomdir_testing::exit_code::NO_SUCH;
use atomdir_testing::{Fixture, Store, User, binary, capture_output, wait_until};

fn ended(store: &Store, user: &User) -> Vec<serde_json::Value> {
    let listed = store.call_as(user, ["--json", "list", "--ended"]).expect(0);
    let listed: serde_json::Value = serde_json::from_str(&listed.text()).expect("it is JSON");
    listed["ended"].as_array().expect("a list").clone()
}

fn ids(ended: &[serde_json::Value]) -> Vec<String> {
    let ids = ended.iter().map(|one| one["transaction"].to_string());
    ids.collect()
}

/// Kills the service while a transaction that does not survive has changed two files.
fn lose_one(store: &Store) -> String {
    let view = store.begin_with(&["--isolation", "serializable", "-m", "long \x1b[31mwork"]);
    store.exec(&view, "echo 1 > new; echo 2 > file").expect(0);
    assert!(store.kill_service());
    view.id
}

#[test]
fn first_command_after_a_kill_says_once_what_was_discarded() {
    Fixture::for_each_owner("notice-kill", "echo old > file", |one| {
        let (store, user) = (&one.store, one.store.user());
        let done = store.begin();
        store.exec(&done, "echo done > done").expect(0);
        store.commit(&done).expect(0);
        let aborted = store.begin();
        store.abort(&aborted).expect(0);
        let id = lose_one(store);
        let said = store.call(["list"]).expect(0);
        let said = said.says(&[&id, "long ", "was discarded", "killed", "about 2 changes"]);
        let text = said.error_text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b'), "{text}");
        assert_eq!(store.call(["list"]).expect(0).error_text(), "");

        let listed = ended(store, user);
        assert_eq!(
            ids(&listed),
            [id.as_str()],
            "only the transaction that its user has not ended"
        );
        assert_eq!(listed[0]["how"], "died");
        assert_eq!(listed[0]["changes_count"], 2);
        assert_eq!(listed[0]["owner"], user.uid);
        for verb in ["commit", "diff", "status"] {
            store.call([verb, &id]).expect(NO_SUCH).says(&["killed"]);
        }
        store
            .call(["exec", &id, "--", "true"])
            .expect(NO_SUCH)
            .says(&["killed"]);
        store
            .commit(&done)
            .expect(NO_SUCH)
            .says(&["committed as 1", "show 1"]);

        let lost = lose_one(store);
        let said = store.call(["--json", "list"]).expect(0).error_text();
        let said: serde_json::Value = serde_json::from_str(&said).expect("one object");
        assert_eq!(said["ended"]["transaction"].to_string(), lost);
        // The list outlives the service, whether it is killed or stopped.
        store.call(["service", "stop"]).expect(0);
        assert_eq!(ids(&ended(store, user)), [id, lost]);
    });
}

/// Completion prints nothing that its user would read, so it must not use up the notices.
#[test]
fn completion_leaves_notices_for_the_next_command() {
    Fixture::for_each_owner("notice-tab", "echo old > file", |one| {
        let store = &one.store;
        let old = store.begin_with(&["--max-age", "1s"]);
        let press_tab = || {
            let mut command = Command::new(binary());
            store.user().dress(&mut command);
            command
                .args(["--", "atomdir", "-C"])
                .arg(store.path())
                .args(["commit", ""])
                .env("ATOMDIR_COMPLETE", "bash")
                .env("_CLAP_COMPLETE_INDEX", "4")
                .current_dir("/");
            let outcome = capture_output(&mut command).expect(0);
            assert_eq!(outcome.error_text(), "");
            outcome.text()
        };
        wait_until("the maximum age", || {
            press_tab().lines().all(|id| id != old.id)
        });
        press_tab();
        store
            .call(["list"])
            .expect(0)
            .says(&[&old.id, "maximum age"]);
    });
}

/// A part was committed before the rest was discarded. Unlike a commit this is reported.
#[test]
fn rest_of_a_transaction_is_discarded_though_a_part_has_landed() {
    Fixture::for_each_owner("notice-part", "echo old > file", |one| {
        let store = &one.store;
        let whole = store.begin();
        store.exec(&whole, "echo 1 > a; echo 2 > b").expect(0);
        store.call(["commit", &whole.id, "--", "a"]).expect(0);
        store.commit(&whole).expect(0);
        let view = store.begin();
        store.exec(&view, "echo 1 > c; echo 2 > d").expect(0);
        // After another commit, committing a part does not refresh the transaction, which then
        // no longer survives.
        store.run("echo other > other").expect(0);
        store.call(["commit", &view.id, "--", "c"]).expect(0);
        store.kill_service();
        store
            .call(["list"])
            .expect(0)
            .says(&[&view.id, "was discarded"]);
        assert_eq!(ids(&ended(store, store.user())), [view.id]);
        assert!(one.base.join("c").exists() && !one.base.join("d").exists());
    });
}

#[test]
fn stranded_transaction_is_explained_to_those_who_name_it() {
    Fixture::for_each_owner("notice-stranded", "echo old > file", |one| {
        let store = &one.store;
        let view = store.begin();
        store.exec(&view, "echo inside > mine").expect(0);
        store.run("echo other > theirs").expect(0);
        store.call(["service", "stop", "--keep"]).expect(0);
        // Without the past, the transaction's snapshot cannot be restored.
        std::fs::remove_file(one.base.join(".atomdir/past")).expect("it is there");
        for verb in ["commit", "diff", "status"] {
            let said = store.call([verb, &view.id]).expect(NO_SUCH);
            said.says(&["cannot be opened again", "abort"]);
        }
        store.abort(&view).expect(0);
        assert!(
            ended(store, store.user()).is_empty(),
            "its own user has ended it"
        );
    });
}

fn shared(test: &str) -> (Fixture, User, User) {
    let fixture = Fixture::new(test, "chmod 1777 .");
    let users = ["games,nobody"];
    let (mine, other) = (User::stranger as fn(&Path) -> User, User::ordinary);
    fixture
        .store
        .call(["config", "allow"].iter().chain(&users))
        .expect(0);
    let scratch = fixture.scratch.path();
    let (mine, other) = (mine(scratch), other(scratch));
    fixture.store.call(["service", "start"]).expect(0);
    (fixture, mine, other)
}

fn begin_as(store: &Store, user: &User) -> String {
    let begun = store
        .call_as(user, ["--trust", "begin", "-m", "theirs"])
        .expect(0);
    begun.text().lines().next().expect("its id").to_owned()
}

#[test]
fn users_learn_who_ended_their_transactions_and_nothing_of_others() {
    let (fixture, user, other) = shared("notice-shared");
    let store = &fixture.store;
    let root = store.user();
    let quiet = |user: &User| {
        let listed = store.call_as(user, ["--trust", "list"]).expect(0);
        assert_eq!(listed.error_text(), "");
    };
    let by_root = begin_as(store, &user);
    let own = begin_as(store, &user);
    let theirs = begin_as(store, &other);
    let change = "echo 1 > new-1; echo 2 > new-2; echo 3 > new-3";
    let change = ["--trust", "exec", &by_root, "--", "sh", "-ec", change];
    store.call_as(&user, change).expect(0);
    store.call(["abort", &by_root]).expect(0);
    quiet(&other);
    let said = store.call_as(&user, ["--trust", "-q", "abort", &own]);
    said.expect(0)
        .says(&[&by_root, "root has aborted it", "about 3 changes are lost"]);
    quiet(&user);
    let aged = store.call_as(&user, ["--trust", "begin", "--max-age", "1s"]);
    let aged = aged.expect(0).text();
    let aged = aged.lines().next().expect("its id").to_owned();
    wait_until("the maximum age", || {
        ids(&ended(store, root)).contains(&aged)
    });
    let said = store.call_as(&user, ["--trust", "list"]).expect(0);
    said.says(&[&aged, "maximum age"]);
    let last = begin_as(store, &user);
    // root gets notices about others' transactions only if their end was an accident.
    quiet(root);
    store.call(["service", "stop", "--abort"]).expect(0);
    store.call(["service", "start"]).expect(0);
    quiet(root);
    let said = store.call_as(&user, ["--trust", "list"]).expect(0);
    said.says(&[&last, "root has stopped"]);
    assert_eq!(ids(&ended(store, &other)), [theirs.as_str()]);
    let mine = ended(store, &user);
    assert_eq!(ids(&mine), [by_root.clone(), aged.clone(), last.clone()]);
    assert_eq!(
        (&mine[0]["how"], &mine[0]["by"]),
        (&"aborted".into(), &0.into())
    );
    let mut all = ids(&ended(store, root));
    all.sort();
    let mut expected = vec![by_root.clone(), aged, last, theirs];
    expected.sort();
    assert_eq!(all, expected);
    let refused = store.call_as(&other, ["--trust", "commit", &by_root]);
    let refused = refused.expect(NO_SUCH).error_text();
    assert!(refused.contains("no open transaction"), "{refused}");
    store.assert_at_rest();
}

/// After a crash the transaction's user and the store's owner get one notice each.
#[test]
fn owner_of_the_store_and_of_the_transaction_both_learn_of_a_crash() {
    let (fixture, user, other) = shared("notice-both");
    let store = &fixture.store;
    let begun = store.call_as(&user, ["--trust", "begin", "--isolation", "serializable"]);
    let id = begun
        .expect(0)
        .text()
        .lines()
        .next()
        .expect("its id")
        .to_owned();
    store.kill_service();
    store
        .call(["service", "start"])
        .expect(0)
        .says(&[&id, "of games", "was discarded"]);
    for (user, is_told) in [(&other, false), (&user, true), (&user, false)] {
        let listed = store
            .call_as(user, ["--trust", "list"])
            .expect(0)
            .error_text();
        assert_eq!(listed.contains(&id), is_told, "{listed}");
    }
    assert_eq!(store.call(["list"]).expect(0).error_text(), "");
    store.assert_at_rest();
}

/// The service works whatever the file contains, and still reports the notices in it that are whole.
#[test]
fn damaged_notices_do_not_keep_the_service_from_working() {
    let fixture = Fixture::new("notice-damage", "echo old > file");
    let store = &fixture.store;
    let file = store.control().join("transactions");
    let first = lose_one(store);
    store.call(["service", "stop"]).expect(0);
    let whole = fs::read(&file).expect("it is there");
    let append = |bytes: &[u8]| {
        let opened = fs::OpenOptions::new().append(true).open(&file);
        opened.expect("opened").write_all(bytes).expect("written");
    };
    append(&whole[..whole.len() - 9]);
    assert_eq!(ids(&ended(store, store.user())), [first.as_str()]);
    let second = lose_one(store);
    assert_eq!(
        ids(&ended(store, store.user())),
        [first.as_str(), second.as_str()]
    );
    store.call(["service", "stop"]).expect(0);

    let elsewhere = fixture.scratch.join("elsewhere");
    fs::write(&elsewhere, &whole).expect("written");
    let others: [&dyn Fn(); 4] = [
        &|| fs::write(&file, b"nothing of ours").expect("written"),
        &|| symlink(&elsewhere, &file).expect("made"),
        &|| fs::create_dir(&file).expect("made"),
        &|| {
            fs::write(&file, &whole).expect("written");
            let mode = fs::Permissions::from_mode(0o666);
            fs::set_permissions(&file, mode).expect("set");
        },
    ];
    for (number, replace) in others.iter().enumerate() {
        let _ = fs::remove_file(&file);
        replace();
        assert!(ended(store, store.user()).is_empty(), "{number}");
        store.run("echo new >> file").expect(0);
        store.call(["service", "stop"]).expect(0);
        if file.is_dir() {
            fs::remove_dir(&file).expect("removed");
        }
    }
    assert_eq!(
        fs::read(&elsewhere).expect("read"),
        whole,
        "links are not followed"
    );
    let mode = fs::metadata(&file).expect("it is there").mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Runs `arguments` and a command that waits, calls `end`, and returns the line of standard error
/// that comes while the command still runs, and all that comes after it.
fn line_while_it_runs(store: &Store, arguments: &[&str], end: impl Fn()) -> (String, String) {
    line_if_it_runs(store, arguments, end).expect("the command starts")
}

/// Likewise; `None` if the transaction has ended before the command could start.
fn line_if_it_runs(store: &Store, arguments: &[&str], end: impl Fn()) -> Option<(String, String)> {
    let waiting = ["--", "sh", "-c", "echo ready; exec cat > /dev/null"];
    let mut command = store.command(arguments.iter().chain(&waiting));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn().expect("it starts");
    let mut ready = String::new();
    let output = running.stdout.take().expect("it is piped");
    BufReader::new(output)
        .read_line(&mut ready)
        .expect("it is read");
    if ready.is_empty() {
        running.wait().expect("it ends");
        return None;
    }
    assert_eq!(ready, "ready\n");
    end();
    let mut errors = BufReader::new(running.stderr.take().expect("it is piped"));
    let mut first = String::new();
    errors.read_line(&mut first).expect("it is read");
    drop(running.stdin.take());
    let rest = std::io::read_to_string(errors).expect("it is read");
    running.wait().expect("it ends");
    Some((first, rest))
}

#[test]
fn attached_command_says_at_once_that_its_transaction_was_ended() {
    Fixture::for_each_view("notice-attached", "echo old > file", |one, view| {
        let store = &one.store;
        let root = User::root(one.scratch.path());
        let open = || {
            let listed = store.call(["--json", "list"]).expect(0).text();
            let listed: serde_json::Value = serde_json::from_str(&listed).expect("it is JSON");
            listed["transactions"][0]["transaction"].to_string()
        };
        let run = ["run", "--view", view];
        let abort = || {
            store
                .call_as(&root, ["--trust", "abort", &open()])
                .expect(0);
        };
        let (line, rest) = line_while_it_runs(store, &run, abort);
        assert!(line.contains("was aborted: root has aborted it"), "{line}");
        assert!(
            rest.contains("no longer open") || rest.contains("no open"),
            "{rest}"
        );
        let (line, _) = line_while_it_runs(store, &run, || {
            store.call(["service", "stop", "--abort"]).expect(0);
        });
        assert!(line.contains("has stopped the store's service"), "{line}");
        if view == "exact" {
            let begun = store.begin();
            let (line, _) = line_while_it_runs(store, &["exec", &begun.id], abort);
            assert!(line.contains("root has aborted it"), "{line}");
        }
        // A busy machine may not start the command in the first of these times.
        let mut ages = ["1s", "10s", "100s"].into_iter();
        let aged = ages.find_map(|age| {
            let aged = ["run", "--view", view, "--max-age", age];
            line_if_it_runs(store, &aged, || {})
        });
        let (line, _) = aged.expect("the command starts");
        assert!(line.contains("maximum age"), "{line}");
        // The attached commands have reported it, so there is no notice.
        assert_eq!(store.call(["list"]).expect(0).error_text(), "");
    });
}

/// The transaction that `status` picks by itself may end before it is shown.
#[test]
fn status_shows_what_is_open_while_transactions_come_and_go() {
    const RUNS: usize = 40;
    Fixture::for_each_owner("status-comes-and-goes", "echo > file", |fixture| {
        let store = &fixture.store;
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                for _ in 0..RUNS {
                    store.run("echo more >> file").expect(0);
                }
            });
            while !runs.is_finished() {
                store.call(["status"]).expect(0);
            }
        });
    });
}
