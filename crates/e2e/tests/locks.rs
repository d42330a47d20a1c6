//! Locks: who waits for whom, who may lock what, and when locks end.
#![cfg(test)]

use std::process::{Child, Command, Stdio};

use atomdir_testing::exit_code::{CONFLICT, NOT_PERMITTED};
use atomdir_testing::{Fixture, Outcome, Store, User, View, users_can_mount, wait_for, wait_until};

const TREE: &str = "echo old > file; mkdir -p dir/sub; echo x > dir/sub/x; echo y > dir/y
    dd if=/dev/zero of=large bs=4096 count=8 status=none";

#[track_caller]
fn lock(store: &Store, view: &View, options: &[&str]) -> Outcome {
    let transaction = [view.id.as_str()];
    store.call(["lock"].iter().chain(&transaction).chain(options))
}

fn start_locking(store: &Store, view: &View, options: &[&str]) -> Child {
    let transaction = [view.id.as_str()];
    let mut command = store.command(["lock"].iter().chain(&transaction).chain(options));
    piped(&mut command)
}

fn piped(command: &mut Command) -> Child {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().expect("it starts")
}

fn ended(child: Child) -> Outcome {
    let output = child.wait_with_output().expect("it ends");
    Outcome::from_output("atomdir lock".to_owned(), output)
}

/// Waits until the transaction is shown as waiting for the lock that `asking` requests.
fn wait_until_waiting(store: &Store, view: &View, asking: &mut Child) {
    wait_until("a request that waits", || {
        let ended = asking.try_wait().expect("it can be asked");
        assert_eq!(ended, None, "the request ended instead of waiting");
        let status = store.call(["status", &view.id, "--json"]).expect(0);
        status.text().contains("\"granted\":false")
    });
}

#[test]
fn commit_of_locked_files_is_refused_until_unlock() {
    Fixture::for_each_owner("lock-commit", TREE, |fixture| {
        let store = &fixture.store;
        let (holder, other) = (store.begin(), store.begin());
        lock(store, &holder, &["file"]).expect(0);
        lock(store, &holder, &["--range", "4096-8192", "large"]).expect(0);
        let status = store.call(["status", &holder.id]).expect(0).text();
        assert!(status.contains("exclusive \"file\"") || status.contains("exclusive file"));
        assert!(status.contains("bytes 4096-8192"), "{status}");

        store.exec(&other, "echo new > dir/new; rm dir/y").expect(0);
        store.commit(&other).expect(0);
        for change in [
            "echo new > file",
            "rm file",
            "mv file moved",
            "chmod 600 file",
            "echo > other; mv other file",
            "printf 1 | dd of=large bs=1 seek=5000 conv=notrunc status=none",
        ] {
            let name = if change.contains("large") {
                "large"
            } else {
                "file"
            };
            let keep = ["--on-conflict", "keep"];
            let refused = store.run_with(&keep, change).expect(CONFLICT);
            let refused = refused.says(&["locked", name, &holder.id]);
            assert!(refused.error_text().contains("still open"));
            let list = store.call(["list"]).expect(0).text();
            let kept = list
                .lines()
                .last()
                .and_then(|line| line.split_whitespace().next());
            let kept = kept.expect("it was kept");
            let listed = store.call(["conflicts", kept]).expect(0);
            assert!(listed.text().contains("locked"), "{listed}");
            listed.says(&["no side can be taken"]);
            store.call(["abort", kept]).expect(0);
        }
        // A write to another page meets no lock.
        store
            .run_exact("printf 1 | dd of=large bs=1 seek=9000 conv=notrunc status=none")
            .expect(0);
        // The holder itself writes and commits, which ends its locks.
        store.exec(&holder, "echo mine > file").expect(0);
        store.commit(&holder).expect(0);
        store
            .run("test $(cat file) = mine; rm file large")
            .expect(0);
    });
}

