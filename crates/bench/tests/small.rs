//! The bench itself, very small: it runs, checks what it did, and says it all.
#![cfg(test)]

use std::path::Path;
use std::process::Command;

use atomdir_testing::{Outcome, Scratch, binary, capture_output};
use serde_json::Value;

/// Those that need no network and no second.
const WORKLOADS: &[&str] = &[
    "empty",
    "nested",
    "unpack",
    "git",
    "history",
    "outside",
    "memory",
    "files",
    "threads",
    "transfer",
    "mail",
    "cancel",
    "log",
    "order",
    "overwrite",
    "sizes",
    "clients",
    "recovery",
    "library",
    "idioms",
    "deliveries",
    "archives",
];

fn bench(directory: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atomdir-bench"));
    command
        .args(["--rounds", "1", "--scale", "0.01"])
        // The kernel's switch is the whole machine's.
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
    let plots = scratch.join("plots");
    let mut arguments = vec!["--json", "--plots", plots.to_str().expect("a plain name")];
    arguments.extend(WORKLOADS);
    let outcome = bench(scratch.path(), &arguments).expect(0);
    let printed: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let rows = printed["rows"].as_array().expect("rows");
    for row in rows {
        let is_measured = row["sides"].as_object().is_some_and(|sides| {
            let mut medians = sides.values().map(|side| side["median_ms"].as_f64());
            medians.all(|median| median.is_some_and(|median| median > 0.0))
        });
        assert!(is_measured, "{row}");
    }
    let of = |name: &str| {
        let found = rows.iter().find(|row| row["workload"] == name);
        found.unwrap_or_else(|| panic!("no row {name}: {outcome}"))
    };
    let unpack = of("unpack, durable");
    assert!(unpack["met"].is_boolean(), "{unpack}");
    assert!(unpack["sides"]["exact"]["view_requests"].as_f64() > Some(0.0));
    // What cancels out is never written: all requests, and nothing to flush.
    let cancel = &of("create, unlink, sync")["sides"]["exact"];
    assert!(cancel["view_requests"].as_f64() > Some(0.0), "{cancel}");
    for plot in [
        "ratios.svg",
        "serial-overwrite.svg",
        "recovery-committed.svg",
    ] {
        assert!(plots.join(plot).is_file(), "{plot}");
    }
    // Nothing is left but what later runs need.
    let left = std::fs::read_dir(scratch.path()).expect("the directory");
    for entry in left {
        let name = entry.expect("an entry").file_name();
        assert!(name == "plots" || name == "atomdir-bench-cache", "{name:?}");
    }
}

#[test]
fn unknown_workload_is_refused() {
    let scratch = Scratch::new("bench");
    bench(scratch.path(), &["no-such"])
        .expect(1)
        .says(&["no workload is called no-such"]);
}
