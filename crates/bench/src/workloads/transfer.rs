//! Reads and writes large files in the page cache (Amino).

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::load::{self, command};
use crate::measure::in_turns;
use crate::report::{Row, Target};
use crate::workspace::Workspace;

const FILE_BYTES: u64 = 64 << 20;

pub fn transfer(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = bench.scaled(FILE_BYTES).next_multiple_of(4 << 20);
    let sides = bench.sides_with_overlay();
    let script = command("transfer", bytes)?;
    let measured = in_turns(bench.rounds, &sides, |side| {
        let fill = |path: &std::path::Path| load::pages::fill(&path.join("old"), bytes);
        Workspace::fresh(bench, side, "transfer", fill)?.run(&script)
    })?;
    compare::sides(bench, "transfer", Degree::Contents, &sides)?;
    let row = |name: &str, step: &str| Row::new(name, measured.step(step));
    Ok(vec![
        row("sequential write, new file", "write")
            .target(Target::Ratio(1.1))
            .note(&format!("{} MiB", bytes >> 20)),
        row("sequential write, 4 threads", "write-threads"),
        row("sequential read, first", "read-first"),
        row("sequential read, again", "read-again"),
        row("sequential read, 4 threads", "read-threads"),
        row("random 4 KiB reads", "read-random"),
        row("random 4 KiB writes, old file", "write-random")
            .note("the first copies the file where the view is native"),
        row("transfer: commit", "commit").note("plain: syncfs"),
    ])
}
