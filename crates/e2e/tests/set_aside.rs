//! Lazy commits that meet an obstacle after they have returned.

#![cfg(test)]

use std::fs::File;

use atomdir_testing::exit_code::CONFLICT;
use atomdir_testing::{
    Fixture, Outcome, Store, User, shell, users_can_mount, wait_for, wait_until,
};

/// For how many commits the obstacle may come too late.
const TRIES: usize = 100;

struct Case {
    /// Run outside before each try.
    prepare: &'static str,
    change: &'static str,
    obstruct: &'static str,
    clear: &'static str,
    /// Succeeds if the base has the change.
    is_there: &'static str,
    /// What the failure of `sync` says.
    says: &'static [&'static str],
}

/// A directory that is renamed, and on which something is mounted meanwhile.
const MOUNTED: Case = Case {
    prepare: "test -d dir || mv moved dir",
    change: "mv dir moved",
    obstruct: "mount -t tmpfs none dir || :",
    clear: "umount dir || :",
    is_there: "test -d moved",
    says: &["set aside", "'dir'", "mounted", "tried again"],
};

fn listed(store: &Store) -> Vec<serde_json::Value> {
    let text = store.call(["--json", "list"]).expect(0).text();
    let listed: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    listed["transactions"].as_array().expect("a list").clone()
}

/// Commits until the obstacle comes before the commit is applied. Returns what `sync` says then.
fn set_aside(fixture: &Fixture, case: &Case, options: &[&str]) -> Outcome {
    for _ in 0..TRIES {
        shell(&fixture.base, case.prepare);
        let lazy = [&["--view", "exact", "--durability", "lazy"], options].concat();
        fixture.store.run_with(&lazy, case.change).expect(0);
        shell(&fixture.base, case.obstruct);
        let synced = fixture.store.call(["sync"]);
        if synced.code != 0 && synced.error_text().contains("set aside") {
            return synced;
        }
        // The commit was applied before, or is stalled.
        shell(&fixture.base, case.clear);
        fixture.store.call(["sync"]).expect(0);
    }
    panic!("every commit was applied before the obstacle came");
}

/// Waits until the service lists the transaction, and returns its id.
fn listed_id(store: &Store) -> String {
    wait_for("the transaction in the list", || {
        let listed = listed(store);
        let [one] = &listed[..] else { return None };
        let reason = one["set_aside"].as_str().expect("it says why");
        assert!(reason.contains("set aside"), "{reason}");
        Some(one["transaction"].to_string())
    })
}

fn check(fixture: &Fixture, case: &Case) {
    let store = &fixture.store;
    let test = format!("if {}; then echo yes; else echo no; fi", case.is_there);
    let is_there = || shell(&fixture.base, &test).text() == "yes\n";
    set_aside(fixture, case, &[])
        .expect(CONFLICT)
        .says(case.says);
    let id = listed_id(store);
    assert!(!is_there());
    let status = store.call(["status", &id]).expect(0).text();
    assert!(
        status.contains("set aside") && status.contains("dir"),
        "{status}"
    );
    // The store keeps working.
    store.run("echo other > other").expect(0);
    let synced = store.call(["sync"]).expect(CONFLICT);
    assert!(synced.error_text().contains(&id), "{synced}");
    shell(&fixture.base, case.clear);
    // The service commits it.
    wait_until("its commit", || listed(store).is_empty());
    store.call(["sync"]).expect(0);
    assert!(is_there());

    // The service does not retry a commit once the user has entered its transaction.
    set_aside(fixture, case, &[]).expect(CONFLICT);
    let id = listed_id(store);
    store
        .call(["exec", &id, "--", "sh", "-c", "echo mine > mine"])
        .expect(0);
    shell(&fixture.base, case.clear);
    let left = listed(store);
    let reason = left[0]["set_aside"].as_str().expect("it says why");
    assert!(reason.contains("no more"), "{reason}");
    assert!(!is_there());
    store.call(["service", "stop"]).expect(CONFLICT);
    store.call(["commit", &id]).expect(0);
    store.call(["sync"]).expect(0);
    assert!(is_there() && fixture.base.join("mine").exists());
    store.assert_at_rest();
}

#[test]
fn lazy_commit_that_meets_a_mount_is_set_aside_and_committed_later() {
    if !users_can_mount("lazy_commit_that_meets_a_mount_is_set_aside_and_committed_later") {
        return;
    }
    let fixture = Fixture::owned_by("set-aside-root", User::root, "mkdir dir");
    check(&fixture, &MOUNTED);
}

