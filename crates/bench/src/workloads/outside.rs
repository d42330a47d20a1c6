//! How much an open transaction slows other programs down, and how much memory it takes.

use std::fs;
use std::path::Path;

use atomdir::client::BeginOptions;

use crate::bench::Bench;
use crate::error::{Describe, Result};
use crate::load;
use crate::measure::{Side, in_turns, timed};
use crate::programs::{clear, make_directory, shell};
use crate::report::{Figure, Row, Target};
use crate::workspace::Workspace;

const FILES: u64 = 2000;

/// Programs that work in the base, with no transaction open and with one that has changes.
pub fn outside(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(FILES);
    let workspace = Workspace::fresh(bench, Side::Exact, "outside", |_| Ok(()))?;
    let work = workspace.path.join("work");
    let measured = in_turns(bench.rounds * 2, &[Side::Plain, Side::Exact], |side| {
        let mut connection = workspace.connect()?;
        let open = match side {
            Side::Exact => Some(connection.begin(&BeginOptions::default())?),
            _ => None,
        };
        let inside = open.as_ref().map(|open| open.view_path.join("inside"));
        if let Some(inside) = &inside {
            load::files::create(inside, files)?;
        }
        // Wait until the disk has written the staged files, and the removals of the last abort.
        // Otherwise these writes would be measured as well.
        bench.rest()?;
        bench.device.await_rest();
        let (sample, ()) = timed(|| {
            load::files::create(&work, files)?;
            load::files::stat(&work, files)?;
            load::files::unlink(&work, files)
        })?;
        fs::remove_dir(&work).describe("remove", &work)?;
        if let Some(inside) = &inside {
            load::files::stat(inside, files)?;
        }
        if let Some(open) = open {
            connection.abort(open.id)?;
        }
        Ok(sample.into())
    })?;
    Ok(vec![
        Row::new("outside, one open", measured.whole)
            .target(Target::Ratio(1.05))
            .note(&format!(
                "create, stat, unlink {files} files; plain: none open"
            )),
    ])
}

/// Runs a whole workload in the base, while an empty transaction is open.
pub(super) fn beside_an_empty_one(bench: &Bench, name: &str, script: &str) -> Result<Row> {
    let workspace = Workspace::fresh(bench, Side::Exact, "outside", |_| Ok(()))?;
    let work = workspace.path.join("work");
    let measured = in_turns(bench.rounds, &[Side::Plain, Side::Exact], |side| {
        let mut connection = workspace.connect()?;
        let open = match side {
            Side::Exact => Some(connection.begin(&BeginOptions::default())?),
            _ => None,
        };
        make_directory(&work)?;
        bench.rest()?;
        bench.device.await_rest();
        let (sample, _) = timed(|| shell(&work, script))?;
        clear(&work)?;
        if let Some(open) = open {
            connection.abort(open.id)?;
        }
        Ok(sample.into())
    })?;
    let row = Row::new(&format!("{name}, outside"), measured.whole);
    Ok(row.note("beside an empty transaction; plain: none open"))
}

/// How much the service grows for each new file of an open transaction.
pub fn memory(bench: &Bench) -> Result<Vec<Row>> {
    let files = bench.scaled(10 * FILES);
    let workspace = Workspace::fresh(bench, Side::Exact, "memory", |_| Ok(()))?;
    let mut connection = workspace.connect()?;
    let process = connection.service_status()?.process;
    let transaction = connection.begin(&BeginOptions::default())?;
    let before = resident_bytes(process)?;
    load::files::create(&transaction.view_path.join("new"), files)?;
    let open = resident_bytes(process)?;
    connection.commit(transaction.id, &mut |_| {})?;
    let committed = resident_bytes(process)?;
    let figure = |after: u64| Figure {
        value: after.saturating_sub(before) as f64 / files as f64,
        unit: "bytes",
        at_most: None,
    };
    let note = format!("{files} new files, the service's resident memory");
    Ok(vec![
        Row::figure("memory per change, open", figure(open)).note(&note),
        Row::figure("memory per change, committed", figure(committed)).note(&note),
    ])
}

pub(super) fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/statm");
    let text = fs::read_to_string(&path).describe("read", Path::new(&path))?;
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .unwrap_or_default();
    Ok(pages * rustix::param::page_size() as u64)
}
