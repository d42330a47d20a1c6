//! Short commands, as people type them: how much time a transaction adds.

use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::measure::{Outcome, in_turns};
use crate::programs::shell;
use crate::report::Row;
use crate::workspace::Workspace;

const FILES: u64 = 20_000;
/// Changes ten files, each in another directory.
const CHANGE: &str = "for file in */5; do echo changed >> $file; done";

pub fn commands(bench: &Bench) -> Result<Vec<Row>> {
    let fill = |path: &Path| {
        let files = bench.scaled(FILES).max(100) / 10;
        let fill = format!(
            "for d in 0 1 2 3 4 5 6 7 8 9; do mkdir $d; (cd $d; seq {files} | xargs touch); done"
        );
        shell(path, &fill).map(|_| ())
    };
    let nothing = |_: &Path| Ok(());
    Ok(vec![
        row(bench, "true, service running", nothing, |workspace| {
            workspace.run("true")
        })?,
        row(bench, "true, no service running", nothing, |workspace| {
            workspace.run_cold("true")
        })?,
        row(
            bench,
            "10 of 20 000 files changed, no service running",
            fill,
            |workspace| workspace.run_cold(CHANGE),
        )?,
    ])
}

fn row(
    bench: &Bench,
    name: &str,
    fill: impl Fn(&Path) -> Result<()>,
    run: impl Fn(&Workspace<'_>) -> Result<Outcome>,
) -> Result<Row> {
    let sides = bench.sides_with_overlay();
    let workspaces = sides
        .iter()
        .map(|side| Ok((*side, Workspace::fresh(bench, *side, "commands", &fill)?)));
    let workspaces: Vec<_> = workspaces.collect::<Result<_>>()?;
    let measured = in_turns(bench.many_rounds(), &sides, |side| {
        let mut all = workspaces.iter();
        let found = all.find(|(of, _)| *of == side);
        let (_, workspace) = found.expect("there is one for each side");
        run(workspace)
    })?;
    compare::sides(bench, "commands", Degree::Contents, &sides)?;
    Ok(Row::new(name, measured.whole).note("a shell, whole; plain and overlay end with syncfs"))
}
