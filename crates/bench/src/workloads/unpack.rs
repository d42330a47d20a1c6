//! Unpacking thousands of files, durable at the end on both sides.

use super::Bench;
use crate::compare::{self, Degree};
use crate::error::Result;
use crate::measure::{Pair, Series, Side, alternate, rest, timed};
use crate::programs::{Store, clear, make_directory, output, shell};
use crate::report::{Line, Target};

const NAME: &str = "unpack, durable";

pub fn measure(bench: &Bench) -> Result<Vec<Line>> {
    let plain = bench.directory.join("unpack-plain");
    let base = bench.directory.join("unpack-store");
    let archive = bench.corpus.archive.display().to_string();
    // What the command alone takes, up to the commit.
    let mut commands = Pair::default();
    let pair = alternate(bench.rounds, |side, round| {
        let place = match side {
            Side::Plain => &plain,
            Side::Transaction => &base,
        };
        // The other side's tree is kept for the comparison until here.
        clear(place)?;
        make_directory(place)?;
        let unpack = format!("date +%s.%N; tar xf '{archive}'; date +%s.%N");
        let (took, printed) = match side {
            Side::Plain => {
                rest();
                timed(|| shell(place, &format!("{unpack}; sync -f .")))?
            }
            Side::Transaction => {
                let store = Store::warm(&bench.program, place)?;
                rest();
                let arguments = ["run", "--", "/bin/sh", "-ec", &unpack];
                let measured = timed(|| output(&mut store.command(arguments)))?;
                store.stop()?;
                measured
            }
        };
        if round > 0 {
            add_span(commands.of_mut(side), &printed);
        }
        Ok(took)
    })?;
    compare::trees(NAME, Degree::Exact, &plain, &base)?;
    clear(&plain)?;
    clear(&base)?;
    let (files, bytes) = (bench.corpus.files, bench.corpus.bytes >> 20);
    Ok(vec![
        Line {
            workload: NAME,
            pair,
            target: Target::Ratio(2.5),
            note: format!("{files} files, {bytes} MiB"),
        },
        Line {
            workload: "  of which tar itself",
            pair: commands,
            target: Target::None,
            note: String::new(),
        },
    ])
}

/// The time between the two moments that were printed.
fn add_span(series: &mut Series, printed: &str) {
    let moments: Vec<f64> = printed
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    if let [begin, end] = moments.as_slice() {
        series.add(std::time::Duration::from_secs_f64((end - begin).max(0.0)));
    }
}
