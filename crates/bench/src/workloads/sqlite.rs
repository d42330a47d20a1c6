//! SQLite with the extension, compared with its rollback journal and its write-ahead log (TxFS, Neal).
//! Runs crates/sqlite/bench/measure.py.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::bench::Bench;
use crate::device::Written;
use crate::error::{Describe, Error, Result};
use crate::measure::{Sample, Side, in_turns};
use crate::programs::{clear, make_directory, output};
use crate::report::Row;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sqlite/bench/measure.py");

/// The workloads of measure.py, and the names of our rows.
const WORKLOADS: [(&str, &str); 9] = [
    ("insert, 10 000 rows", "SQLite: insert 10 000 rows"),
    ("update, 10 000 rows", "SQLite: update 10 000 rows"),
    ("insert, 1 row", "SQLite: insert a row"),
    ("update, 1 row", "SQLite: update a row"),
    ("TPC-C", "SQLite: TPC-C"),
    ("mail", "SQLite: mail"),
    (
        "six threads, twelve databases",
        "SQLite: six threads, twelve databases",
    ),
    (SEVERAL_WRITERS, "SQLite: six threads, one database"),
    ("two attached databases", "SQLite: two attached databases"),
];

const LONG: &str = "10 000 rows";
const SEVERAL_WRITERS: &str = "six threads, one database";

/// The sides of a workload. Unchanged SQLite in `atomdir run` is measured with long transactions only,
/// Turso only where several threads write to one database.
fn sides(bench: &Bench, workload: &str, has_turso: bool) -> Vec<Side> {
    let mut sides = vec![Side::Rollback, Side::Sqlite, Side::Embedded];
    if workload.ends_with(LONG) {
        sides.extend(&bench.views);
    }
    if workload == SEVERAL_WRITERS && has_turso {
        sides.push(Side::Turso);
    }
    sides
}

pub fn sqlite(bench: &Bench) -> Result<Vec<Row>> {
    let extension = bench.program.with_file_name("libatomdir_sqlite.so");
    if !extension.is_file() {
        eprintln!("SKIPPED sqlite: cargo build --release -p atomdir-sqlite");
        return Ok(Vec::new());
    }
    let Some(python) = python() else {
        eprintln!("SKIPPED sqlite: apt install python3");
        return Ok(Vec::new());
    };
    let has_turso = output(Command::new(python).args(["-c", "import turso"])).is_ok();
    if !has_turso {
        eprintln!(
            "SKIPPED the side turso of sqlite: python3 has no module turso (pip install pyturso)"
        );
    }
    let directory = bench.directory.join("sqlite");
    make_directory(&directory)?;
    let mut rows = Vec::new();
    for (workload, name) in WORKLOADS {
        let sides = sides(bench, workload, has_turso);
        let mut transactions = 0;
        let measured = in_turns(bench.rounds, &sides, |side| {
            bench.rest()?;
            let mut command = command(bench, python, (workload, side))?;
            let printed = output(command.args([&extension, &directory]))?;
            let (count, sample) = read(&printed).ok_or(Error::Printed(printed))?;
            transactions = count;
            Ok(sample.into())
        })?;
        let row = Row::new(name, measured.whole).reference(Side::Rollback);
        rows.push(row.note(&format!("{transactions} transactions")));
    }
    clear(&directory)?;
    Ok(rows)
}

/// A Python that can load SQLite extensions. Not every build can.
fn python() -> Option<&'static str> {
    let load = "import sqlite3; sqlite3.connect(':memory:').enable_load_extension(True)";
    let can = |python: &&str| output(Command::new(python).args(["-c", load])).is_ok();
    ["python3", "/usr/bin/python3"].into_iter().find(can)
}

fn command(bench: &Bench, python: &str, (workload, side): (&str, Side)) -> Result<Command> {
    let side = match side {
        Side::Rollback => "rollback",
        Side::Sqlite => "wal",
        Side::Exact => "run",
        Side::Native => "run-native",
        Side::Turso => "turso",
        _ => "atomdir",
    };
    let own = bench.program.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = own.into_iter().chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).map_err(std::io::Error::other);
    let mut command = Command::new(python);
    command
        .arg(PROGRAM)
        .args(["--rounds", "1", "--json", "--workload", workload])
        .args(["--sides", side, "--scale", &bench.scale.to_string()])
        .env("PATH", path.describe("find", &bench.program)?);
    Ok(command)
}

/// The number of transactions, and the sums of their time, flushes and bytes.
fn read(printed: &str) -> Option<(u64, Sample)> {
    let row: Value = serde_json::from_str(printed).ok()?;
    let sample = Sample {
        milliseconds: row["milliseconds"].as_f64()?,
        written: Some(Written {
            flushes: row["flushes"].as_u64()?,
            bytes: row["kib"].as_u64()? << 10,
        }),
        requests: None,
        processor_milliseconds: None,
    };
    Some((row["transactions"].as_u64()?, sample))
}
