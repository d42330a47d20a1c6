//! What administrators do: commits that take themselves back, the log with its marks and filters,
//! pins, who is admitted, the end of a store.

use crate::store::{ATOMDIR, Store};
use atomdir_testing::wait_until;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn unconfirmed_commit_takes_itself_back_and_a_confirmed_one_stays() {
    let store = Store::new("confirm");
    let run = |text: &str, wait: &str| {
        let script = format!("echo {text} > file");
        let outcome = store.call(&["run", "--confirm", wait, "--", "sh", "-c", &script]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        outcome.error
    };
    let note = run("first", "10m");
    assert!(note.contains("takes itself back in 10 min"), "{note}");
    assert!(note.contains("`atomdir confirm 1`"), "{note}");
    assert!(store.check(&["log"]).contains("[to be confirmed by "));
    store.check(&["confirm", "1"]);
    assert!(!store.check(&["log"]).contains("confirm"));
    run("new", "1s");
    wait_until("the commit to take itself back", || {
        store.read("file").as_deref() == Some("first\n")
    });
    wait_until("its mark", || {
        store.check(&["log"]).contains("[undone by 3]")
    });
    let log = store.check(&["log", "--oneline"]);
    assert!(
        log.contains("take back commit 2: nobody has confirmed it"),
        "{log}"
    );
    let late = store.call(&["confirm", "2"]);
    assert_eq!(late.code, Some(75), "{late:?}");
    assert!(late.error.contains("taken back, by commit 3"), "{late:?}");
    assert_eq!(store.call(&["confirm", "9"]).code, Some(66));
    assert_eq!(store.call(&["confirm", "1"]).code, Some(66));
}

#[test]
fn unconfirmed_commit_keeps_the_service_and_is_taken_back_by_the_next_one_after_its_death() {
    let store = Store::new("confirm-death");
    let commit_and_kill = |seconds: u64| {
        let (id, view) = store.begin();
        fs::write(view.join("file"), "new\n").expect("it is written");
        let process = store.json(&["service", "status"])["process"].to_string();
        let within = format!("{seconds}s");
        let done = store.call(&["commit", &id, "--confirm", &within, "-m", "a new message"]);
        assert_eq!(done.code, Some(0), "{done:?}");
        let killed = Command::new("kill").args(["-9", &process]).status();
        killed.expect("kill runs");
        std::thread::sleep(Duration::from_millis(seconds * 1000 + 500));
        store.read("file").as_deref() == Some("new\n")
    };
    // On a busy machine the service may take the commit back before it is killed.
    let mut times = [1, 10, 100].into_iter();
    assert!(times.any(commit_and_kill), "the dead service took it back");
    let status = store.json(&["service", "status"]);
    assert!(status["process"].is_null(), "{status}");
    // Any use of the store starts a service.
    let log = store.check(&["log", "--oneline"]);
    assert!(log.contains("a new message"), "{log}");
    wait_until("the commit to take itself back", || {
        store.read("file").as_deref() == Some("old\n")
    });
}

#[test]
fn commit_whose_file_was_changed_since_stays_and_is_marked() {
    let store = Store::new("confirm-refused");
    let script = "echo new > file";
    store.check(&["run", "--confirm", "1s", "--", "sh", "-c", script]);
    fs::write(store.path.join("file"), "an outside writer's\n").expect("it is written");
    wait_until("the mark", || {
        store
            .check(&["log"])
            .contains("[not confirmed, and not taken back: changed since]")
    });
    assert_eq!(store.read("file").as_deref(), Some("an outside writer's\n"));
    let status = store.check(&["service", "status"]);
    assert!(
        status.contains("unconfirmed   commit 1: not confirmed"),
        "{status}"
    );
    let log = store.json(&["log"]);
    assert_eq!(log["commits"][0]["not_taken_back"], 1, "{log}");
    let status = store.call(&["status"]);
    assert!(
        status.error.contains("commit 1: not confirmed"),
        "{status:?}"
    );
    store.check(&["confirm", "1"]);
    assert!(!store.check(&["log"]).contains("confirm"));
}

/// Such a history still holds what is pinned.
#[test]
fn commit_to_be_confirmed_is_refused_as_misconfigured_once_the_history_is_off() {
    let store = Store::new("confirm-off");
    store.check(&["run", "--", "sh", "-c", "echo pinned > pinned"]);
    store.check(&["pin", "1"]);
    let (id, view) = store.begin();
    fs::write(view.join("file"), "mine\n").expect("it is written");
    fs::write(view.join("other"), "mine\n").expect("it is written");
    fs::write(store.path.join("file"), "an outside writer's\n").expect("it is written");
    // The wish stays with the transaction.
    let wish = store.call(&["commit", &id, "--confirm", "1h"]);
    assert_eq!(wish.code, Some(75), "{wish:?}");
    store.check(&["config", "history-age", "off"]);
    let late = store.call(&["commit", &id, "--", "other"]);
    let early = store.call(&["run", "--confirm", "1h", "--", "touch", "new"]);
    for refused in [&late, &early] {
        assert_eq!(refused.code, Some(78), "{refused:?}");
        assert!(refused.error.contains("keeps no history"), "{refused:?}");
        assert!(refused.error.contains("history-age 7d"), "{refused:?}");
    }
    assert!(!store.path.join("other").exists() && !store.path.join("new").exists());
    store.check(&["config", "history-age", "7d"]);
    store.check(&["commit", &id, "--", "other"]);
    assert!(store.check(&["log"]).contains("[to be confirmed by "));
    store.check(&["confirm", "2"]);
    store.check(&["abort", &id]);
}

#[test]
fn log_is_filtered_and_marks_what_became_of_commits() {
    let store = Store::new("log-filters");
    for message in ["one: alpha", "two: Beta", "three: alpha"] {
        let script = format!("echo {message} > file");
        store.check(&["run", "-m", message, "--", "sh", "-c", &script]);
    }
    let lines = |arguments: &[&str]| {
        let out = store.check(&[&["log", "--oneline"], arguments].concat());
        out.lines()
            .map(|line| line.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&["--grep", "ALPHA"]),
        ["3  three: alpha", "1  one: alpha"]
    );
    assert_eq!(lines(&["--grep", "beta", "-n", "5"]), ["2  two: Beta"]);
    assert_eq!(lines(&["--since", "2"]), ["3  three: alpha"]);
    assert_eq!(lines(&["--since", "1h"]).len(), 3);
    assert_eq!(lines(&["--since", "2999-01-01"]), [""; 0]);
    let user = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(lines(&["--user", &user, "-n", "1"]), ["3  three: alpha"]);
    assert_eq!(lines(&["--user", "54321"]), [""; 0]);
    assert_eq!(
        store.call(&["log", "--user", "no-such-user"]).code,
        Some(64)
    );
    let patches = store.check(&["log", "--patch", "-n", "2"]);
    assert!(
        patches.contains("+three: alpha") && patches.contains("-one: alpha"),
        "{patches}"
    );
    store.check(&["relabel", "2", "relabelled"]);
    store.check(&["undo", "3"]);
    store.check(&["pin", "1"]);
    store.check(&["prune", "--all"]);
    let marked = [
        "4  [forgotten] undo 3",
        "3  [undone by 4, forgotten] three: alpha",
        "2  [forgotten] relabelled",
        "1  [pinned] one: alpha",
    ];
    let lines = lines(&[]);
    assert_eq!(lines[..4], marked);
    assert!(
        lines[4].starts_with("commits up to 4 were forgotten early"),
        "{lines:?}"
    );
    assert!(lines[4].ends_with("somebody has asked for it"), "{lines:?}");
    let history = &store.json(&["service", "status"])["history"];
    assert_eq!(history["forgotten_early"]["why"], "asked", "{history}");
    let status = store.call(&["status"]);
    assert!(status.error.contains("forgotten early"), "{status:?}");
    let refused = store.call(&["pin", "2"]);
    assert_eq!(refused.code, Some(66), "{refused:?}");
    store.check(&["pin", "--remove", "1"]);
    assert!(!store.check(&["log"]).contains("pinned"));
}

#[test]
fn files_get_the_time_of_the_commit_if_that_is_wanted() {
    let store = Store::new("times");
    let modified = |name: &str| {
        let metadata = fs::metadata(store.path.join(name)).expect("it is there");
        metadata.modified().expect("the system has times")
    };
    let script = "echo x > new; echo x > file; touch -d 2001-01-01 old; sleep 0.05; touch -r new .";
    for view in ["exact", "native"] {
        let run = |options: &[&str]| {
            let words = [
                &["run", "--view", view],
                options,
                &["--", "sh", "-c", script],
            ]
            .concat();
            store.check(&words);
            modified("new").max(modified("file"))
        };
        let before = std::time::SystemTime::now();
        let kept = run(&[]);
        assert!(
            modified(".") < kept + Duration::from_millis(1000)
                && kept > before - Duration::from_secs(1)
        );
        store.check(&["config", "times", "commit"]);
        // Whoever looks while the transaction is open, as make does, has seen an older time.
        let (id, path) = store.begin();
        fs::write(path.join("file"), "y\n").expect("it is written");
        std::thread::sleep(Duration::from_millis(50));
        let looked = std::time::SystemTime::now();
        store.check(&["commit", &id]);
        assert!(modified("file") >= looked, "{view}");
        store.check(&["config", "times", ""]);
        let (id, path) = store.begin();
        fs::write(path.join("file"), "z\n").expect("it is written");
        std::thread::sleep(Duration::from_millis(50));
        let looked = std::time::SystemTime::now();
        store.check(&["commit", &id, "--times", "write"]);
        assert!(modified("file") < looked, "{view}");
        let looked = std::time::SystemTime::now() + Duration::from_millis(50);
        assert!(run(&["--times", "commit"]) >= looked, "{view}");
        let old = modified("old").duration_since(std::time::UNIX_EPOCH);
        assert_eq!(
            old.expect("after 1970").as_secs() / 86_400,
            11_323,
            "it was set on purpose"
        );
    }
    assert_eq!(store.call(&["config", "times", "yesterday"]).code, Some(64));
}

#[test]
fn commit_says_that_it_makes_the_history_too_large() {
    let store = Store::new("too-large");
    store.check(&["config", "history-space", "100K"]);
    let script = "head -c 150000 /dev/urandom > new; mv new file";
    let run = || store.call(&["run", "--", "sh", "-c", script]).error;
    assert!(!run().contains("early"), "it replaces little");
    let note = run();
    assert!(
        note.contains("commits are forgotten early") && note.contains("history-space"),
        "{note}"
    );
    wait_until("the commits to be forgotten", || {
        let log = store.check(&["log"]);
        log.contains("[forgotten]") && log.contains("were forgotten early")
    });
}

#[test]
fn store_that_is_ended_is_a_plain_directory_as_the_last_commit_left_it() {
    let store = Store::new("deinit");
    store.check(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo new > file; mkdir dir; echo x > dir/x",
    ]);
    let (id, _) = store.begin();
    let refused = store.call(&["deinit"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    store.check(&["abort", &id]);
    store.check(&["run", "--confirm", "1h", "--", "touch", "confirmed"]);
    let refused = store.call(&["deinit"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(
        refused.error.contains("commit 2 waits to be confirmed"),
        "{refused:?}"
    );
    assert!(store.path.join(".atomdir/header").exists());
    let status = store.json(&["service", "status"]);
    assert!(
        status["process"].is_u64(),
        "it would take the commit back: {status}"
    );
    store.check(&["confirm", "2"]);
    fs::create_dir(store.path.join(".atomdir.removed")).expect("the user's own");
    let out = store.check(&["deinit"]);
    assert!(
        out.contains("is an ordinary directory again; 2 commits"),
        "{out}"
    );
    let left = fs::read_dir(&store.path).expect("it is listed");
    let mut left: Vec<_> = left
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, [".atomdir.removed", "confirmed", "dir", "file"]);
    assert_eq!(store.read("file").as_deref(), Some("new\n"));
    assert_eq!(store.call(&["log"]).code, Some(66));
    assert_eq!(store.call(&["deinit"]).code, Some(66));
    let made = store.call(&["init"]);
    assert!(
        made.error.contains("`init --control`"),
        "watchers see the control directory: {made:?}"
    );
    assert_eq!(store.check(&["log"]), "");
}

#[test]
fn store_with_its_control_directory_elsewhere_is_ended_and_force_drops_what_is_open() {
    let store = Store::new("deinit-elsewhere");
    let control = store.path.with_extension("control");
    fs::remove_dir_all(store.path.join(".atomdir")).expect("no service runs");
    store.check(&["init", "--control", control.to_str().expect("text")]);
    let (_, view) = store.begin();
    fs::write(view.join("file"), "new\n").expect("it is written");
    store.check(&["deinit", "--force"]);
    assert!(!control.exists() && !store.path.join(".atomdir").exists());
    assert_eq!(store.read("file").as_deref(), Some("old\n"));
}

#[test]
fn users_are_admitted_and_removed_one_by_one() {
    if !is_root() {
        return;
    }
    let store = Store::new("allow-changes");
    let allow = |value: &str| {
        store.check(&["config", "allow", value]);
        store.check(&["config", "allow"]).trim().to_owned()
    };
    assert_eq!(allow("60001,@60002"), "60001,@60002");
    assert_eq!(allow("+60003"), "60001,60003,@60002");
    assert_eq!(allow("-60001,-@60002,+@60004"), "60003,@60004");
    assert_eq!(store.call(&["config", "allow", "+1,2"]).code, Some(64));
    assert_eq!(allow(""), "");
}

#[test]
fn foreground_service_takes_a_store_over_from_an_automatic_one() {
    let store = Store::new("hand-over");
    let (id, _) = store.begin();
    let before = store.json(&["service", "status"])["process"].to_string();
    let mut command = store.command(&["service", "run", "--idle", "never"]);
    let mut service = command.stderr(Stdio::null()).spawn().expect("it starts");
    let own = service.id();
    wait_until("the service to take over", || {
        // The old one may be just ending.
        let status = store.call(&["--json", "service", "status"]);
        let status = serde_json::from_str::<serde_json::Value>(&status.out);
        status.is_ok_and(|status| status["process"] == own)
    });
    assert_ne!(before, own.to_string());
    assert!(store.check(&["list"]).contains(&id), "it has survived");
    // Another one under a supervisor does not take it away again.
    let second = store.call(&["service", "run"]);
    assert_ne!(second.code, Some(0), "{second:?}");
    store.check(&["service", "stop", "--abort"]);
    assert!(service.wait().expect("it ends").success());
}

#[test]
fn all_stores_in_use_are_listed() {
    let (one, other) = (Store::new("all-one"), Store::new("all-other"));
    let (id, _) = one.begin();
    other.check(&["service", "start"]);
    let listed = Command::new(ATOMDIR)
        .args(["--json", "list", "--all-stores"])
        .current_dir("/")
        .output()
        .expect("atomdir starts");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("it is JSON");
    let of = |store: &Store| {
        let stores = listed["stores"].as_array().expect("a list");
        let path = store.path.to_str().expect("text");
        let found = stores.iter().find(|one| one["store"] == path);
        found.expect("it is listed")["transactions"].clone()
    };
    assert_eq!(of(&one)[0]["transaction"].to_string(), id);
    assert_eq!(of(&other), serde_json::json!([]));
}

#[test]
fn shipped_unit_is_understood_by_systemd() {
    let test = "shipped_unit_is_understood_by_systemd";
    if !atomdir_testing::tools_present(test, &["systemd-analyze"]) {
        return;
    }
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../systemd/atomdir@.service"
    );
    let text = fs::read_to_string(unit).expect("it is shipped");
    assert!(text.contains("ExecStart=/usr/local/bin/atomdir "), "{text}");
    let text = text.replace("/usr/local/bin/atomdir", ATOMDIR);
    let store = Store::new("unit");
    let instance = store.path.join("atomdir@srv-site.service");
    fs::write(&instance, text).expect("it is written");
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&instance)
        .output()
        .expect("it starts");
    let error = String::from_utf8_lossy(&verified.stderr);
    let about = error.lines().filter(|line| line.contains("atomdir@"));
    assert_eq!(about.collect::<Vec<_>>(), [""; 0]);
}
