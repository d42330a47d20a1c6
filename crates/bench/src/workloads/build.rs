//! Unpacking, configuring, making and installing two C projects.

use std::path::Path;

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::corpus;
use crate::error::Result;
use crate::measure::in_turns;
use crate::report::{Row, Target};
use crate::workspace::Workspace;

const PROJECTS: &[&str] = &["less", "dash"];

pub fn build(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for project in PROJECTS {
        rows.append(&mut build_project(bench, project)?);
    }
    Ok(rows)
}

pub fn script(archive: &Path) -> String {
    format!(
        r#"step -
        tar xf '{}' --no-same-owner --strip-components=1; step unpack
        ./configure --prefix="$PWD/installed" > configured; step configure
        make -j2 > made 2>&1; step make
        make install > /dev/null; step install"#,
        archive.display()
    )
}

fn build_project(bench: &Bench, project: &str) -> Result<Vec<Row>> {
    let Some(archive) = corpus::c_project(&bench.cache, project)? else {
        eprintln!("build: left out, no source of {project} can be fetched");
        return Ok(Vec::new());
    };
    let script = script(&archive);
    let sides = bench.sides();
    let measured = in_turns(bench.few_rounds(), &sides, |side| {
        Workspace::fresh(bench, side, project, |_| Ok(()))?.run(&script)
    })?;
    compare::sides(bench, project, Degree::Names, &sides)?;
    let row = |step: &str| Row::new(&format!("{step} {project}"), measured.step(step));
    Ok(vec![
        row("unpack").paper("Spinellis 2x"),
        row("configure")
            .target(Target::Ratio(1.05))
            .paper("Spinellis 1x, Amino 1.85x"),
        row("make")
            .target(Target::Ratio(1.03))
            .paper("Spinellis 1x, Amino 1.40x"),
        row("install"),
        row("commit").note("plain: syncfs"),
        Row::new(&format!("all of {project}"), measured.whole.clone()),
    ])
}
