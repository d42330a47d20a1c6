//! Concurrent transactions: locks, a hundred transactions open at once, and one that stays open while
//! others commit.

use std::fs;
use std::path::Path;

use atomdir::client::{BeginOptions, Connection, LockOptions};
use atomdir::{Durability, LockMode, LockScope, TransactionId};

use crate::bench::Bench;
use crate::error::{Describe, Error, Result};
use crate::measure::{Side, Sides, in_turns, timed};
use crate::report::{Figure, Row};
use crate::workloads::outside::resident_bytes;
use crate::workspace::Workspace;

const OPEN_AT_ONCE: usize = 100;
/// At a scale of 2 500, a million.
const COMMITS: u64 = 400;
const OBJECTS: u64 = 20;

pub fn transactions(bench: &Bench) -> Result<Vec<Row>> {
    let workspace = Workspace::fresh(bench, Side::Exact, "transactions", |path| {
        (0..OBJECTS).try_for_each(|number| write(path, number, b"old"))
    })?;
    let mut rows = vec![
        Row::new("lock, unlock", locking(bench, &workspace)?).note("a file, by the library"),
        Row::new(
            "begin beside 100 open ones",
            beside_many(bench, &workspace)?,
        )
        .note("and abort"),
    ];
    rows.extend(left_open(bench, &workspace)?);
    Ok(rows)
}

fn locking(bench: &Bench, workspace: &Workspace) -> Result<Sides> {
    let mut connection = workspace.connect()?;
    let transaction = connection.begin(&BeginOptions::default())?;
    let options = LockOptions {
        mode: LockMode::Exclusive,
        scope: LockScope::Object,
        wait: None,
        max_age: None,
    };
    let paths = [name(0).into_bytes()];
    let measured = in_turns(bench.many_rounds() * 8, &[Side::Exact], |_| {
        let (sample, ()) = timed(|| {
            connection.lock(transaction.id, &paths, &options)?;
            connection.unlock(transaction.id, Some(&paths))?;
            Ok(())
        })?;
        Ok(sample.into())
    })?;
    connection.abort(transaction.id)?;
    Ok(measured.whole)
}

fn beside_many(bench: &Bench, workspace: &Workspace) -> Result<Sides> {
    let mut connection = workspace.connect()?;
    let begin = |connection: &mut Connection| Ok(connection.begin(&BeginOptions::default())?.id);
    let open: Vec<TransactionId> = (0..OPEN_AT_ONCE)
        .map(|_| begin(&mut connection))
        .collect::<Result<_>>()?;
    let measured = in_turns(bench.many_rounds() * 8, &[Side::Exact], |_| {
        let (sample, ()) = timed(|| {
            let transaction = begin(&mut connection)?;
            Ok(connection.abort(transaction)?)
        })?;
        Ok(sample.into())
    })?;
    for transaction in open {
        connection.abort(transaction)?;
    }
    Ok(measured.whole)
}

/// Small lazy commits while one transaction stays open: the times of the first and the last tenth.
/// Then checks that the open transaction still reads its snapshot.
fn left_open(bench: &Bench, workspace: &Workspace) -> Result<Vec<Row>> {
    let mut connection = workspace.connect()?;
    let open = connection.begin(&BeginOptions::default())?;
    let tenth = bench.scaled(COMMITS).div_ceil(10);
    let mut number = 0;
    let mut some = |connection: &mut Connection, name: &str| -> Result<Row> {
        let measured = in_turns(tenth as usize, &[Side::Exact], |_| {
            let options = BeginOptions {
                durability: Durability::Lazy,
                ..BeginOptions::default()
            };
            let (sample, ()) = timed(|| {
                let one = connection.begin(&options)?;
                write(&one.view_path, number % OBJECTS, b"new")?;
                connection.commit(one.id, &mut |_| {})?;
                Ok(())
            })?;
            number += 1;
            Ok(sample.into())
        })?;
        Ok(Row::new(name, measured.whole).note("begin, one file, lazy commit"))
    };
    let first = some(&mut connection, "beside one left open: first tenth")?;
    let process = connection.service_status()?.process;
    let before = resident_bytes(process)?;
    for _ in 1..9 {
        some(&mut connection, "between")?;
    }
    let last = some(&mut connection, "beside one left open: last tenth")?;
    let growth = Figure {
        value: resident_bytes(process)?.saturating_sub(before) as f64 / (tenth * 9) as f64,
        unit: "bytes",
        at_most: None,
    };
    for number in 0..OBJECTS {
        let path = open.view_path.join(name(number));
        if fs::read(&path).describe("read", &path)? != b"old" {
            return Err(Error::NoSide("keep its snapshot"));
        }
    }
    connection.abort(open.id)?;
    let growth = Row::figure("beside one left open: memory per commit", growth);
    Ok(vec![
        first,
        last,
        growth.note("the service's resident memory"),
    ])
}

fn name(number: u64) -> String {
    format!("file-{number}")
}

fn write(directory: &Path, number: u64, text: &[u8]) -> Result<()> {
    let path = directory.join(name(number));
    fs::write(&path, text).describe("write", &path)
}
