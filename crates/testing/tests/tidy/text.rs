//! Checks for sizes, leftover marks, and files that nothing includes.

use std::path::Path;

use crate::sources::{self, Source, expect_none};

const FILE_LINES_MAX: usize = 500;
/// The aim is 70 lines. A function longer than this surely has two jobs.
const FUNCTION_LINES_MAX: usize = 100;

#[test]
fn files_are_within_the_line_limit() {
    let long = sources::all().into_iter().filter_map(|source| {
        let lines = source.text.lines().count();
        let path = source.path;
        (lines > FILE_LINES_MAX)
            .then(|| format!("{path}: {lines} lines, {FILE_LINES_MAX} at most; split it"))
    });
    expect_none(long.collect());
}

#[test]
fn functions_are_within_the_line_limit() {
    let mut findings = Vec::new();
    for source in sources::all().iter().filter(|source| source.is_rust()) {
        for (number, lines) in functions(&source.text) {
            if lines > FUNCTION_LINES_MAX {
                findings.push(format!(
                    "{}:{number}: a function of {lines} lines; split it",
                    source.path
                ));
            }
        }
    }
    expect_none(findings);
}

/// Where each function starts and how many lines it has. rustfmt puts the closing brace under the
/// function's first letter.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        let is_function = code.starts_with("fn ") || code.contains(" fn ") && !code.contains('"');
        if !is_function || code.starts_with("//") {
            continue;
        }
        // A declaration without a body ends before any brace opens.
        let opens = lines[start..].iter().find(|line| line.contains(['{', ';']));
        if !opens.is_some_and(|line| line.contains('{')) {
            continue;
        }
        let close = format!("{indent}}}");
        let end = lines[start..].iter().position(|line| **line == close);
        found.extend(end.map(|length| (start + 1, length + 1)));
    }
    found
}

#[test]
fn no_todo_marks_are_left() {
    // Each phrase is written in two parts, so that this file passes its own rule.
    let phrases = [
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
        concat!("<<<<", "<<< "),
        concat!("..", "/shared"),
        concat!("(/wo", "rk/"),
        concat!(" /wo", "rk/"),
    ];
    let mut findings = Vec::new();
    for source in sources::all() {
        for (index, line) in source.text.lines().enumerate() {
            for phrase in phrases.iter().filter(|phrase| line.contains(**phrase)) {
                findings.push(format!("{}:{}: {phrase}", source.path, index + 1));
            }
        }
    }
    expect_none(findings);
}

/// Each thing has one word, so its other words must not occur. A rollback goes back to a savepoint;
/// an abort ends a transaction. Text about SQLite may use SQLite's words.
#[test]
fn banned_words_do_not_occur() {
    let others = [
        ("rolled back", "aborted"),
        ("roll back", "abort"),
        ("rollback", "abort"),
        ("daemon", "service"),
    ];
    let of_users = |source: &&Source| source.is_product() || source.path.ends_with(".md");
    let mut findings = Vec::new();
    for source in sources::all().iter().filter(of_users) {
        let is_of_sqlite = source.path.contains("sqlite");
        let names_savepoints = source.text.to_lowercase().contains("savepoint");
        for (index, line) in source.text.lines().enumerate() {
            // Every mbox has this name for the sender of bounces.
            let has_savepoints = is_of_sqlite || names_savepoints || line.contains("SQLite");
            let lower = line.to_lowercase().replace("mailer-daemon", "");
            // A verb of systemctl's.
            let lower = lower.replace("daemon-reload", "");
            for (word, ours) in others {
                if lower.contains(word) && !(has_savepoints && ours.starts_with("abort")) {
                    findings.push(format!(
                        "{}:{}: '{word}'; the word here is '{ours}'",
                        source.path,
                        index + 1
                    ));
                }
            }
        }
    }
    expect_none(findings);
}

#[test]
fn every_source_file_is_included() {
    let all = sources::all();
    let rust: Vec<&Source> = all.iter().filter(|source| source.is_rust()).collect();
    let dead = rust
        .iter()
        .filter(|source| !is_target(&source.path) && !is_included(source, &rust));
    expect_none(
        dead.map(|source| format!("{}: nothing includes it", source.path))
            .collect(),
    );
}

/// Cargo builds no tests of a target with `test = false`, and says nothing of those it has.
#[test]
fn targets_without_tests_have_none() {
    let all = sources::all();
    let mut findings = Vec::new();
    for package in sources::packages() {
        let targets = package["targets"].as_array().into_iter().flatten();
        let without = targets.filter(|one| one["test"] == false && one["kind"][0] != "example");
        for target in without {
            let path = Path::new(target["src_path"].as_str().unwrap());
            let Ok(path) = path.strip_prefix(sources::root()) else {
                continue;
            };
            let is_below = |source: &&Source| {
                source.is_rust() && Path::new(&source.path).starts_with(path.parent().unwrap())
            };
            for source in all.iter().filter(is_below) {
                let path = &source.path;
                if source.code().any(|(_, line)| line.trim() == "#[test]") {
                    findings.push(format!(
                        "{path} has a test, and its target says test = false"
                    ));
                }
            }
        }
    }
    expect_none(findings);
}

/// Whether cargo builds this file by itself.
fn is_target(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let parent = |depth: usize| parts.iter().rev().nth(depth).copied();
    matches!(parent(0), Some("main.rs" | "lib.rs" | "build.rs"))
        || matches!(
            parent(1),
            Some("tests" | "bin" | "benches" | "examples" | "fuzz_targets")
        )
}

/// Whether a file in the same directory or the one above declares it.
fn is_included(source: &Source, rust: &[&Source]) -> bool {
    let whole = source.path.trim_end_matches(".rs");
    let module = whole.trim_end_matches("/mod");
    let (directory, name) = module.rsplit_once('/').unwrap();
    let above = directory.rsplit_once('/').map_or("", |(above, _)| above);
    let declarations = [
        format!("mod {name};"),
        format!("#[path = \"{}.rs\"]", &module[above.len() + 1..]),
    ];
    rust.iter()
        .filter(|other| {
            let place = other.path.rsplit_once('/').map_or("", |(place, _)| place);
            other.path != source.path && (place == directory || place == above)
        })
        .any(|other| declarations.iter().any(|text| other.text.contains(text)))
}