#[test]
fn lock_requests_wait_for_locks_that_exclude_them() {
    Fixture::for_each_owner("lock-wait", TREE, |fixture| {
        let store = &fixture.store;
        let (one, two, three) = (store.begin(), store.begin(), store.begin());
        lock(store, &one, &["--shared", "--subtree", "dir"]).expect(0);
        lock(store, &two, &["--shared", "--no-wait", "dir/sub/x"]).expect(0);
        lock(store, &three, &["--no-wait", "dir/sub/x"])
            .expect(CONFLICT)
            .says(&["locked", "transaction"]);
        lock(store, &three, &["--timeout", "60ms", "dir/sub/new"])
            .expect(CONFLICT)
            .says(&["dir", &one.id]);
        let mut waiting = start_locking(store, &three, &["dir/sub/x"]);
        wait_until_waiting(store, &three, &mut waiting);
        store.call(["unlock", &two.id, "dir/sub/x"]).expect(0);
        store.abort(&one).expect(0);
        ended(waiting).expect(0);
        // A waiting request ends with its transaction, or with its client.
        let mut waiting = start_locking(store, &two, &["dir/sub/x"]);
        wait_until_waiting(store, &two, &mut waiting);
        store.abort(&two).expect(0);
        assert_ne!(ended(waiting).code, 0);
        let four = store.begin();
        let mut waiting = start_locking(store, &four, &["dir/sub/x"]);
        wait_until_waiting(store, &four, &mut waiting);
        waiting.kill().expect("it is killed");
        waiting.wait().expect("it is dead");
        wait_until("the end of the request", || {
            let status = store.call(["status", &four.id, "--json"]).expect(0);
            status.text().contains("\"locks\":[]")
        });
        store.call(["abort", "--all"]).expect(0);
    });
}

#[test]
fn deadlock_is_reported() {
    Fixture::for_each_owner("lock-deadlock", TREE, |fixture| {
        let store = &fixture.store;
        let (older, younger) = (store.begin(), store.begin());
        lock(store, &older, &["file"]).expect(0);
        lock(store, &younger, &["dir"]).expect(0);
        let mut waiting = start_locking(store, &older, &["dir"]);
        wait_until_waiting(store, &older, &mut waiting);
        let cycle = format!(
            "deadlock: transaction {0} waits for 'file', locked by transaction {1}, which waits \
             for 'dir', locked by transaction {0}",
            younger.id, older.id
        );
        lock(store, &younger, &["file"])
            .expect(CONFLICT)
            .says(&[&cycle]);
        let json = store
            .call(["status", &younger.id, "--json"])
            .expect(0)
            .text();
        assert!(json.contains("\"path\":\"dir\""), "its locks stay: {json}");
        store.abort(&younger).expect(0);
        ended(waiting).expect(0);
        store.abort(&older).expect(0);
    });
}

#[test]
fn locks_end_with_a_holder_that_is_killed() {
    Fixture::for_each_owner("lock-killed", TREE, |fixture| {
        let store = &fixture.store;
        // The command outlives its run, until the pipe is closed.
        let mut run = store.command(["run", "--", "/bin/cat"]);
        let mut run = run.stdin(Stdio::piped()).spawn().expect("it starts");
        let holder = wait_for("the transaction in the list", || {
            let list = store.call(["list"]).expect(0).text();
            let id = list.lines().nth(1)?.split_whitespace().next()?;
            Some(View {
                id: id.to_owned(),
                path: fixture.base.clone(),
            })
        });
        lock(store, &holder, &["file"]).expect(0);
        let other = store.begin();
        let mut waiting = start_locking(store, &other, &["file"]);
        wait_until_waiting(store, &other, &mut waiting);
        run.kill().expect("it is killed");
        run.wait().expect("it is dead");
        ended(waiting).expect(0);
        store.exec(&other, "echo new > file").expect(0);
        store.commit(&other).expect(0);
    });
}

