//! The costs of transactions that change nothing.

use std::process::Command;

use atomdir::TransactionId;
use atomdir::client::{BeginOptions, Connection};

use crate::bench::Bench;
use crate::error::Result;
use crate::measure::{Side, Sides, in_turns, timed};
use crate::programs::output;
use crate::report::{Row, Target};
use crate::workspace::Workspace;

/// Transactions nest in exact views only.
const EXACT: [&str; 3] = ["run", "--view", "exact"];

pub fn empty(bench: &Bench) -> Result<Vec<Row>> {
    let workspace = Workspace::fresh(bench, Side::Exact, "empty", |_| Ok(()))?;
    let mut rows = vec![
        run_true(bench, &workspace, "run -- true", &[Side::Exact])?
            .target(Target::OverMilliseconds(6.0)),
    ];
    if bench.views.contains(&Side::Native) {
        let sides = [Side::Native, Side::Exclusive];
        let row = run_true(bench, &workspace, "run -- true, over the overlay", &sides)?;
        rows.push(row.target(Target::OverMilliseconds(8.0)));
    }
    let mut connection = workspace.connect()?;
    let begin = BeginOptions::default();
    let abort = alone(bench, &mut connection, &begin, abort)?;
    let commit = alone(bench, &mut connection, &begin, commit)?;
    rows.extend([
        Row::new("begin, abort", abort)
            .target(Target::Milliseconds(0.05))
            .note("by the library"),
        Row::new("begin, commit nothing", commit).note("by the library"),
    ]);
    Ok(rows)
}

/// The command `true`, plain and in these kinds of views.
fn run_true(bench: &Bench, workspace: &Workspace, name: &str, views: &[Side]) -> Result<Row> {
    let sides: Vec<Side> = [Side::Plain].iter().chain(views).copied().collect();
    let measured = in_turns(bench.many_rounds(), &sides, |side| {
        let mut command = match side {
            Side::Plain => Command::new("true"),
            view => workspace
                .store()?
                .command(["run", "--view", view.name(), "--", "true"]),
        };
        Ok(timed(|| output(&mut command))?.0.into())
    })?;
    Ok(Row::new(name, measured.whole))
}

/// Begins a transaction and calls `end`, again and again. There is no plain side.
fn alone(
    bench: &Bench,
    connection: &mut Connection,
    options: &BeginOptions,
    end: impl Fn(&mut Connection, TransactionId) -> Result<()>,
) -> Result<Sides> {
    let measured = in_turns(bench.many_rounds() * 8, &[Side::Exact], |_| {
        let (sample, ()) = timed(|| {
            let transaction = connection.begin(options)?;
            end(connection, transaction.id)
        })?;
        Ok(sample.into())
    })?;
    Ok(measured.whole)
}

fn abort(connection: &mut Connection, transaction: TransactionId) -> Result<()> {
    Ok(connection.abort(transaction)?)
}

fn commit(connection: &mut Connection, transaction: TransactionId) -> Result<()> {
    connection.commit(transaction, &mut |_| {})?;
    Ok(())
}

/// A transaction within another: by the command, compared with the outer one alone; and by the
/// library, within an open one.
pub fn nested(bench: &Bench) -> Result<Vec<Row>> {
    let workspace = Workspace::fresh(bench, Side::Exact, "nested", |_| Ok(()))?;
    let inner = [
        "run".as_ref(),
        "--view".as_ref(),
        "exact".as_ref(),
        "--".as_ref(),
        bench.program.as_os_str(),
        "run".as_ref(),
        "--".as_ref(),
        "true".as_ref(),
    ];
    let run = in_turns(bench.many_rounds(), &[Side::Plain, Side::Exact], |side| {
        let mut command = match side {
            Side::Plain => workspace
                .store()?
                .command(EXACT.iter().chain(&["--", "true"])),
            _ => workspace.store()?.command(inner),
        };
        Ok(timed(|| output(&mut command))?.0.into())
    })?;
    let mut connection = workspace.connect()?;
    let outer = connection.begin(&BeginOptions::default())?;
    let options = BeginOptions {
        outer: Some(outer.id),
        ..BeginOptions::default()
    };
    let library = alone(bench, &mut connection, &options, commit)?;
    abort(&mut connection, outer.id)?;
    Ok(vec![
        Row::new("run in a run -- true", run.whole).note("plain: one run"),
        Row::new("nested begin, commit nothing", library).note("by the library"),
    ])
}
