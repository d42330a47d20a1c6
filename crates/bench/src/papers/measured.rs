//! The rows of one or several runs, read from the output of `--json`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{BenchRow, Figure, Ours, Unit};
use crate::error::{Describe, Error, Result};
use crate::measure::Side;

/// The rows of all runs. A later row replaces an earlier one with the same name.
#[derive(Debug, Default)]
pub struct Measured {
    /// The machine and the number of rounds of the first run.
    pub machine: String,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    workload: String,
    name: String,
    slowed: bool,
    sides: Vec<(Side, Medians)>,
    figure: Option<f64>,
}

#[derive(Debug)]
struct Medians {
    milliseconds: f64,
    flushes: Option<f64>,
    bytes_written: Option<f64>,
}

/// Our measurement of a paper's figure.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// A ratio in the figure's unit for each side. Empty if the workload, or the side to compare with,
    /// was not measured.
    Ratios(Vec<(Side, f64)>),
    Bytes(f64),
    /// The workload was measured, but has no row with this name.
    NoRow,
    /// Not measured. The figure's remark gives the reason.
    Nowhere,
}

impl Measured {
    pub fn read(files: &[PathBuf]) -> Result<Measured> {
        let mut measured = Measured::default();
        for path in files {
            let text = fs::read_to_string(path).describe("read", path)?;
            let parsed: std::result::Result<Value, _> = serde_json::from_str(&text);
            let run = parsed.map_err(|error| not_rows(path, &error.to_string()))?;
            measured
                .add(&run)
                .ok_or_else(|| not_rows(path, "it has no rows"))?;
        }
        Ok(measured)
    }

    /// Adds the rows of a run. `None` if it is not the output of `--json`.
    pub fn add(&mut self, run: &Value) -> Option<()> {
        if self.machine.is_empty() {
            run["machine"]["line"]
                .as_str()?
                .clone_into(&mut self.machine);
            if let Some(rounds) = run["rounds"].as_u64() {
                self.machine += &format!(", --rounds {rounds}");
            }
        }
        let slowed = run["machine"]["flush_us"].is_u64();
        for row in run["rows"].as_array()? {
            let row = Row::read(row, slowed)?;
            self.rows.retain(|old| old.place() != row.place());
            self.rows.push(row);
        }
        Some(())
    }

    pub fn found(&self, figure: &Figure) -> Found {
        let mut missing = figure.places().filter(|place| self.row(*place).is_none());
        let is_measured = |place: BenchRow| {
            let place = (place.workload, place.slowed);
            let mut rows = self.rows.iter();
            rows.any(|row| (row.workload.as_str(), row.slowed) == place)
        };
        if missing.any(is_measured) {
            return Found::NoRow;
        }
        match figure.ours {
            Ours::Nowhere => Found::Nowhere,
            Ours::Bytes(at) => match self.row(at).and_then(|row| row.figure) {
                Some(bytes) => Found::Bytes(bytes),
                None => Found::Ratios(Vec::new()),
            },
            Ours::Ratio { at, sides, to } => {
                let ratios = self.row(at).map(|row| row.ratios(figure.unit, sides, to));
                Found::Ratios(ratios.unwrap_or_default())
            }
            Ours::Growth { at, half } => {
                let time = |place| self.row(place)?.of(Side::Exact);
                let growth = time(at)
                    .zip(time(half))
                    .map(|(all, half)| (Side::Exact, all.milliseconds / half.milliseconds));
                Found::Ratios(growth.into_iter().collect())
            }
        }
    }

    fn row(&self, place: BenchRow) -> Option<&Row> {
        let place = (place.workload, place.row, place.slowed);
        self.rows.iter().find(|row| row.place() == place)
    }
}

fn not_rows(path: &Path, problem: &str) -> Error {
    Error::NotRows {
        path: path.to_owned(),
        problem: problem.to_owned(),
    }
}

impl Row {
    fn read(row: &Value, slowed: bool) -> Option<Row> {
        let sides = row["sides"].as_object()?;
        let sides = sides.iter().filter_map(|(name, series)| {
            let side = Side::ALL.into_iter().find(|side| side.name() == name)?;
            let medians = Medians {
                milliseconds: series["median_ms"].as_f64()?,
                flushes: series["flushes"].as_f64(),
                bytes_written: series["bytes_written"].as_f64(),
            };
            Some((side, medians))
        });
        Some(Row {
            workload: row["workload"].as_str()?.to_owned(),
            name: row["row"].as_str()?.to_owned(),
            slowed,
            sides: sides.collect(),
            figure: row["figure"]["value"].as_f64(),
        })
    }

