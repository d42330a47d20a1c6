//! Reads and writes a file that is larger than memory (Amino). To keep the file small, the memory of
//! the program and the service together is limited.

use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::limit::{MemoryLimit, forget};
use crate::load::{self, command};
use crate::measure::in_turns;
use crate::report::Row;
use crate::workspace::Workspace;

const FILE_BYTES: u64 = 128 << 20;
/// How many times as large as the memory the file is.
const TIMES_MEMORY: u64 = 4;
/// Programs cannot start with less.
const MEMORY_BYTES_MIN: u64 = 32 << 20;

pub fn beyond(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = bench.scaled(FILE_BYTES).next_multiple_of(load::pages::PAGE);
    let memory = (bytes / TIMES_MEMORY).max(MEMORY_BYTES_MIN);
    if MemoryLimit::new(memory).is_none() {
        eprintln!("SKIPPED beyond: needs root and the kernel's memory controller");
        return Ok(Vec::new());
    }
    let script = command("beyond", bytes)?;
    let sides = bench.sides();
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        let Some(limit) = MemoryLimit::new(memory) else {
            return Err(crate::error::Error::NoSide("be limited"));
        };
        let fill = |path: &Path| load::pages::fill(&path.join("old"), bytes);
        let workspace = Workspace::fresh(bench, side, "beyond", fill)?;
        if side.has_store() {
            limit.include(workspace.connect()?.service_status()?.process)?;
        }
        forget(&workspace.path.join("old"))?;
        let outcome = workspace.run(&format!("{}; {script}", limit.command()));
        // End the service before the limit is removed.
        drop(workspace);
        outcome
    })?;
    compare::sides(bench, "beyond", Degree::Contents, &sides)?;
    let note = format!("{} MiB, {} MiB of memory", bytes >> 20, memory >> 20);
    let mut rows = Vec::new();
    for (name, step) in [
        ("sequential read", "read"),
        ("random read", "read-random"),
        ("sequential write", "write"),
        ("random write", "write-random"),
    ] {
        for threads in load::beyond::THREADS {
            let sides = measured.step(&format!("{step}-{threads}"));
            let name = match threads {
                1 => format!("{name} beyond memory"),
                _ => format!("{name} beyond memory, {threads} threads"),
            };
            rows.push(Row::new(&name, sides).note(&note));
        }
    }
    let commit = Row::new("beyond memory: commit", measured.step("commit"));
    rows.push(commit.note("plain: syncfs"));
    Ok(rows)
}
