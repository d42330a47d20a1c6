//! Keeps the map in ARCHITECTURE.md true: which crate may use which.

use std::collections::{BTreeMap, BTreeSet};

use crate::maps;
use crate::sources::{self, Source, expect_none};

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

/// A newcomer can read the engine one folder at a time, from the bottom of the map up.
#[test]
fn the_engines_modules_use_only_those_below_them() {
    let all = sources::all();
    let map = sources::section(sources::architecture(&all), "### crates/engine");
    let order: Vec<&str> = maps::rows(map).concat();
    let rank = |module: &str| order.iter().position(|one| *one == module);
    let engine = all.iter().filter(|source| source.is_product());
    let engine = engine.filter_map(|source| {
        let path = source.path.strip_prefix("crates/engine/src/")?;
        let module = path.split(['/', '.']).next()?;
        Some((module, source))
    });
    let engine: Vec<(&str, &Source)> = engine.filter(|(module, _)| *module != "lib").collect();
    assert!(rank("commit").is_some(), "the folders have moved");
    let mut defined_in = BTreeMap::new();
    for (module, source) in &engine {
        let methods = of_store(source).filter_map(|line| line.split_once("fn "));
        defined_in.extend(methods.map(|(_, name)| (name_at_start(name), *module)));
    }
    let mut findings = BTreeSet::new();
    for (module, source) in &engine {
        let paths = source
            .code()
            .flat_map(|(_, line)| line.split("crate::").skip(1));
        let imported = paths.map(|path| (name_at_start(path), "uses"));
        let calls = of_store(source).flat_map(|line| line.split("self.").skip(1));
        let called = calls.filter_map(|call| {
            let name = name_at_start(call);
            let is_call = call[name.len()..].starts_with('(');
            let defined = defined_in.get(name).filter(|_| is_call)?;
            Some((*defined, "calls a method of Store in"))
        });
        for (used, how) in imported.chain(called) {
            if rank(used).is_some_and(|used| Some(used) < rank(module)) {
                let path = &source.path;
                findings.insert(format!("{path} {how} {used}, which is above {module}"));
            }
        }
    }
    expect_none(findings.into_iter().collect());
}

/// The lines in which methods of the engine's `Store` are written.
fn of_store(source: &Source) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    source.code().map(|(_, line)| line).filter(move |line| {
        is_inside |= *line == "impl<D: Disk> Store<D> {";
        is_inside &= *line != "}";
        is_inside
    })
}

fn name_at_start(text: &str) -> &str {
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && letter != '_';
    text.split(is_other).next().unwrap_or_default()
}
