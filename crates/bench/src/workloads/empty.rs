//! What a transaction costs before it does anything.

use std::process::Command;

use atomdir::{BeginOptions, Connection, StartService};

use super::Bench;
use crate::error::Result;
use crate::measure::{Pair, Side, alternate, timed};
use crate::programs::{Store, make_directory, output};
use crate::report::{Line, Target};

/// These take milliseconds: many make a steady median.
const REPEATS: usize = 8;

pub fn measure(bench: &Bench) -> Result<Vec<Line>> {
    let path = bench.directory.join("empty");
    make_directory(&path)?;
    let store = Store::warm(&bench.program, &path)?;
    let rounds = bench.rounds * REPEATS;
    let run = alternate(rounds, |side, _| {
        let mut command = match side {
            Side::Plain => Command::new("true"),
            Side::Transaction => store.command(["run", "--", "true"]),
        };
        Ok(timed(|| output(&mut command))?.0)
    })?;
    let location = atomdir::find(&path)?;
    let mut connection = Connection::open(&location, &StartService::Never)?;
    let mut begin_and_commit = Pair::default();
    for round in 0..rounds + REPEATS {
        let (took, ()) = timed(|| {
            let transaction = connection.begin(&BeginOptions::default())?;
            connection.commit(transaction.id, &mut |_| {})?;
            Ok(())
        })?;
        if round >= REPEATS {
            begin_and_commit.transaction.add(took);
        }
    }
    Ok(vec![
        Line {
            workload: "run -- true",
            pair: run,
            target: Target::DifferenceMilliseconds(15.0),
            note: String::new(),
        },
        Line {
            workload: "begin, commit nothing",
            pair: begin_and_commit,
            target: Target::None,
            note: "through the library".to_owned(),
        },
    ])
}