/// The service's log file is on the disk of the store, which may be full.
#[test]
fn service_that_cannot_write_its_log_file_retries_commits_that_are_set_aside() {
    if !users_can_mount("service_that_cannot_write_its_log_file_retries_commits_that_are_set_aside")
    {
        return;
    }
    let fixture = Fixture::owned_by("set-aside-no-log", User::root, "mkdir dir");
    let store = &fixture.store;
    let full = File::options().write(true).open("/dev/full");
    let mut service = store.command(["service", "run"]);
    service.current_dir(&fixture.base);
    service.stderr(full.expect("the device that is always full"));
    let mut service = service.spawn().expect("started");
    wait_until("the service", || {
        let status = store.call(["service", "status"]).expect(0).text();
        !status.contains("process       none")
    });
    check(&fixture, &MOUNTED);
    service.wait().expect("ended");
}

#[test]
fn reason_why_a_commit_was_set_aside_outlives_the_service() {
    if !users_can_mount("reason_why_a_commit_was_set_aside_outlives_the_service") {
        return;
    }
    let fixture = Fixture::owned_by("set-aside-reason", User::root, "mkdir dir");
    let store = &fixture.store;
    set_aside(&fixture, &MOUNTED, &[]).expect(CONFLICT);
    let id = listed_id(store);
    assert!(store.kill_service());
    let says = ["was set aside", "'dir'", "mounted", "not tried again"];
    // A second service reads what the first one has left.
    for _ in 0..2 {
        let reason = listed(store)[0]["set_aside"].to_string();
        let status = store.call(["status", &id]).expect(0).text();
        for part in says {
            assert!(reason.contains(part), "{reason}");
            assert!(status.contains(part), "{status}");
        }
        assert!(store.kill_service());
    }
    // A new attempt returns the error itself.
    let refused = store.call(["commit", &id]);
    assert!(
        refused.code != 0 && refused.error_text().contains("dir"),
        "{refused}"
    );
    assert!(listed(store)[0]["set_aside"].is_null());
    shell(&fixture.base, MOUNTED.clear);
    store.call(["commit", &id]).expect(0);
    store.call(["sync"]).expect(0);
    assert!(fixture.base.join("moved").exists());
    store.assert_at_rest();
}

/// Waits until the transaction has ended by force, and returns how.
fn ended_how(store: &Store, id: &str) -> serde_json::Value {
    let id = id.parse().ok();
    wait_for("the end of the transaction", || {
        let text = store.call(["--json", "list", "--ended"]).expect(0).text();
        let listed: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
        let mut ended = listed["ended"].as_array().expect("a list").iter();
        let one = ended.find(|one| one["transaction"].as_u64() == id)?;
        Some(one["how"].clone())
    })
}

#[test]
fn user_learns_when_a_commit_that_was_set_aside_dies_with_the_service_or_reaches_its_age() {
    if !users_can_mount(
        "user_learns_when_a_commit_that_was_set_aside_dies_with_the_service_or_reaches_its_age",
    ) {
        return;
    }
    let fixture = Fixture::owned_by("set-aside-ends", User::root, "mkdir dir");
    let store = &fixture.store;
    let clear = || shell(&fixture.base, MOUNTED.clear);
    // A serializable transaction cannot survive its service.
    set_aside(&fixture, &MOUNTED, &["--isolation", "serializable"]).expect(CONFLICT);
    let id = listed_id(store);
    assert!(store.kill_service());
    clear();
    assert_eq!(ended_how(store, &id), "died");
    assert!(listed(store).is_empty());

    set_aside(&fixture, &MOUNTED, &["--max-age", "5s"]).expect(CONFLICT);
    let id = listed_id(store);
    assert_eq!(ended_how(store, &id), "max_age");
    assert!(listed(store).is_empty());
    clear();
    store.call(["sync"]).expect(0);
    assert!(fixture.base.join("dir").exists());
    store.assert_at_rest();
}

#[test]
fn lazy_commit_that_meets_a_closed_directory_of_another_user_is_set_aside() {
    if !users_can_mount("lazy_commit_that_meets_a_closed_directory_of_another_user_is_set_aside") {
        return;
    }
    let fixture = Fixture::owned_by("set-aside-user", User::ordinary, "");
    shell(&fixture.base, "mkdir dir; chmod 777 dir");
    let case = Case {
        prepare: "rm -f dir/new",
        change: "echo new > dir/new",
        obstruct: "chmod 755 dir",
        clear: "chmod 777 dir",
        is_there: "test -e dir/new",
        says: &["set aside", "'dir'", "tried again"],
    };
    check(&fixture, &case);
}