    fn place(&self) -> (&str, &str, bool) {
        (&self.workload, &self.name, self.slowed)
    }

    fn of(&self, side: Side) -> Option<&Medians> {
        let found = self.sides.iter().find(|(of, _)| *of == side);
        found.map(|(_, medians)| medians)
    }

    fn ratios(&self, unit: Unit, sides: &[Side], to: Side) -> Vec<(Side, f64)> {
        let Some(to) = self.of(to) else {
            return Vec::new();
        };
        let ratio = |side: &Side| {
            let ours = self.of(*side)?;
            let ratio = match unit {
                Unit::Long => ours.milliseconds / to.milliseconds,
                Unit::Fast => to.milliseconds / ours.milliseconds,
                Unit::Flushes => ours.flushes? / to.flushes?,
                Unit::Written => ours.bytes_written? / to.bytes_written?,
            };
            ratio.is_finite().then_some((*side, ratio))
        };
        sides.iter().filter_map(ratio).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::{fast, flushes, long, stated, written};
    use serde_json::json;

    fn run(row: &str, milliseconds: f64) -> Value {
        let side = |milliseconds: f64, bytes: f64| json!({ "median_ms": milliseconds, "flushes": null, "bytes_written": bytes });
        json!({
            "machine": { "line": "a machine" },
            "rows": [{
                "workload": "work",
                "row": row,
                "sides": { "plain": side(10.0, 4096.0), "exact": side(milliseconds, 1024.0) },
                "figure": null,
            }],
        })
    }

    #[test]
    fn ratios_are_in_the_unit_of_the_paper() {
        let mut measured = Measured::default();
        measured.add(&run("row", 40.0)).expect("rows");
        let exact = |ratio| Found::Ratios(vec![(Side::Exact, ratio)]);
        let none = || Found::Ratios(Vec::new());
        let time = long("what", 2.0).at("work", "row");
        for (figure, expected) in [
            (time, exact(4.0)),
            (fast("what", 2.0).at("work", "row"), exact(0.25)),
            (written("what", 2.0).at("work", "row"), exact(0.25)),
            // Flushes were not counted, and the side was not measured.
            (flushes("what", 2.0).at("work", "row"), none()),
            (time.to(Side::Logger), none()),
        ] {
            assert_eq!(measured.found(&figure), expected, "{figure:?}");
        }
        assert_eq!(measured.found(&stated("what", "words")), Found::Nowhere);
        let other = |workload| measured.found(&long("what", 2.0).at(workload, "other"));
        assert_eq!(other("work"), Found::NoRow);
        assert_eq!(other("elsewhere"), Found::Ratios(vec![]));
    }

    #[test]
    fn later_runs_replace_rows_and_growth_compares_two_rows() {
        let mut measured = Measured::default();
        for (row, milliseconds) in [("half", 30.0), ("all", 90.0), ("half", 45.0)] {
            measured.add(&run(row, milliseconds)).expect("rows");
        }
        let figure = stated("what", "2x").growth("work", "half", "all");
        let expected = Found::Ratios(vec![(Side::Exact, 2.0)]);
        assert_eq!(measured.found(&figure), expected);
        assert_eq!(measured.machine, "a machine");
    }

    #[test]
    fn a_run_with_slower_flushes_is_measured_apart() {
        let mut slow = run("row", 20.0);
        slow["machine"]["flush_us"] = json!(1000);
        let mut measured = Measured::default();
        measured.add(&run("row", 40.0)).expect("rows");
        let figure = long("what", 2.0).at("work", "row");
        let exact = |ratio| Found::Ratios(vec![(Side::Exact, ratio)]);
        assert_eq!(measured.found(&figure.slowed()), Found::Ratios(vec![]));
        measured.add(&slow).expect("rows");
        assert_eq!(measured.found(&figure), exact(4.0));
        assert_eq!(measured.found(&figure.slowed()), exact(2.0));
    }

    #[test]
    fn json_that_is_not_a_run_is_refused() {
        for json in [
            json!([]),
            json!({ "rows": [] }),
            json!({ "machine": { "line": "" }, "rows": [{}] }),
        ] {
            assert!(Measured::default().add(&json).is_none(), "{json}");
        }
    }
}
