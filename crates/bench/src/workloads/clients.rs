//! Concurrent writers of large files (Valor), and concurrent clients with small commits.

use std::fs;
use std::path::Path;
use std::thread;

use atomdir::client::{BeginOptions, Connection, Transaction};

use crate::bench::Bench;
use crate::compare::{self, Degree};
use crate::error::{Describe, Error, Result};
use crate::load::pages::{self, PAGE};
use crate::measure::{Side, Sides, in_turns};
use crate::report::Row;
use crate::workspace::Workspace;

const SIDES: [Side; 2] = [Side::Plain, Side::Exact];
const FILE_BYTES: u64 = 4 << 20;

/// Each writer overwrites a file of its own, in one transaction.
pub fn writers(bench: &Bench) -> Result<Vec<Row>> {
    let bytes = bench.scaled(FILE_BYTES).next_multiple_of(PAGE);
    let file = |number: u64| format!("data-{number}");
    let mut rows = Vec::new();
    for count in [2, 4, 8, 16] {
        let fill = |path: &Path| {
            (0..count).try_for_each(|number| pages::fill(&path.join(file(number)), bytes))
        };
        let overwrite = |directory: &Path, number: u64, sync: bool| {
            let path = directory.join(file(number));
            let data = pages::open(&path)?;
            pages::write(&data, &path, 0..bytes, b'n')?;
            match sync {
                true => data.sync_data().describe("flush", &path),
                false => Ok(()),
            }
        };
        let sides = at_once(bench, count, 1, fill, |directory, number, _, sync| {
            overwrite(directory, number, sync)
        })?;
        rows.push(
            Row::new(&format!("{count} writers"), sides).note(&format!("{} KiB each", bytes >> 10)),
        );
    }
    Ok(rows)
}

const COMMITS: u64 = 64;

/// All clients together create the same number of files, each in a durable commit.
pub fn clients(bench: &Bench) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in [1, 2, 4, 8] {
        let each = bench.scaled(COMMITS).div_ceil(count);
        let create = |directory: &Path, number: u64, step: u64, sync: bool| {
            let path = directory.join(format!("file-{number}-{step}"));
            fs::write(&path, [b'c'; PAGE as usize]).describe("write", &path)?;
            if sync {
                pages::flush(&path)?;
                pages::flush(directory)?;
            }
            Ok(())
        };
        let sides = at_once(bench, count, each, |_| Ok(()), create)?;
        rows.push(Row::new(&format!("{count} clients"), sides).note(&format!(
            "{} commits of a new file; plain: fsync of it and of its directory",
            each * count
        )));
    }
    Ok(rows)
}

/// `count` threads call `action` with a directory, the thread's number and each of `steps` numbers:
/// the plain side with a sync, the other with a transaction for each call.
fn at_once(
    bench: &Bench,
    count: u64,
    steps: u64,
    fill: impl Fn(&Path) -> Result<()>,
    action: impl Fn(&Path, u64, u64, bool) -> Result<()> + Sync,
) -> Result<Sides> {
    let measured = in_turns(bench.rounds, &SIDES, |side| {
        let workspace = Workspace::fresh(bench, side, "clients", &fill)?;
        let commits_before = match side {
            Side::Exact => workspace.connect()?.service_status()?.sequence.0,
            _ => 0,
        };
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(match side {
                Side::Exact => Some(workspace.connect()?),
                _ => None,
            });
        }
        let work = |number: u64, mut connection: Option<Connection>| {
            (0..steps).try_for_each(|step| match &mut connection {
                None => action(&workspace.path, number, step, true),
                Some(connection) => {
                    let Transaction { id, view_path, .. } = begin(connection)?;
                    action(&view_path, number, step, false)?;
                    connection.commit(id, &mut |_| {})?;
                    Ok(())
                }
            })
        };
        let (sample, ()) = workspace.counted(|| {
            thread::scope(|scope| {
                let work = &work;
                let started: Vec<_> = (0..count)
                    .zip(connections)
                    .map(|(number, connection)| scope.spawn(move || work(number, connection)))
                    .collect();
                started.into_iter().try_for_each(|thread| {
                    // The thread has printed its panic.
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
            })
        })?;
        if side == Side::Exact {
            let made = workspace.connect()?.service_status()?.sequence.0 - commits_before;
            check_commits(count * steps, made)?;
        }
        Ok(sample.into())
    })?;
    compare::sides(bench, "clients", Degree::Contents, &SIDES)?;
    Ok(measured.whole)
}

fn begin(connection: &mut Connection) -> Result<Transaction> {
    Ok(connection.begin(&BeginOptions::default())?)
}

fn check_commits(expected: u64, made: u64) -> Result<()> {
    if expected == made {
        return Ok(());
    }
    Err(Error::Commits { expected, made })
}