/// A transaction whose snapshot is older than the file's last change could not commit a change of
/// the file, so a lock would not help it.
#[test]
fn lock_on_a_changed_file_is_a_conflict() {
    Fixture::for_each_owner("lock-changed", TREE, |fixture| {
        let store = &fixture.store;
        let view = store.begin();
        store.run("echo new > file").expect(0);
        lock(store, &view, &["file"])
            .expect(CONFLICT)
            .says(&["file", "changed since"]);
        lock(store, &view, &["--subtree", "."]).expect(CONFLICT);
        lock(store, &view, &["dir/y"]).expect(0);
        let json = store.call(["status", &view.id, "--json"]).expect(0).text();
        assert!(
            !json.contains("\"path\":\"file\""),
            "it holds no lock: {json}"
        );
        store.abort(&view).expect(0);
    });
}

#[test]
fn lock_requires_the_files_permissions() {
    let test = "lock_requires_the_files_permissions";
    let tree = "echo a > readable; chmod 644 readable; echo b > secret; chmod 600 secret
        mkdir closed shared; echo c > closed/c; chmod 700 closed; chmod 777 shared .
        echo d > listed; chmod 600 listed; ln -s readable link";
    let fixture = Fixture::new("lock-rights", tree);
    let store = &fixture.store;
    let user = User::ordinary(fixture.scratch.path());
    if !atomdir_testing::tools_present(test, &["setfacl"]) {
        return;
    }
    atomdir_testing::shell(
        &fixture.base,
        &format!("setfacl -m u:{}:rw listed", user.uid),
    );
    store.call(["config", "allow", "nobody,games"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let id = store.call_as(&user, ["begin"]).expect(0).text();
    let id = id.lines().next().expect("an id").to_owned();
    let lock = |options: &[&str]| {
        let words = ["lock", "--no-wait", id.as_str()];
        store.call_as(&user, words.iter().chain(options))
    };
    lock(&["--shared", "readable"]).expect(0);
    lock(&["listed"]).expect(0);
    lock(&["shared/new"]).expect(0);
    lock(&["--subtree", "shared"]).expect(0);
    for refused in [
        &["--exclusive", "readable"][..],
        &["--shared", "secret"],
        &["--shared", "closed/c"],
        &["--exclusive", "closed"],
        &["closed/new"],
    ] {
        lock(refused).expect(NOT_PERMITTED).says(&["permission"]);
    }
    let status = store.call_as(&user, ["status", &id, "--json"]).expect(0);
    assert!(!status.text().contains("secret"));
    // A stranger cannot request a lock for another user's transaction at all.
    let stranger = User::stranger(fixture.scratch.path());
    assert_ne!(store.call_as(&stranger, ["lock", &id, "shared"]).code, 0);
    store.call_as(&user, ["abort", &id]).expect(0);
    store.assert_at_rest();
}

/// A user who may write one directory can lock nothing in directories below that are
/// closed to them.
#[test]
fn a_locked_subtree_ends_where_its_holders_rights_end() {
    let tree = "mkdir -p open/closed/deep open/inner open/readable; chmod 777 . open open/inner
        chmod 700 open/closed; chmod 755 open/readable; chmod 777 open/closed/deep
        for f in open/closed/deep/f open/inner/f open/readable/f; do echo old > $f; done
        chmod 666 open/closed/deep/f open/inner/f; chmod 644 open/readable/f";
    let fixture = Fixture::new("lock-reach", tree);
    let store = &fixture.store;
    let user = User::ordinary(fixture.scratch.path());
    store.call(["config", "allow", "nobody"]).expect(0);
    store.call(["service", "start"]).expect(0);
    let locked = |mode| {
        let begun = store.call_as(&user, ["begin"]).expect(0).text();
        let id = begun.lines().next().expect("an id").to_owned();
        let words = ["lock", mode, "--subtree", &id, "open"];
        store.call_as(&user, words).expect(0);
        id
    };
    let id = locked("--exclusive");
    store
        .run("echo new > open/closed/deep/f; rm open/readable/f; mv open/closed open/readable/")
        .expect(CONFLICT)
        .says(&["open", "locked"]);
    store
        .run("echo new > open/closed/deep/f; rm open/readable/f; touch open/readable/g")
        .expect(0);
    for change in [
        "echo new > open/inner/f",
        "touch open/new",
        "rm -r open/inner",
    ] {
        store.run(change).expect(CONFLICT);
    }
    // For the same reason others may lock there.
    let other = store.begin();
    lock(store, &other, &["--no-wait", "--subtree", "open/closed"]).expect(0);
    lock(store, &other, &["--no-wait", "open/inner"]).expect(CONFLICT);
    store.abort(&other).expect(0);
    store.call_as(&user, ["abort", &id]).expect(0);
    let id = locked("--shared");
    store.run("echo newer > open/closed/deep/f").expect(0);
    store.run("touch open/readable/h").expect(CONFLICT);
    store.call_as(&user, ["abort", &id]).expect(0);
    store.assert_at_rest();
}

const EARLY: &[&str] = &["--conflicts", "early"];

#[test]
fn early_conflicts_show_at_the_write() {
    Fixture::for_each_owner("early", TREE, |fixture| {
        let store = &fixture.store;
        let late = store.begin();
        store.exec(&late, "echo late > dir/y").expect(0);
        let (older, younger) = (store.begin_with(EARLY), store.begin_with(EARLY));
        store
            .exec(&older, "echo older > file; rm dir/sub/x")
            .expect(0);
        // Writes to another file, another page and another name do not conflict with it.
        let apart =
            "printf 1 | dd of=large bs=4096 seek=2 conv=notrunc status=none; echo > dir/new";
        store.exec(&younger, apart).expect(0);
        let other_page = "printf 1 | dd of=large bs=4096 seek=3 conv=notrunc status=none";
        store.exec(&older, other_page).expect(0);
        let refused = store.exec(&younger, "echo younger > file");
        assert_ne!(refused.code, 0);
        refused.says(&["busy"]);
        let status = store.call(["status", &younger.id]).expect(0).text();
        assert!(status.contains("conflict"), "{status}");
        assert!(status.contains("file"), "{status}");
        store
            .commit(&younger)
            .expect(CONFLICT)
            .says(&["file", &older.id]);
        store.abort(&younger).expect(0);

        // A transaction without early conflicts may write, older or younger, and waits to
        // commit.
        let plain = store.begin();
        store.exec(&plain, "echo plain > file").expect(0);
        store
            .commit(&plain)
            .expect(CONFLICT)
            .says(&["file", &older.id]);
        // A native view gets no early conflict either: only its commit shows what it wrote.
        let run = store.run("echo plain > file").expect(CONFLICT);
        run.says(&["file", &older.id]);
        // If two conflict, the older one wins, even if it writes later.
        let third = store.begin_with(EARLY);
        store.exec(&third, "echo third > dir/sub/new").expect(0);
        assert_ne!(
            store.exec(&third, "echo third > dir/y").code,
            0,
            "`late` wrote it first"
        );
        store.exec(&older, "echo older > dir/sub/new").expect(0);
        store.commit(&third).expect(CONFLICT);
        store.commit(&older).expect(0);
        store.commit(&plain).expect(CONFLICT);
        store.commit(&late).expect(0);
        store.call(["abort", "--all"]).expect(0);
    });
}

/// The newest open transaction.
fn newest(store: &Store) -> u64 {
    let list = store.call(["list"]).expect(0).text();
    let ids = list
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    ids.filter_map(|id| id.parse().ok()).max().unwrap_or(0)
}

#[test]
fn a_run_that_meets_an_early_conflict_exits_75_and_is_tried_again() {
    Fixture::for_each_owner("early-run", TREE, |fixture| {
        let store = &fixture.store;
        let older = store.begin_with(EARLY);
        store.exec(&older, "echo older > file").expect(0);
        // The run conflicts whether or not the command handles the error.
        for script in ["echo new > file || exit 3", "echo new > file || true"] {
            let run = store.run_with(EARLY, script);
            run.expect(CONFLICT).says(&["file", &older.id]);
        }
        lock(store, &older, &["dir/y"]).expect(0);
        let run = store.run_with(EARLY, "echo new > dir/y");
        run.expect(CONFLICT).says(&["dir/y", "locked"]);
        let mut retried = store.command([
            "run",
            "--conflicts",
            "early",
            "--retry",
            "1000",
            "--",
            "/bin/sh",
            "-c",
            "echo new > file",
        ]);
        let retried = piped(&mut retried);
        // Each try is a transaction with a new id.
        let first = newest(store);
        wait_until("more tries", || newest(store) >= first + 3);
        store.commit(&older).expect(0);
        ended(retried).expect(0);
        let file = std::fs::read_to_string(fixture.base.join("file")).expect("read");
        assert_eq!(file, "new\n");
        store.call(["abort", "--all"]).expect(0);
    });
}

/// The locks of a nested transaction belong to the outermost one, and do not hinder it.
#[test]
fn a_command_locks_for_the_transaction_it_runs_in() {
    Fixture::for_each_owner("lock-inside", TREE, |fixture| {
        let store = &fixture.store;
        let other = store.begin();
        store.exec(&other, "echo other > file").expect(0);
        let atomdir = atomdir_testing::binary();
        let atomdir = atomdir.display();
        let script = format!(
            "{atomdir} lock --no-wait file
             {atomdir} run -- {atomdir} lock --no-wait file dir/y
             {atomdir} status --json | grep -q '\"path\":\"dir/y\"'
             if {atomdir} -C {base} commit {other}; then exit 9; fi
             echo mine > file; echo mine > dir/y",
            base = fixture.base.display(),
            other = other.id,
        );
        store.run_with(&["--view", "exact"], &script).expect(0);
        store.commit(&other).expect(CONFLICT).says(&["file"]);
        store.abort(&other).expect(0);
    });
}

/// Others' names are as secret as their directories.
#[test]
fn no_message_about_locks_names_what_its_reader_could_not_list() {
    let test = "no_message_about_locks_names_what_its_reader_could_not_list";
    if !users_can_mount(test) {
        return;
    }
    let tree = "mkdir -m 777 open; touch open/a open/b; chmod 666 open/*
        mkdir -m 711 open/passed; mkdir -m 700 closed; for d in open/passed closed; do
        touch $d/SECRET; chown -R nobody $d; done";
    for secret in ["closed/SECRET", "open/passed/SECRET"] {
        let fixture = Fixture::new("secret-locks", tree);
        let store = &fixture.store;
        let scratch = fixture.scratch.path();
        let (owner, reader) = (User::ordinary(scratch), User::stranger(scratch));
        store.call(["config", "allow", "nobody,games"]).expect(0);
        store.call(["service", "start"]).expect(0);
        let begin = |user: &User| {
            let begun = store.call_as(user, ["begin"]).expect(0).text();
            begun.lines().next().expect("an id").to_owned()
        };
        let root = store.begin();
        let (his, hers) = (begin(&owner), begin(&reader));
        lock(store, &root, &["open/a"]).expect(0);
        store.call_as(&reader, ["lock", &hers, "open/b"]).expect(0);
        store.call_as(&owner, ["lock", &his, secret]).expect(0);
        let mut waiting = start_locking(store, &root, &[secret]);
        wait_until_waiting(store, &root, &mut waiting);
        let other = piped(&mut store.command_as(&owner, ["lock", &his, "open/b"]));
        wait_until("the second request", || {
            let status = store.call_as(&owner, ["status", &his, "--json"]).expect(0);
            status.text().contains("\"granted\":false")
        });
        for json in [&[][..], &["--json"]] {
            let words = ["lock", hers.as_str(), "open/a"];
            let refused = store.call_as(&reader, words.iter().chain(json));
            let said = format!("{}{}", refused.text(), refused.error_text());
            assert_eq!(refused.code, CONFLICT, "{refused}");
            assert!(
                !said.contains("SECRET") && said.contains("deadlock"),
                "{said}"
            );
        }
        store.call(["abort", "--all"]).expect(0);
        store.call_as(&owner, ["abort", "--all"]).expect(0);
        store.call_as(&reader, ["abort", "--all"]).expect(0);
        let _ = (ended(waiting), ended(other));
        store.assert_at_rest();
    }
}
