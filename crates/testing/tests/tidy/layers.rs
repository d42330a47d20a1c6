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
        "atomdir-guard",
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
            "atomdir-guard",
            "atomdir-protocol",
            "atomdir-views",
        ],
    ),
    ("atomdir-cli", &["atomdir", "atomdir-service"]),
    (
        "atomdir-bench",
        &[
            "atomdir",
            "atomdir-disk",
            "atomdir-engine",
            "atomdir-layers",
        ],
    ),
    ("atomdir-layers", &["atomdir-disk"]),
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
    "atomdir-layers",
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
    let order = Order::of(&all, "engine");
    let mut findings = order.imports_from_above("");
    let mut defined_in = BTreeMap::new();
    for (module, source) in &order.sources {
        let methods = of_store(source).filter_map(|line| line.split_once("fn "));
        defined_in.extend(methods.map(|(_, name)| (name_at_start(name), *module)));
    }
    for (module, source) in &order.sources {
        let calls = of_store(source).flat_map(|line| line.split("self.").skip(1));
        for call in calls {
            let name = name_at_start(call);
            let is_call = call[name.len()..].starts_with('(');
            if let Some(defined) = defined_in.get(name).filter(|_| is_call)
                && order.is_above(defined, module)
            {
                let path = &source.path;
                findings.push(format!("{path} calls Store::{name}, which is in {defined}"));
            }
        }
    }
    expect_none(findings);
}

#[test]
fn the_services_modules_use_only_those_below_them() {
    // It holds the state of all the others.
    expect_none(Order::of(&sources::all(), "service").imports_from_above("service"));
}

/// The modules of a crate from the top down, as its map in ARCHITECTURE.md lists them.
struct Order<'a> {
    modules: Vec<&'a str>,
    /// The files, each with its module.
    sources: Vec<(&'a str, &'a Source)>,
}

impl<'a> Order<'a> {
    fn of(all: &'a [Source], name: &str) -> Order<'a> {
        let heading = format!("### crates/{name}");
        let map = sources::section(sources::architecture(all), &heading);
        let place = format!("crates/{name}/src/");
        let product = all.iter().filter(|source| source.is_product());
        let sources = product.filter_map(|source| {
            let path = source.path.strip_prefix(&place)?;
            Some((path.split(['/', '.']).next()?, source))
        });
        let order = Order {
            modules: maps::names(map),
            sources: sources.filter(|(module, _)| *module != "lib").collect(),
        };
        let is_placed = |module: &str| order.modules.contains(&module);
        let mut all_placed = order.sources.iter().map(|(module, _)| is_placed(module));
        assert!(
            all_placed.all(|placed| placed),
            "the map of {name} lacks modules"
        );
        order
    }

    fn is_above(&self, one: &str, other: &str) -> bool {
        let place = |module: &str| self.modules.iter().position(|known| *known == module);
        place(one).is_some_and(|one| place(other).is_some_and(|other| one < other))
    }

    fn imports_from_above(&self, exempt: &str) -> Vec<String> {
        let mut findings = BTreeSet::new();
        for (module, source) in &self.sources {
            let lines = source.code().map(|(_, line)| line);
            for path in lines.flat_map(|line| line.split("crate::").skip(1)) {
                let used = name_at_start(path);
                if *module != exempt && self.is_above(used, module) {
                    findings.insert(format!("{} uses {used}, which is above", source.path));
                }
            }
        }
        findings.into_iter().collect()
    }
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
