//! Every top-level module of a crate has a place in the crate's map. The map is a table in
//! ARCHITECTURE.md, or a list at the head of the crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::sources::{self, Source, expect_none};

#[test]
fn each_crates_map_names_its_modules() {
    let all = sources::all();
    let architecture = sources::architecture(&all);
    let crates = modules(&all);
    assert!(crates.len() > 15, "only {} crates", crates.len());
    let mut findings = Vec::new();
    for (name, modules) in crates {
        let heading = format!("### crates/{name}");
        let mapped = match architecture.contains(&format!("{heading}\n")) {
            true => names(sources::section(architecture, &heading))
                .into_iter()
                .collect(),
            false => at_head(&all, name),
        };
        let missing = modules.difference(&mapped);
        findings.extend(missing.map(|module| format!("the map of {name} lacks {module}")));
        let gone = mapped.difference(&modules);
        findings.extend(gone.map(|module| format!("the map of {name} names {module}: no module")));
    }
    expect_none(findings);
}

/// The top-level modules of each crate. Programs beside it count as one, `bin`.
fn modules(all: &[Source]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut crates: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in all.iter().filter(|source| source.is_rust()) {
        let path = source.path.strip_prefix("crates/");
        let Some((name, path)) = path.and_then(|path| path.split_once("/src/")) else {
            continue;
        };
        let module = path.split(['/', '.']).next().unwrap_or_default();
        if !matches!(module, "lib" | "main") {
            crates.entry(name).or_default().insert(module);
        }
    }
    crates
}

/// The names in the first column, in their order.
pub fn names(section: &str) -> Vec<&str> {
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let cells = cells.filter(|cell| !cell.contains("---")).skip(1);
    let names = cells.flat_map(|cell| cell.split(','));
    names
        .map(|name| name.trim().trim_end_matches('/'))
        .collect()
}

/// The quoted names before the colon of each point of the list.
fn at_head<'a>(all: &'a [Source], name: &str) -> BTreeSet<&'a str> {
    let is_root = |source: &&Source| {
        let path = source.path.strip_prefix("crates/");
        let path = path.and_then(|path| path.strip_prefix(name));
        matches!(path, Some("/src/lib.rs" | "/src/main.rs"))
    };
    let points = all.iter().filter(is_root).flat_map(|root| {
        let list = root.head().skip_while(|line| *line != "Modules");
        list.skip(1).take_while(|line| !line.is_empty())
    });
    points
        .filter_map(|line| line.strip_prefix("- ")?.split(':').next())
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .collect()
}
