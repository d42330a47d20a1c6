//! Every package that we build in must have a licence that lets us distribute it under our own
//! terms.

use crate::sources::{self, expect_none};

const PERMISSIVE: &[&str] = &[
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "CC0-1.0",
];

#[test]
fn dependencies_have_permissive_licences() {
    let mut findings = Vec::new();
    for package in sources::packages() {
        let licence = package["license"].as_str().unwrap_or("");
        if !is_permissive(licence) {
            findings.push(format!("{}: licence '{licence}'", package["name"]));
        }
    }
    expect_none(findings);
}

#[test]
fn licence_expressions_are_understood() {
    for good in [
        "MIT",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "GPL-3.0 OR MIT",
        "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
    ] {
        assert!(is_permissive(good), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "(GPL-3.0 OR MIT) AND GPL-2.0",
    ] {
        assert!(!is_permissive(bad), "{bad}");
    }
}

/// In SPDX, AND binds closer than OR, and the slash is an old way to write OR.
fn is_permissive(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    split(&expression, " OR ")
        .iter()
        .any(|choice| split(choice, " AND ").iter().all(|term| holds(term)))
}

fn holds(term: &str) -> bool {
    let term = term.trim();
    let inner = term
        .strip_prefix('(')
        .and_then(|term| term.strip_suffix(')'));
    inner.map_or_else(|| PERMISSIVE.contains(&term), is_permissive)
}

/// Splits the expression at each operator outside parentheses.
fn split<'a>(expression: &'a str, operator: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in expression.match_indices(operator) {
        let before = &expression[start..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(before);
            start = at + operator.len();
        }
    }
    parts.push(&expression[start..]);
    parts
}
