//! Libraries that development servers and indexers watch directories with.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use atomdir_testing::{Fixture, cached, tools_present};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/");
const CHANGES: &str =
    "echo new > dir/replaced; echo 1 > dir/new; rm dir/removed; mv dir/from dir/to";

/// Prints its events of a commit that does `CHANGES`, without repetitions, in any order.
fn events(
    mut watcher: Command,
    view: &str,
    store: impl Fn(&mut Command, &Path),
) -> BTreeSet<String> {
    let prepare = "mkdir dir; echo old > dir/replaced; echo 1 > dir/removed; echo 1 > dir/from";
    let fixture = Fixture::new("watching", prepare);
    store(&mut watcher, fixture.store.path());
    let watcher = watcher.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = watcher.spawn().expect("started");
    let mut output = BufReader::new(running.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    fixture.store.run_with(&["--view", view], CHANGES).expect(0);
    fixture
        .store
        .run_with(&["--view", view], "cat dir/new")
        .expect(0);
    drop(running.stdin.take());
    let mut printed = String::new();
    output.read_to_string(&mut printed).expect("text");
    assert!(running.wait().expect("ended").success());
    let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    let distinct = lines.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(lines.len(), distinct.len(), "{lines:?}");
    distinct
}

fn words(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// Each changed file is one change, and a command that changes nothing is none.
#[test]
fn chokidar_sees_one_change_of_each_file() {
    let test = "chokidar_sees_one_change_of_each_file";
    let Some(packages) = cached(test, "node/node_modules") else {
        return;
    };
    if !tools_present(test, &["node"]) {
        return;
    }
    for view in ["exact", "native"] {
        let mut watcher = Command::new("node");
        watcher.arg(Path::new(DIRECTORY).join("watch.mjs"));
        let seen = events(watcher, view, |watcher, store| {
            watcher.arg(store).arg(&packages);
        });
        let expected = [
            "add dir/new",
            "add dir/to",
            "change dir/replaced",
            "unlink dir/from",
            "unlink dir/removed",
        ];
        assert_eq!(seen, words(&expected), "{view}");
    }
}

/// A replaced file is moved away and another one moved to its name.
#[test]
fn watchdog_sees_where_each_file_is() {
    let test = "watchdog_sees_where_each_file_is";
    let Some(python) = cached(test, "python/bin/python") else {
        return;
    };
    for view in ["exact", "native"] {
        let mut watcher = Command::new(&python);
        watcher.arg(Path::new(DIRECTORY).join("watch.py"));
        let seen = events(watcher, view, |watcher, store| {
            watcher.arg(store);
        });
        let expected = [
            "moved - dir/new",
            "moved - dir/replaced",
            "moved dir/from dir/to",
            "moved dir/removed -",
            "moved dir/replaced -",
        ];
        assert_eq!(seen, words(&expected), "{view}");
    }
}
