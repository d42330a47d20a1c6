//! The figures of the five papers on which Atomdir is based, beside our own measurements.
//!
//! A paper's figures are data: what was measured, the paper's ratio, and which row of the bench
//! measures the same. Tables and drawings are made from the rows of a run, or of earlier runs.

mod amino;
mod draw;
mod markdown;
mod measured;
mod neal;
mod plot;
mod spinellis;
mod table;
mod txfs;
mod valor;

pub use markdown::write_markdown;
pub use measured::Measured;
pub use plot::write_plots;
pub use table::table;

use crate::measure::Side;

pub const ALL: [&Paper; 5] = [
    &valor::VALOR,
    &txfs::TXFS,
    &neal::NEAL,
    &spinellis::SPINELLIS,
    &amino::AMINO,
];

#[derive(Debug)]
pub struct Paper {
    /// The name of the drawing's file.
    pub key: &'static str,
    pub title: &'static str,
    /// The paper's system, and how it compares with ours.
    pub text: &'static str,
    pub figures: &'static [Figure],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A ratio of times: lower is better.
    Long,
    /// A ratio of operations in a second: higher is better.
    Fast,
    /// A ratio of numbers of flushes: lower is better.
    Flushes,
    /// A ratio of bytes written to the disk: lower is better.
    Written,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Long => "as long",
            Unit::Fast => "as fast",
            Unit::Flushes => "as many flushes",
            Unit::Written => "as much written",
        }
    }
}

/// A row of a workload of the bench.
#[derive(Debug, Clone, Copy)]
pub struct BenchRow {
    pub workload: &'static str,
    pub row: &'static str,
    /// Measured with `--flush-us`: each flush of the disk takes longer.
    pub slowed: bool,
}

impl BenchRow {
    const fn new(workload: &'static str, row: &'static str) -> BenchRow {
        BenchRow {
            workload,
            row,
            slowed: false,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Ours {
    /// The ratio of each of these sides that was measured to the side `to`.
    Ratio {
        at: BenchRow,
        sides: &'static [Side],
        to: Side,
    },
    /// The ratio of a row's time to that of a row with half the work.
    Growth { at: BenchRow, half: BenchRow },
    /// A row's own figure, in bytes.
    Bytes(BenchRow),
    /// Not measured here. The remark says why, or where the result is.
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub what: &'static str,
    /// The paper's ratio. `None` if it has none.
    pub value: Option<f64>,
    pub unit: Unit,
    /// Further figures of the paper for the same measurement.
    pub also: &'static str,
    pub ours: Ours,
    /// How our measurement differs from the paper's.
    pub remark: &'static str,
}

/// The sides that use Atomdir.
pub const OURS: &[Side] = &[
    Side::Exact,
    Side::Native,
    Side::Embedded,
    Side::Service,
    Side::Tool,
];

const fn figure(what: &'static str, value: Option<f64>, unit: Unit) -> Figure {
    Figure {
        what,
        value,
        unit,
        also: "",
        ours: Ours::Nowhere,
        remark: "",
    }
}

const fn long(what: &'static str, value: f64) -> Figure {
    figure(what, Some(value), Unit::Long)
}

const fn fast(what: &'static str, value: f64) -> Figure {
    figure(what, Some(value), Unit::Fast)
}

const fn flushes(what: &'static str, value: f64) -> Figure {
    figure(what, Some(value), Unit::Flushes)
}

const fn written(what: &'static str, value: f64) -> Figure {
    figure(what, Some(value), Unit::Written)
}

/// A figure that is not a ratio, or for which the paper has no number.
const fn stated(what: &'static str, also: &'static str) -> Figure {
    figure(what, None, Unit::Long).also(also)
}

/// A ratio of rates for which the paper has no number.
const fn rate(what: &'static str, also: &'static str) -> Figure {
    figure(what, None, Unit::Fast).also(also)
}

impl Figure {
    const fn also(self, also: &'static str) -> Figure {
        Figure { also, ..self }
    }

    const fn remark(self, remark: &'static str) -> Figure {
        Figure { remark, ..self }
    }

    /// Measured by this row, compared with its plain side.
    const fn at(self, workload: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Ratio {
            at: BenchRow::new(workload, row),
            sides: OURS,
            to: Side::Plain,
        };
        Figure { ours, ..self }
    }

    const fn to(self, to: Side) -> Figure {
        let ours = match self.ours {
            Ours::Ratio { at, sides, .. } => Ours::Ratio { at, sides, to },
            _ => panic!("`at` comes first"),
        };
        Figure { ours, ..self }
    }

    const fn of(self, sides: &'static [Side]) -> Figure {
        let ours = match self.ours {
            Ours::Ratio { at, to, .. } => Ours::Ratio { at, sides, to },
            _ => panic!("`at` comes first"),
        };
        Figure { ours, ..self }
    }

    /// The same row of a run with `--flush-us`.
    const fn slowed(self) -> Figure {
        let ours = match self.ours {
            Ours::Ratio { at, sides, to } => Ours::Ratio {
                at: BenchRow { slowed: true, ..at },
                sides,
                to,
            },
            _ => panic!("`at` comes first"),
        };
        Figure { ours, ..self }
    }

    const fn growth(self, workload: &'static str, half: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Growth {
            at: BenchRow::new(workload, row),
            half: BenchRow::new(workload, half),
        };
        Figure { ours, ..self }
    }

    const fn bytes(self, workload: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Bytes(BenchRow::new(workload, row));
        Figure { ours, ..self }
    }

    fn places(&self) -> impl Iterator<Item = BenchRow> + use<> {
        let (one, other) = match self.ours {
            Ours::Ratio { at, .. } | Ours::Bytes(at) => (Some(at), None),
            Ours::Growth { at, half } => (Some(at), Some(half)),
            Ours::Nowhere => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// The workload that measures the figure.
    pub fn workload(&self) -> Option<&'static str> {
        self.places().map(|place| place.workload).next()
    }
}

/// Whether a figure of a paper needs this workload.
pub fn needs(workload: &str) -> bool {
    let mut figures = ALL.iter().flat_map(|paper| paper.figures);
    figures.any(|figure| figure.workload() == Some(workload))
}
