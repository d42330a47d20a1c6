//! The costs of keeping history: the same work in a store that keeps the objects that its commits
//! replace, and in one that does not.
//!
//! All rounds work in the same two stores, so that each round after the first replaces the files of
//! the one before.

use std::path::Path;

use crate::bench::Bench;
use crate::corpus;
use crate::error::Result;
use crate::load::pages;
use crate::measure::{Measured, Outcome, Side, Sides, in_turns};
use crate::programs::output;
use crate::report::{Row, Target};
use crate::workloads::{build, overwrite, postmark};
use crate::workspace::Workspace;

const NOTE: &str = "plain: no history is kept";
const RATIO_MAX: f64 = 1.05;
const FILE_BYTES: u64 = 64 << 20;

/// The two stores. The one without history is measured as the plain side.
struct Stores<'a> {
    bench: &'a Bench,
    without: Workspace<'a>,
    with: Workspace<'a>,
}

impl<'a> Stores<'a> {
    fn new(bench: &'a Bench, name: &str, fill: impl Fn(&Path) -> Result<()>) -> Result<Stores<'a>> {
        let store = |kept: &str| {
            Workspace::fresh(
                bench,
                bench.default_view(),
                &format!("{name}-{kept}"),
                &fill,
            )
        };
        let stores = Stores {
            bench,
            without: store("without")?,
            with: store("with")?,
        };
        let mut configured = stores
            .without
            .store()?
            .command(["config", "history-age", "off"]);
        output(&mut configured)?;
        Ok(stores)
    }

    fn compare(
        &self,
        rounds: usize,
        once: impl Fn(&Workspace<'a>) -> Result<Outcome>,
    ) -> Result<Measured> {
        in_turns(rounds, &[Side::Plain, self.bench.default_view()], |side| {
            self.bench.rest()?;
            match side {
                Side::Plain => once(&self.without),
                _ => once(&self.with),
            }
        })
    }
}

pub fn history(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let archive = bench.corpus.archive.display();
    let unpack = format!("step -; tar xf '{archive}'; step tar");
    rows.extend(of_script(bench, "unpack over what is there", &unpack)?);
    if let Some(archive) = corpus::c_project(&bench.cache, "dash")? {
        rows.extend(of_script(
            bench,
            "build of dash again",
            &build::script(&archive, false),
        )?);
    }
    if let Some(script) = postmark::script(bench, &postmark::CONFIGURATIONS[0])? {
        rows.extend(of_script(bench, postmark::CONFIGURATIONS[0].name, &script)?);
    }
    let bytes = bench.scaled(FILE_BYTES).next_multiple_of(pages::PAGE);
    let fill = |path: &Path| pages::fill(&path.join("data"), bytes);
    let stores = Stores::new(bench, "history-overwrite", fill)?;
    let measured = stores.compare(bench.many_rounds(), |workspace| {
        overwrite::single_pages(workspace, bytes)
    })?;
    rows.push(row("4 KiB in place, each durable", measured.whole));
    Ok(rows)
}

fn of_script(bench: &Bench, name: &str, script: &str) -> Result<[Row; 2]> {
    let stores = Stores::new(bench, "history", |_| Ok(()))?;
    let measured = stores.compare(bench.rounds, |workspace| workspace.run(script))?;
    Ok([
        row(&format!("commit of: {name}"), measured.step("commit")),
        row(name, measured.whole),
    ])
}

fn row(name: &str, sides: Sides) -> Row {
    Row::new(&format!("history: {name}"), sides)
        .target(Target::Ratio(RATIO_MAX))
        .note(NOTE)
}
