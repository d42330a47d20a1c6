//! Reads an unchanged tree three times.
//!
//! The result is the sum of the three passes, since a program that reads a tree pays for the first
//! one, too. The kernel caches nothing of a new view, even if it caches the base. So every side starts
//! with dropped caches. One pass in another view, while the base is cached, is a row of its own.

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::measure::in_turns;
use crate::programs::shell;
use crate::report::{Row, Target};
use crate::workspace::Workspace;

/// Searches for a text that is nowhere, so grep exits with 1. Only root can drop the kernel's caches.
const SEARCH: &str = r#"
sync; echo 3 2> /dev/null > /proc/sys/vm/drop_caches || true
search() { grep -r "no such text anywhere" . || test $? = 1; }
step -; search; search; search; step passes"#;

const SEARCH_REMEMBERED: &str = r#"
step -; grep -r "no such text anywhere" . || test $? = 1; step remembered"#;

pub fn search(bench: &Bench) -> Result<Vec<Row>> {
    let sides = bench.sides_with_overlay();
    let fill = format!("tar xf '{}'", bench.corpus.archive.display());
    let places = sides
        .iter()
        .map(|side| {
            let fill = |path: &std::path::Path| shell(path, &fill).map(|_| ());
            Ok((*side, Workspace::fresh(bench, *side, "search", fill)?))
        })
        .collect::<Result<Vec<_>>>()?;
    let measured = in_turns(bench.rounds, &sides, |side| {
        let (_, workspace) = places
            .iter()
            .find(|(of, _)| *of == side)
            .ok_or(crate::error::Error::NoSide("be searched"))?;
        bench.rest()?;
        let mut outcome = workspace.run(SEARCH)?;
        let remembered = workspace.run(SEARCH_REMEMBERED)?.steps;
        outcome.steps.extend(remembered.into_iter().take(1));
        Ok(outcome)
    })?;
    drop(places);
    compare::sides(bench, "search", Degree::Exact, &sides)?;
    Ok(vec![
        Row::new("grep -r, three passes", measured.step("passes")).note(&bench.corpus.note()),
        Row::new("grep -r, base in memory", measured.step("remembered")).target(Target::Ratio(2.0)),
    ])
}
