//! Builds by `atomdir make`, compared with make, and archives by `atomdir unpack`, compared with tar.

use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::Result;
use crate::measure::{Side, in_turns};
use crate::programs::shell;
use crate::report::Row;
use crate::workspace::Workspace;

const PROJECTS: [&str; 2] = ["less", "dash"];
const SIDES: [Side; 2] = [Side::Plain, Side::Tool];

/// Compiles projects that are already configured. Each recipe is a durable transaction.
pub fn recipes(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for project in PROJECTS {
        match corpus::c_project(&bench.cache, project)? {
            Some(archive) => rows.extend(compile(bench, project, &archive)?),
            None => eprintln!("recipes: left out, no source of {project} can be fetched"),
        }
    }
    Ok(rows)
}

fn compile(bench: &Bench, project: &str, archive: &Path) -> Result<Vec<Row>> {
    let configure = format!(
        "tar xf '{}' --no-same-owner --strip-components=1; ./configure > configured",
        archive.display()
    );
    let mut rows = Vec::new();
    for jobs in [1, 2] {
        let measured = in_turns(bench.few_rounds(), &SIDES, |side| {
            let fill = |path: &Path| shell(path, &configure).map(|_| ());
            let workspace = Workspace::fresh(bench, side, project, fill)?;
            let make = match side {
                Side::Tool => format!("'{}' make -- -j{jobs}", bench.program.display()),
                _ => format!("make -j{jobs}"),
            };
            workspace.run(&format!("{make} > made 2>&1"))
        })?;
        compare::sides(bench, project, Degree::Names, &SIDES)?;
        let name = format!("make -j{jobs} of {project}");
        rows.push(Row::new(&name, measured.whole));
    }
    Ok(rows)
}

/// Unpacks an archive: as one durable transaction, and with a lazy one for each entry.
pub fn archives(bench: &Bench) -> Result<Vec<Row>> {
    let archive = bench.corpus.archive.display();
    let mut rows = Vec::new();
    for (options, name) in [("", "whole"), ("--each", "each entry")] {
        let measured = in_turns(bench.rounds, &SIDES, |side| {
            let workspace = Workspace::fresh(bench, side, "archives", |_| Ok(()))?;
            let program = bench.program.display();
            workspace.run(&match side {
                Side::Tool => format!("'{program}' unpack {options} '{archive}'"),
                _ => format!("tar xf '{archive}'"),
            })
        })?;
        compare::sides(bench, "archives", Degree::Exact, &SIDES)?;
        let row = Row::new(&format!("unpack an archive, {name}"), measured.whole);
        rows.push(row.note(&bench.corpus.note()));
    }
    Ok(rows)
}
