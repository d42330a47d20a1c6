//! Documents must name only files and tests that exist.

use std::collections::{BTreeSet, HashSet};

use crate::sources::{self, Source, expect_none};

#[test]
fn documents_name_files_that_exist() {
    let mut findings = Vec::new();
    for source in sources::all() {
        let names: Vec<&str> = if source.path.ends_with(".md") {
            words(&source.text).filter(|word| is_path(word)).collect()
        } else if source.is_rust() {
            words(&source.text)
                .filter(|word| is_document(word))
                .collect()
        } else {
            continue;
        };
        for name in names {
            if !exists(&source, name) {
                findings.push(format!("{}: names {name}, which is not there", source.path));
            }
        }
    }
    expect_none(findings);
}

/// Splits the text into runs of the characters that our paths consist of.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_-./*<>".contains(letter))
        .map(|word| word.trim_end_matches(['.', '/']))
        .filter(|word| !word.contains(['*', '<', '>']))
}

fn is_path(word: &str) -> bool {
    let word = word.strip_prefix("./").unwrap_or(word);
    let is_in_tree = ["crates/", "docs/", "tests/", ".ci/"]
        .iter()
        .any(|folder| word.starts_with(folder));
    is_in_tree || matches!(word, "test" | "demo") && word.starts_with("./") || is_document(word)
}

/// Whether the word names a document, as comments do.
fn is_document(word: &str) -> bool {
    let Some(name) = word.strip_suffix(".md") else {
        return false;
    };
    let is_top = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase());
    is_top || name.starts_with("docs/")
}

/// Looks from the root, and from the document's own directory, as for links.
fn exists(source: &Source, name: &str) -> bool {
    let root = sources::root();
    let own = source.path.rsplit_once('/').map_or("", |(own, _)| own);
    root.join(name).exists() || root.join(own).join(name).exists()
}

/// These say which test shows each promise.
const PROMISES: [&str; 5] = [
    "docs/guarantees.md",
    "docs/survival.md",
    "docs/nesting.md",
    "docs/transactions.md",
    "docs/views.md",
];

fn promises(all: &[sources::Source]) -> String {
    let text_of = |path: &&str| {
        let found = all.iter().find(|source| source.path == *path);
        found.map_or_else(|| panic!("{path} is not there"), |found| &*found.text)
    };
    PROMISES.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

#[test]
fn guarantees_name_tests_that_exist() {
    let all = sources::all();
    let text = promises(&all);
    let quoted = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    let named: Vec<&str> = quoted.filter(|quoted| is_test_name(quoted)).collect();
    assert!(named.len() > 20, "only {} tests are named", named.len());
    let is_there = |name: &str| {
        let declaration = format!("fn {name}(");
        all.iter()
            .any(|source| source.is_rust() && source.text.contains(&declaration))
    };
    let missing = named.iter().filter(|name| !is_there(name));
    expect_none(
        missing
            .map(|name| format!("{PROMISES:?}: no test {name}"))
            .collect(),
    );
}

/// Checks the tables of promises: each promise has all five columns, and each
/// test is in the file that the table names.
#[test]
fn each_promise_names_a_test_in_its_file() {
    let all = sources::all();
    let text_of = |path: &str| all.iter().find(|source| source.path == path);
    let text = promises(&all);
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.len() == 5 && cells[4].contains("crates/"))
        .collect();
    assert!(
        rows.len() > 50,
        "only {} promises are in the table",
        rows.len()
    );
    let mut findings = Vec::new();
    for cells in rows {
        let promise = cells[0];
        if cells.iter().any(|cell| cell.is_empty()) {
            findings.push(format!("'{promise}' lacks a column"));
        }
        for group in cells[4].split("; ") {
            let mut quoted = group.split('`').skip(1).step_by(2);
            let path = quoted.next().unwrap_or_default();
            let names: Vec<&str> = quoted.collect();
            let declares = |name: &&str| {
                let declaration = format!("fn {name}(");
                text_of(path).is_some_and(|source| source.text.contains(&declaration))
            };
            if names.is_empty() || !names.iter().all(declares) {
                findings.push(format!("'{promise}': {path} does not have {names:?}"));
            }
        }
    }
    expect_none(findings);
}

/// The table of invariants names each module whose head states some, and no other.
#[test]
fn the_map_names_the_modules_with_invariants() {
    let all = sources::all();
    let map = sources::architecture(&all);
    let table = sources::section(map, "## Invariants");
    let quoted = table.split('`').skip(1).step_by(2);
    let named: BTreeSet<&str> = quoted.filter(|quoted| is_path(quoted)).collect();
    let stating = all.iter().filter(|source| {
        let mut head = source.head();
        source.is_product() && head.any(|line| line.starts_with("Invariant"))
    });
    let stating: BTreeSet<&str> = stating.map(|source| source.path.as_str()).collect();
    assert!(
        stating.len() > 50,
        "only {} modules state any",
        stating.len()
    );
    let missing = stating
        .difference(&named)
        .map(|path| format!("the invariants in ARCHITECTURE.md lack {path}"));
    let without = named
        .difference(&stating)
        .map(|path| format!("{path} states no invariants at its head"));
    expect_none(missing.chain(without).collect());
}

/// The lock order names each lock of the product: its field, or the type that has it.
#[test]
fn the_lock_order_names_each_lock() {
    let all = sources::all();
    let order = all
        .iter()
        .find(|source| source.path == "docs/lock-order.md");
    let order = &order.expect("there is a lock order").text;
    let quoted = order.split('`').skip(1).step_by(2);
    let named: HashSet<&str> = quoted.flat_map(|text| text.split(is_no_letter)).collect();
    let (mut findings, mut count) = (Vec::new(), 0);
    for source in all.iter().filter(|source| source.is_product()) {
        let is_tool = source.path.starts_with("crates/sim/");
        let mut owner = "";
        for (number, line) in source.code().filter(|_| !is_tool) {
            if line.contains("mod tests {") {
                break;
            }
            if let Some((_, name)) = line.split_once("struct ") {
                owner = name.split(is_no_letter).next().unwrap_or_default();
            }
            let Some(name) = lock_in(line) else {
                continue;
            };
            count += 1;
            // Several types have a lock called `state`.
            if !named.contains(owner) && (name == "state" || !named.contains(name)) {
                findings.push(format!("{}:{number}: the lock {name}", source.path));
            }
        }
    }
    assert!(count > 50, "only {count} locks");
    expect_none(findings);
}

/// The name of the field, static or type that the line declares as a lock.
fn lock_in(line: &str) -> Option<&str> {
    let is_lock = |text: &str| text.starts_with("Mutex<") || text.starts_with("RwLock<");
    let declared = [": ", ": Arc<", "(", " = ", " = Arc<"]
        .iter()
        .find_map(|before| {
            let mut parts = line.match_indices(before);
            parts.find_map(|(at, _)| is_lock(&line[at + before.len()..]).then(|| &line[..at]))
        });
    let name = declared?.rsplit(is_no_letter).next()?;
    let is_declared = !name.is_empty() && !line.contains('&') && !line.contains("fn ");
    is_declared.then_some(name)
}

fn is_no_letter(letter: char) -> bool {
    !letter.is_ascii_alphanumeric() && letter != '_'
}

fn is_test_name(quoted: &str) -> bool {
    let is_snake = quoted
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_snake && quoted.contains('_')
}
