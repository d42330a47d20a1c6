//! The idioms by which programs put writes in order, and how much of that a transaction saves (TxFS).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use atomdir::client::{BeginOptions, Connection};

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Describe, Result};
use crate::load::command;
use crate::load::pages::{self, PAGE};
use crate::measure::{Measured, Side, Sides, in_turns};
use crate::report::{Row, Target};
use crate::workspace::Workspace;

const PLAIN_AND_EXACT: [Side; 2] = [Side::Plain, Side::Exact];

/// Creates and removes a file with a sync, again and again. In a transaction, nothing is written.
pub fn cancel(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scaled(500);
    let measured = in_runs(bench, "cancel", count, |_| Ok(()))?;
    Ok(vec![
        Row::new("create, unlink, sync", measured.whole.clone())
            .target(Target::Faster(133.0))
            .note(&format!("{count} times, one transaction")),
        Row::new("create, unlink, sync: the loop", measured.step("cancel"))
            .note("without begin and commit"),
    ])
}

const DATA_BYTES: u64 = 4 << 20;

/// The log idiom: write the update to a log and sync, then make the update and sync. In a transaction
/// for each update the syncs do nothing, and no log is needed.
pub fn log(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.scaled(64);
    let fill = |path: &Path| pages::fill(&path.join("data"), DATA_BYTES);
    let offsets = pages::scattered(DATA_BYTES, count);
    let unmodified = measure(bench, "log", fill, |directory, mut connection| {
        offsets.iter().try_for_each(|offset| match &mut connection {
            None => log_and_update(directory, *offset),
            Some(connection) => transaction(connection, |view| log_and_update(view, *offset)),
        })
    })?;
    let rewritten = measure(bench, "log", fill, |directory, mut connection| {
        offsets.iter().try_for_each(|offset| match &mut connection {
            None => log_and_update(directory, *offset),
            Some(connection) => transaction(connection, |view| update(view, *offset, false)),
        })
    });
    let note = format!("{count} updates of 4 KiB, each a transaction");
    Ok(vec![
        Row::new("log, then update", unmodified)
            .target(Target::Faster(1.2))
            .note(&note),
        Row::new("update without the log", rewritten?)
            .target(Target::Faster(1.55))
            .note(&note),
    ])
}

fn log_and_update(directory: &Path, offset: u64) -> Result<()> {
    let path = directory.join("log");
    let mut log = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&path)
        .describe("open", &path)?;
    log.write_all(&[b'n'; PAGE as usize])
        .and_then(|()| log.sync_data())
        .describe("write", &path)?;
    update(directory, offset, true)?;
    // Without this, the program would make the update again after a crash.
    log.set_len(0).describe("cut", &path)
}

fn update(directory: &Path, offset: u64, sync: bool) -> Result<()> {
    let path = directory.join("data");
    let data = pages::open(&path)?;
    data.write_all_at(&[b'n'; PAGE as usize], offset)
        .describe("write", &path)?;
    if sync {
        data.sync_data().describe("flush", &path)?;
    }
    Ok(())
}

/// Creates three files that must be durable before a fourth is changed.
pub fn order(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = bench.scaled(10 << 20).next_multiple_of(PAGE);
    let fill = |path: &Path| pages::fill(&path.join("data"), 4 * bytes);
    let measured = in_runs(bench, "order", bytes, fill)?;
    Ok(vec![
        Row::new("ordered creates, then update", measured.whole)
            .target(Target::Faster(1.38))
            .note(&format!("of {} KiB each", bytes >> 10)),
    ])
}

/// Measures an unchanged load: plain, and as one transaction in each kind of view.
pub(super) fn in_runs(
    bench: &Bench,
    load: &str,
    number: u64,
    fill: impl Fn(&Path) -> Result<()>,
) -> Result<Measured> {
    let sides = bench.sides();
    let script = command(load, number)?;
    let measured = in_turns(bench.rounds, &sides, |side| {
        Workspace::fresh(bench, side, load, &fill)?.run(&script)
    })?;
    compare::sides(bench, load, Degree::Contents, &sides)?;
    Ok(measured)
}

/// Measures the plain side, which has no connection, and transactions of the library. Removes the log
/// before the files are compared, since the rewritten program has none.
fn measure(
    bench: &Bench,
    name: &str,
    fill: impl Fn(&Path) -> Result<()>,
    action: impl Fn(&Path, Option<&mut Connection>) -> Result<()>,
) -> Result<Sides> {
    let measured = in_turns(bench.rounds, &PLAIN_AND_EXACT, |side| {
        let workspace = Workspace::fresh(bench, side, name, &fill)?;
        let mut connection = match side {
            Side::Exact => Some(workspace.connect()?),
            _ => None,
        };
        let (sample, ()) = workspace.counted(|| action(&workspace.path, connection.as_mut()))?;
        let log = workspace.path.join("log");
        if log.exists() {
            fs::remove_file(&log).describe("remove", &log)?;
        }
        Ok(sample.into())
    })?;
    compare::sides(bench, name, Degree::Contents, &PLAIN_AND_EXACT)?;
    Ok(measured.whole)
}

fn transaction(
    connection: &mut Connection,
    action: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let transaction = connection.begin(&BeginOptions::default())?;
    action(&transaction.view_path)?;
    connection.commit(transaction.id, &mut |_| {})?;
    Ok(())
}
