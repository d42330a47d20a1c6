//! `recover --dry-run` reports what recovery would do and changes nothing. Every verb
//! that meets damage reports it and leaves it as it is.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atomdir_testing::exit_code::INPUT_OUTPUT;
use atomdir_testing::{Fixture, Outcome, Owner, Store, for_each_owner};
use serde_json::{Value, json};

/// Everything in the directory: its bytes, change time and mode.
fn remembered(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64, u32)> {
    let mut all = BTreeMap::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let found = fs::symlink_metadata(&path).expect("it is there");
        let mut bytes = Vec::new();
        if found.is_dir() {
            let entries = fs::read_dir(&path).expect("it can be listed");
            pending.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if found.is_file() {
            bytes = fs::read(&path).expect("it can be read");
        }
        let changed = (found.ctime(), found.ctime_nsec());
        all.insert(path, (bytes, changed.0, changed.1, found.mode()));
    }
    all
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.text()).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

/// Kills the service with an open transaction that does not survive. Its log ends with two
/// commits and a torn record.
fn crash(store: &Store) {
    store.run("echo one > file").expect(0);
    store
        .run_with(&["-m", "second"], "echo two > other")
        .expect(0);
    let view = store.begin_with(&["--isolation", "serializable"]);
    store.exec(&view, "echo three > file").expect(0);
    store.kill_service();
    let log = store.control().join("log");
    let mut bytes = fs::read(&log).expect("the log");
    bytes.truncate(frames(&bytes).last().map_or(0, |frame| frame.1));
    bytes.extend(b"ADFR and no more");
    fs::write(&log, bytes).expect("written");
}

/// Where each frame of the log starts and ends: see docs/format.md.
fn frames(log: &[u8]) -> Vec<(usize, usize)> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(header) = log.get(at..at + 40)
        && header.starts_with(b"ADFR")
    {
        let length = header[8..16].try_into().expect("8 bytes");
        let end = at + 40 + u64::from_le_bytes(length).next_multiple_of(8) as usize;
        frames.push((at, end));
        at = end;
    }
    frames
}

fn check_dry_run(owner: Owner) {
    let fixture = Fixture::owned_by("dry-run", owner, "echo old > file");
    let store = &fixture.store;
    store.run("echo zero > file").expect(0);
    let in_use = json(&store.call(["--json", "recover", "--dry-run"]).expect(0));
    assert_eq!(in_use["in_use"], true);
    crash(store);
    let before = remembered(&fixture.base);
    let plan = json(&store.call(["--json", "recover", "--dry-run"]).expect(0));
    assert_eq!(plan["in_use"], false);
    assert_eq!(plan["damage"], json!([]));
    let labels: Vec<&Value> = plan["commits"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|commit| &commit["label"])
        .collect();
    assert_eq!(labels.last(), Some(&&json!("second")), "{plan}");
    let text = store.call(["recover", "--dry-run"]).expect(0).text();
    for words in ["second", "16 bytes", "1 unfinished transaction"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let checked = json(&store.call(["--json", "check"]).expect(0));
    assert_eq!(checked["commits_in_log"], labels.len());
    let commits_in_history = &checked["commits_in_history"];
    assert!(before == remembered(&fixture.base), "something was changed");
    assert!(
        store.service_processes().is_empty(),
        "a service was started"
    );
    let done = json(&store.call(["--json", "recover"]).expect(0));
    assert_eq!(done["commits_replayed"], labels.len());
    assert_eq!(done["bytes_replayed"], plan["log_bytes"]);
    assert_eq!(done["torn_tail_bytes"], plan["torn_tail"]["bytes"]);
    assert_eq!(
        done["transactions_discarded"],
        plan["transactions_unfinished"]
    );
    store
        .run("test $(cat file) = one; test $(cat other) = two")
        .expect(0);
    // The last run changed nothing, so it is not in the list.
    let listed = json(&store.call(["--json", "log", "-n", "1000"]).expect(0));
    let listed = listed["commits"].as_array().expect("a list").len() as u64;
    assert_eq!(commits_in_history.as_u64(), Some(listed));
    store.assert_at_rest();
}

#[test]
fn dry_run_reports_what_recovery_does() {
    for_each_owner("dry_run_reports_what_recovery_does", check_dry_run);
}

#[test]
fn dry_run_reports_damage_without_changing_it() {
    let fixture = Fixture::new("damage", "echo old > file");
    let store = &fixture.store;
    crash(store);
    let log = store.control().join("log");
    let whole = fs::read(&log).expect("the log");
    let (first, end) = frames(&whole)[0];
    let mut damaged = whole.clone();
    damaged[end - 20] ^= 4;
    fs::write(&log, &damaged).expect("written");
    let before = remembered(&fixture.base);
    let place = format!("'.atomdir/log' is damaged at byte {first}");
    for verb in [&["recover", "--dry-run"] as &[&str], &["check"]] {
        let outcome = store.call(verb).expect(INPUT_OUTPUT);
        assert!(outcome.text().contains(&place), "{verb:?}: {outcome}");
    }
    let plan = json(
        &store
            .call(["--json", "recover", "--dry-run"])
            .expect(INPUT_OUTPUT),
    );
    assert_eq!(plan["damage"][0]["file"], "log");
    assert_eq!(plan["damage"][0]["offset"], first);
    assert!(before == remembered(&fixture.base), "something was changed");
    for verb in [&["recover"] as &[&str], &["run", "--", "true"], &["begin"]] {
        store.call(verb).expect(INPUT_OUTPUT).says(&[&place]);
    }
    assert!(
        fs::read(&log).expect("the log") == damaged,
        "the damaged log was changed"
    );
    fs::write(&log, whole).expect("written");
    store
        .run("test $(cat file) = one; test $(cat other) = two")
        .expect(0);
    store.assert_at_rest();
}
