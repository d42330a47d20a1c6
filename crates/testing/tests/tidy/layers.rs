//! Keeps the map in ARCHITECTURE.md true: which crate may use which.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{self, expect_none};

/// The packages of ours on which each package of ours may depend, outside its tests.
const MAY_USE: &[(&str, &[&str])] = &[
    ("atomdir-types", &[]),
    ("atomdir-disk", &["atomdir-types"]),
    ("atomdir-protocol", &["atomdir-types"]),
    ("atomdir-testing", &[]),
    ("atomdir-e2e", &[]),
    ("atomdir-format", &["atomdir-disk", "atomdir-types"]),
    (
        "atomdir-engine",
        &["atomdir-disk", "atomdir-format", "atomdir-types"],
    ),
    ("atomdir-sim", &["atomdir-disk", "atomdir-engine"]),
    ("atomdir-fuse", &["atomdir-disk"]),
    (
        "atomdir-views",
        &["atomdir-disk", "atomdir-engine", "atomdir-fuse"],
    ),
    (
        "atomdir",
        &[
            "atomdir-disk",
            "atomdir-engine",
            "atomdir-protocol",
            "atomdir-types",
        ],
    ),
    (
        "atomdir-service",
        &[
            "atomdir",
            "atomdir-disk",
            "atomdir-engine",
            "atomdir-format",
            "atomdir-fuse",
            "atomdir-protocol",
            "atomdir-views",
        ],
    ),
    ("atomdir-cli", &["atomdir", "atomdir-service"]),
    (
        "atomdir-bench",
        &["atomdir", "atomdir-disk", "atomdir-engine"],
    ),
    ("atomdir-python", &["atomdir"]),
    ("atomdir-capi", &["atomdir"]),
    ("atomdir-mail", &["atomdir"]),
    ("atomdir-ldap", &["atomdir"]),
    ("atomdir-sqlite", &["atomdir"]),
    (
        "atomdir-fuzzing",
        &[
            "atomdir-disk",
            "atomdir-format",
            "atomdir-protocol",
            "atomdir-sim",
            "atomdir-testing",
        ],
    ),
    (
        "atomdir-crash",
        &["atomdir-disk", "atomdir-fuse", "atomdir-testing"],
    ),
];

/// These packages make no system calls: they are pure, or get a disk from their caller.
const WITHOUT_SYSTEM_CALLS: &[&str] = &[
    "atomdir-types",
    "atomdir-format",
    "atomdir-engine",
    "atomdir-protocol",
];

#[test]
fn dependencies_go_one_way() {
    let mut findings = Vec::new();
    for package in sources::packages() {
        let name = package["name"].as_str().unwrap();
        if !package["source"].is_null() {
            continue;
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(of, _)| *of == name) else {
            findings.push(format!("{name}: not on the map; add it here and there"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["kind"] == "dev" {
                continue;
            }
            let on = dependency["name"].as_str().unwrap();
            let is_ours = dependency["source"].is_null();
            let makes_calls = matches!(on, "rustix" | "libc" | "nix");
            if is_ours && !allowed.contains(&on) {
                findings.push(format!("{name} must not depend on {on}"));
            }
            if makes_calls && WITHOUT_SYSTEM_CALLS.contains(&name) {
                findings.push(format!("{name} makes no system calls, so not {on}"));
            }
        }
    }
    expect_none(findings);
}

/// The file functions of the standard library follow links and hide errors. System calls
/// on descriptors do neither.
#[test]
fn the_product_does_not_name_std_fs() {
    let mut findings = Vec::new();
    for source in sources::all().iter().filter(|source| source.is_product()) {
        for (number, line) in source.code() {
            if line.contains("std::fs") {
                findings.push(format!("{}:{number}: std::fs", source.path));
            }
        }
    }
    expect_none(findings);
}

/// `print!` and `println!` panic if the terminal is gone or the disk of a log is full.
#[test]
fn the_product_prints_without_the_macros_that_panic() {
    let mut findings = Vec::new();
    for source in sources::all().iter().filter(|source| source.is_product()) {
        for (number, line) in source.code() {
            if ["print!(", "println!("]
                .iter()
                .any(|call| line.contains(call))
            {
                findings.push(format!("{}:{number}: use write! or writeln!", source.path));
            }
        }
    }
    expect_none(findings);
}

#[test]
fn locks_are_taken_only_through_sync() {
    let findings = sources::all()
        .into_iter()
        .filter(|source| source.is_product() && source.path != "crates/types/src/sync.rs");
    let findings = findings.flat_map(|source| {
        let lines = source
            .code()
            .filter(|(_, line)| line.contains("PoisonError"));
        let numbers: Vec<usize> = lines.map(|(number, _)| number).collect();
        let hint = "use the functions of `sync` in atomdir-types";
        numbers
            .into_iter()
            .map(move |number| format!("{}:{number}: {hint}", source.path))
    });
    expect_none(findings.collect());
}

/// The engine gets everything outside it from its caller, so a test can replace it.
#[test]
fn engine_uses_no_clock_thread_or_environment_of_its_own() {
    let banned = [
        "std::env",
        "std::time",
        "std::net",
        "std::process",
        "std::thread",
        "std::io::std",
        "println!",
        "SystemTime",
        "Instant::",
        // The engine's messages name no command: see `hosting::with_remedy`.
        "'atomdir ",
        "`atomdir ",
    ];
    let places = [
        "crates/engine/src/",
        "crates/format/src/",
        "crates/protocol/src/",
    ];
    let mut findings = Vec::new();
    for source in sources::all() {
        if !places.iter().any(|place| source.path.starts_with(place)) {
            continue;
        }
        for (number, line) in source.code() {
            for word in banned.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    expect_none(findings);
}

/// A newcomer can read the engine one folder at a time, from the bottom up.
#[test]
fn the_engines_folders_have_no_circles() {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources::all().iter().filter(|source| source.is_product()) {
        let Some(path) = source.path.strip_prefix("crates/engine/src/") else {
            continue;
        };
        let part = path.split(['/', '.']).next().unwrap().to_owned();
        if part == "lib" {
            continue;
        }
        let used = source.code().flat_map(|(_, line)| {
            let paths = line.split("crate::").skip(1);
            paths.map(|path| path.split(|letter: char| !is_of_name(letter)).next())
        });
        let used: BTreeSet<String> = used.flatten().map(str::to_owned).collect();
        uses.entry(part).or_default().extend(used);
    }
    assert!(uses.contains_key("commit"), "the folders have moved");
    // A part that uses no remaining part is in no circle. Neither is one that no remaining part
    // uses.
    while let Some(apart) = uses.keys().find(|part| is_apart(part, &uses)).cloned() {
        uses.remove(&apart);
    }
    let circles = uses.iter().map(|(part, used)| {
        let others = used
            .iter()
            .filter(|one| *one != part && uses.contains_key(*one));
        let others: Vec<&String> = others.collect();
        format!("crates/engine/src/{part} is in a circle with some of {others:?}")
    });
    expect_none(circles.collect());
}

fn is_apart(part: &str, uses: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let mut others = uses.iter().filter(|(other, _)| *other != part);
    let uses_another = others.clone().any(|(other, _)| uses[part].contains(other));
    !uses_another || !others.any(|(_, used)| used.contains(part))
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}
