//! Very small runs of the bench: all workloads succeed, and all rows are printed.
#![cfg(test)]

use std::path::Path;
use std::process::Command;

use atomdir_testing::{Outcome, Scratch, binary, capture_output, full_tier, skip, tools_present};
use serde_json::Value;

/// The workloads that take a few seconds at most.
const WORKLOADS: &[&str] = &[
    "empty",
    "nested",
    "unpack",
    "git",
    "outside",
    "memory",
    "files",
    "threads",
    "transfer",
    "calls",
    "beyond",
    "mail",
    "cancel",
    "log",
    "order",
    "overwrite",
    "sizes",
    "granularity",
    "writers",
    "clients",
    "recovery",
    "uncommitted",
    "sqlite",
    "library",
    "idioms",
    "deliveries",
    "killed-deliveries",
    "archives",
];

/// These take long: one builds a program four times, the other has fourteen jobs in five ways.
const LONG_WORKLOADS: &[&str] = &["history", "bulk"];

/// Runs the bench without measuring, to show rows that an earlier run has printed.
fn show(scratch: &Scratch, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomdir-bench"));
    capture_output(command.args(arguments).current_dir(scratch.path()))
}

fn bench(directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomdir-bench"));
    command
        .args(["--rounds", "1", "--scale", "0.01"])
        // Do not change the kernel's switch for io_uring: it is that of the whole machine.
        .env("ATOMDIR_FUSE", "classic")
        .arg("--directory")
        .arg(directory)
        .arg("--atomdir")
        .arg(binary())
        .args(arguments);
    capture_output(&mut command)
}

#[test]
fn a_small_run_measures_all_sides() {
    let scratch = Scratch::new("bench");
    let mut arguments = vec!["--json"];
    arguments.extend(WORKLOADS);
    if full_tier() {
        arguments.extend(LONG_WORKLOADS);
    }
    let outcome = bench(scratch.path(), &arguments).expect(0);
    let printed: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let rows = printed["rows"].as_array().expect("rows");
    for row in rows {
        let is_measured = row["sides"].as_object().is_some_and(|sides| {
            let mut medians = sides.values().map(|side| side["median_ms"].as_f64());
            medians.all(|median| median.is_some_and(|median| median > 0.0))
        });
        assert!(is_measured, "{row}");
        if row["workload"] == "bulk" && row["sides"]["native"].is_object() {
            let exclusive = &row["sides"]["exclusive"];
            let has = |figure: &str| exclusive[figure].is_number();
            assert!(has("view_requests") && has("processor_ms"), "{row}");
        }
    }
    let of = |name: &str| {
        let found = rows.iter().find(|row| row["row"] == name);
        found.unwrap_or_else(|| panic!("no row {name}: {outcome}"))
    };
    let unpack = of("unpack, durable");
    assert!(unpack["met"].is_boolean(), "{unpack}");
    assert!(unpack["sides"]["exact"]["view_requests"].as_f64() > Some(0.0));
    // The kernel sends requests for files that are created and removed again.
    let cancel = &of("create, unlink, sync")["sides"]["exact"];
    assert!(cancel["view_requests"].as_f64() > Some(0.0), "{cancel}");
    papers_are_shown_from(&scratch, &outcome.stdout);
    if rows.iter().any(|row| row["workload"] == "sqlite") {
        sqlite_tables_are_written_from(&scratch);
    }
    // Only files that later runs need, and those of this test, are left.
    let left = std::fs::read_dir(scratch.path()).expect("the directory");
    for entry in left {
        let name = entry.expect("an entry").file_name();
        assert!(LEFT.iter().any(|left| name == *left), "{name:?}");
    }
}

const LEFT: &[&str] = &[
    "atomdir-bench-cache",
    "run.json",
    "papers.md",
    "plots",
    "sqlite.md",
];

/// Writes the tables of docs/sqlite.md into a copy. One run takes the place of both.
fn sqlite_tables_are_written_from(scratch: &Scratch) {
    let sqlite = concat!(env!("CARGO_MANIFEST_DIR"), "/../sqlite/bench/tables.py");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sqlite.md");
    let copy = scratch.join("sqlite.md");
    std::fs::copy(document, &copy).expect("a copy of the document");
    let mut command = Command::new("python3");
    command.args([sqlite, "run.json", "run.json", "sqlite.md"]);
    capture_output(command.current_dir(scratch.path())).expect(0);
    let written = std::fs::read_to_string(&copy).expect("the document");
    for row in [
        "| TPC-C, one thread | ",
        "| six threads, twelve databases | 4x",
    ] {
        assert!(written.contains(row), "{written}");
    }
    assert!(!written.contains("not measured"), "{written}");
}

#[test]
fn a_small_run_measures_slapd() {
    let test = "a_small_run_measures_slapd";
    if !tools_present(test, &["slapd", "ldapmodify"]) {
        return;
    }
    if !binary().with_file_name("atomdir-ldap").is_file() {
        skip(test, "no atomdir-ldap; run cargo build -p atomdir-ldap");
        return;
    }
    let scratch = Scratch::new("bench-slapd");
    let outcome = bench(scratch.path(), &["--json", "entries"]).expect(0);
    let printed: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let rows = printed["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 8, "{outcome}");
    for side in ["back-ldif", "tool"] {
        let is_measured = |row: &Value| row["sides"][side]["median_ms"].as_f64() > Some(0.0);
        assert!(rows.iter().all(is_measured), "{outcome}");
    }
}

/// Shows the papers' figures from a run. If a workload is in the run, it must have every row that the
/// figures need.
fn papers_are_shown_from(scratch: &Scratch, run: &[u8]) {
    let (json, document) = (scratch.join("run.json"), scratch.join("papers.md"));
    std::fs::write(&json, run).expect("written");
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/papers.md");
    std::fs::copy(repository, &document).expect("a copy of the document");
    let plots = scratch.join("plots");
    let arguments = ["--papers", "--from", "run.json", "--from", "run.json"];
    let outcome = show(scratch, &arguments).expect(0);
    let shown = String::from_utf8_lossy(&outcome.stdout);
    assert!(shown.contains("2 writers of a file each"), "{outcome}");
    let again = ["--plots", "plots", "--markdown", "papers.md"];
    show(scratch, &[&arguments[..3], &again].concat()).expect(0);
    for paper in ["valor", "txfs", "neal", "spinellis", "amino"] {
        let drawing = std::fs::read_to_string(plots.join(paper).with_extension("svg"));
        assert!(drawing.expect("a drawing").ends_with("</svg>\n"), "{paper}");
    }
    let written = std::fs::read_to_string(&document).expect("the document");
    let title = "# Beside the papers";
    assert!(written.starts_with(title) && written.contains("![The figures of Amino"));
    let rows: Vec<&str> = written
        .lines()
        .filter(|line| line.starts_with("| "))
        .collect();
    assert!(rows.len() > 100, "{written}");
    let missing = rows.iter().filter(|row| row.contains("no such row"));
    assert_eq!(
        missing.collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "{outcome}"
    );
}

#[test]
fn unknown_workload_is_refused() {
    let scratch = Scratch::new("bench");
    bench(scratch.path(), &["no-such"])
        .expect(1)
        .says(&["no workload is called no-such"]);
}
