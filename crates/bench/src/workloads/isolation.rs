//! The costs of serializable isolation beside snapshot isolation: the kernel must request attributes
//! again, and a commit compares the read set.

use crate::bench::Bench;
use crate::corpus;
use crate::error::Result;
use crate::measure::{Measured, Side, in_turns};
use crate::programs::shell;
use crate::report::Row;
use crate::workspace::Workspace;

const SERIALIZABLE: &[&str] = &["--isolation", "serializable"];
const PROJECT: &str = "dash";
const NOTE: &str = "plain: under snapshot";

/// Searches for a text that is nowhere. Then writes a file, so that the commit compares the read set.
const SEARCH: &str = r#"
search() { grep -r "no such text anywhere" . || test $? = 1; step "$1"; }
step -; search first; search second; echo > written"#;

/// Measures a script under both levels, in exact views. Snapshot isolation is measured as the plain
/// side.
fn both_levels(
    bench: &Bench,
    rounds: usize,
    script: &str,
    workspace: &Workspace,
) -> Result<Measured> {
    in_turns(rounds, &[Side::Plain, Side::Exact], |side| {
        bench.rest()?;
        match side {
            Side::Plain => workspace.run(script),
            _ => workspace.run_with(SERIALIZABLE, script),
        }
    })
}

pub fn serializable(bench: &Bench) -> Result<Vec<Row>> {
    let fill = format!("tar xf '{}'", bench.corpus.archive.display());
    let fill = |path: &std::path::Path| shell(path, &fill).map(|_| ());
    let workspace = Workspace::fresh(bench, Side::Exact, "serializable", fill)?;
    let search = both_levels(bench, bench.rounds, SEARCH, &workspace)?;
    let row = |name: &str, step: &str| Row::new(name, search.step(step)).note(NOTE);
    let mut rows = vec![
        row("serializable: grep -r, first", "first"),
        row("serializable: grep -r, second", "second"),
        row("serializable: commit of that", "commit"),
    ];
    drop(workspace);
    if let Some(archive) = corpus::c_project(&bench.cache, PROJECT)? {
        let script = format!(
            "step -; rm -rf build; mkdir build; cd build; \
             tar xf '{}' --no-same-owner --strip-components=1; \
             ./configure > configured; make -j2 > made 2>&1; step build",
            archive.display()
        );
        let workspace = Workspace::fresh(bench, Side::Exact, PROJECT, |_| Ok(()))?;
        let build = both_levels(bench, bench.few_rounds(), &script, &workspace)?;
        rows.push(Row::new(&format!("serializable: build of {PROJECT}"), build.whole).note(NOTE));
    }
    Ok(rows)
}
