//! What a transaction costs before it does anything.

use std::process::Command;

use atomdir::{BeginOptions, Connection, TransactionId};

use crate::bench::Bench;
use crate::error::Result;
use crate::measure::{Side, Sides, in_turns, timed};
use crate::place::Place;
use crate::programs::output;
use crate::report::{Row, Target};

pub fn empty(bench: &Bench) -> Result<Vec<Row>> {
    let place = Place::fresh(bench, Side::Exact, "empty", |_| Ok(()))?;
    let run = in_turns(bench.many_rounds(), &[Side::Plain, Side::Exact], |side| {
        let mut command = match side {
            Side::Plain => Command::new("true"),
            _ => place.store()?.command(["run", "--", "true"]),
        };
        Ok(timed(|| output(&mut command))?.0.into())
    })?;
    let abort = alone(bench, &place, |connection, transaction| {
        Ok(connection.abort(transaction)?)
    })?;
    let commit = alone(bench, &place, |connection, transaction| {
        connection.commit(transaction, &mut |_| {})?;
        Ok(())
    })?;
    Ok(vec![
        Row::new("run -- true", run.whole).target(Target::OverMilliseconds(6.0)),
        Row::new("begin, abort", abort)
            .target(Target::Milliseconds(0.05))
            .note("by the library"),
        Row::new("begin, commit nothing", commit).note("by the library"),
    ])
}

/// Begin, then `end`, over and over; nothing plain compares with it.
fn alone(
    bench: &Bench,
    place: &Place,
    end: impl Fn(&mut Connection, TransactionId) -> Result<()>,
) -> Result<Sides> {
    let mut connection = place.connect()?;
    let measured = in_turns(bench.many_rounds() * 8, &[Side::Exact], |_| {
        let (sample, ()) = timed(|| {
            let transaction = connection.begin(&BeginOptions::default())?;
            end(&mut connection, transaction.id)
        })?;
        Ok(sample.into())
    })?;
    Ok(measured.whole)
}

/// A run in a run, beside the outer one alone.
pub fn nested(bench: &Bench) -> Result<Vec<Row>> {
    let place = Place::fresh(bench, Side::Exact, "nested", |_| Ok(()))?;
    let inner = [
        "run".as_ref(),
        "--".as_ref(),
        bench.program.as_os_str(),
        "run".as_ref(),
        "--".as_ref(),
        "true".as_ref(),
    ];
    if let Err(error) = output(&mut place.store()?.command(inner)) {
        eprintln!("nested: left out: {error}");
        return Ok(Vec::new());
    }
    let measured = in_turns(bench.many_rounds(), &[Side::Plain, Side::Exact], |side| {
        let mut command = match side {
            Side::Plain => place.store()?.command(["run", "--", "true"]),
            _ => place.store()?.command(inner),
        };
        Ok(timed(|| output(&mut command))?.0.into())
    })?;
    Ok(vec![
        Row::new("run in a run -- true", measured.whole).note("plain: one run"),
    ])
}
