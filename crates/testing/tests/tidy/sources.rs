//! The files of the source tree, for the rules to read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

pub struct Source {
    /// Relative to the workspace's root.
    pub path: String,
    pub text: String,
}

impl Source {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether users run it, in contrast to tests and their tools.
    pub fn is_product(&self) -> bool {
        let is_tool = [
            "crates/testing/",
            "crates/e2e/",
            "crates/bench/",
            "crates/crash/",
            "crates/fuzzing/",
            "fuzz/",
        ]
        .iter()
        .any(|tool| self.path.starts_with(tool));
        let is_test = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        // Examples are written as users' programs are.
        let is_example = self.path.contains("/examples/");
        let is_other = is_tool || is_test || is_example || self.path.contains("/contract");
        self.is_rust() && !is_other
    }

    /// The lines of the comment that describes the module.
    pub fn head(&self) -> impl Iterator<Item = &str> {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.strip_prefix(' ').unwrap_or(line))
    }

    /// Each line that is not a comment, with its number.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        lines
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
            .map(|(index, line)| (index + 1, line))
    }
}

pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// Every text file of ours that is neither built nor written by a tool.
pub fn all() -> Vec<Source> {
    let mut sources = Vec::new();
    collect(&root(), "", &mut sources);
    assert!(sources.len() > 100, "the walk has lost its way");
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

fn collect(directory: &Path, prefix: &str, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            if name != ".git" && name != "target" && name != "node_modules" {
                collect(&entry.path(), &format!("{path}/"), sources);
            }
        } else if kind.is_file() && name != "Cargo.lock" && name != ".git" {
            // Files that are not text have no lines to check.
            if let Ok(text) = fs::read_to_string(entry.path()) {
                sources.push(Source { path, text });
            }
        }
    }
}

pub fn architecture(all: &[Source]) -> &str {
    let map = all.iter().find(|source| source.path == "ARCHITECTURE.md");
    &map.expect("there is a map").text
}

/// What follows the heading, up to the next one.
#[track_caller]
pub fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let start = format!("\n{heading}\n");
    let found = document.split_once(&start).map(|(_, rest)| rest);
    let rest = found.unwrap_or_else(|| panic!("no heading '{heading}'"));
    rest.split("\n#").next().unwrap_or(rest)
}

/// The packages that a build on this machine uses, ours and others'.
pub fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .arg(format!(
            "--filter-platform={}-unknown-linux-gnu",
            std::env::consts::ARCH
        ))
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Fails with one line for each finding.
#[track_caller]
pub fn expect_none(findings: Vec<String>) {
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}
