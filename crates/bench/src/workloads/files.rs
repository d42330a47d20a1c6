//! Calls on many small files (Amino).

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::load::{self, command};
use crate::measure::{Side, in_turns};
use crate::report::{Row, Target};
use crate::workspace::Workspace;

const FILES: u64 = 4000;
/// For each number of threads.
const FILES_OF_THREADS: u64 = 2000;

pub fn files(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(FILES);
    let sides = bench.sides_with_overlay();
    let script = command("files", files)?;
    let measured = in_turns(bench.rounds, &sides, |side| {
        let fill = |path: &std::path::Path| load::files::create(&path.join("old"), files);
        Workspace::fresh(bench, side, "files", fill)?.run(&script)
    })?;
    compare::sides(bench, "files", Degree::Contents, &sides)?;
    let row = |name: &str, step: &str| Row::new(name, measured.step(step));
    let mut calls = measured.step("stat-first");
    calls.take_from(&measured.step("getpid"), Side::Plain);
    Ok(vec![
        Row::new("stat, first, beside getpid", calls).note("plain: getpid"),
        row("stat, first", "stat-first")
            .target(Target::Ratio(3.0))
            .note(&format!("{files} files")),
        row("stat, again", "stat-again").target(Target::Ratio(1.2)),
        row("readdir, first", "readdir-first"),
        row("readdir, again", "readdir-again"),
        row("create, write, close", "create").target(Target::Ratio(2.0)),
        row("unlink", "unlink"),
        row("files: commit", "commit").note("plain: syncfs"),
    ])
}

/// The same calls by several threads, each in a directory of its own.
pub fn threads(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(FILES_OF_THREADS).max(32);
    let sides = bench.sides_with_overlay();
    let script = command("threads", files)?;
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        let fill = |path: &std::path::Path| load::files::fill_for_threads(path, files);
        Workspace::fresh(bench, side, "threads", fill)?.run(&script)
    })?;
    compare::sides(bench, "threads", Degree::Contents, &sides)?;
    let mut rows = Vec::new();
    for call in ["create", "unlink", "stat", "readdir"] {
        for threads in load::files::THREADS {
            let step = measured.step(&format!("{call}-{threads}"));
            rows.push(
                Row::new(&format!("{call}, {threads} threads"), step)
                    .note(&format!("{files} files")),
            );
        }
    }
    Ok(rows)
}
