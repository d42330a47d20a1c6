//! Unpacking, configuring, making, testing and installing C projects.

use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::Result;
use crate::measure::in_turns;
use crate::report::{Row, Target};
use crate::workspace::Workspace;

/// A package, and whether its `make check` tests it.
const PROJECTS: &[(&str, bool)] = &[("less", false), ("dash", false), ("zlib", true)];

pub fn build(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (project, has_tests) in PROJECTS {
        rows.append(&mut build_project(bench, project, *has_tests)?);
    }
    Ok(rows)
}

pub fn script(archive: &Path, has_tests: bool) -> String {
    let check = if has_tests { CHECK } else { "" };
    format!(
        r#"step -
        tar xf '{}' --no-same-owner --strip-components=1; step unpack
        ./configure --prefix="$PWD/installed" > configured; step configure
        make -j2 > made 2>&1; step make
        {check}
        make install > /dev/null; step install"#,
        archive.display()
    )
}

const CHECK: &str = "make check > checked 2>&1; step test";

fn build_project(bench: &Bench, project: &str, has_tests: bool) -> Result<Vec<Row>> {
    let Some(archive) = corpus::c_project(&bench.cache, project)? else {
        eprintln!("build: left out, no source of {project} can be fetched");
        return Ok(Vec::new());
    };
    let script = script(&archive, has_tests);
    let sides = bench.sides();
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        Workspace::fresh(bench, side, project, |_| Ok(()))?.run(&script)
    })?;
    compare::sides(bench, project, Degree::Names, &sides)?;
    let row = |step: &str| Row::new(&format!("{step} {project}"), measured.step(step));
    let mut rows = vec![
        row("unpack"),
        row("configure").target(Target::Ratio(1.05)),
        row("make").target(Target::Ratio(1.03)),
        row("install"),
        row("commit").note("plain: syncfs"),
        Row::new(&format!("all of {project}"), measured.whole.clone()),
    ];
    if has_tests {
        rows.push(row("test"));
    }
    Ok(rows)
}
