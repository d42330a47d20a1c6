//! The figures of the five papers that Atomdir descends from, each beside what is measured here.
//!
//! A paper's figures are data: what was measured, the ratio that the paper has, and where the bench
//! measures the like. Tables and drawings are made from the rows of a run, or of earlier runs.

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
    /// Names the drawing.
    pub key: &'static str,
    pub title: &'static str,
    /// The machine and the system of the paper, and how they compare with ours.
    pub text: &'static str,
    pub figures: &'static [Figure],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A ratio of times: less is better.
    Long,
    /// A ratio of operations in a second: more is better.
    Fast,
    /// A ratio of flushes, or of syncs that wait for one: less is better.
    Flushes,
    /// A ratio of bytes that reach the disk: less is better.
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

/// Where the bench measures it: a row of a workload.
#[derive(Debug, Clone, Copy)]
pub struct BenchRow {
    pub workload: &'static str,
    pub row: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub enum Ours {
    /// Each of these sides, where it took part, to the side `to`.
    Ratio {
        at: BenchRow,
        sides: &'static [Side],
        to: Side,
    },
    /// A row's time to that of a row with half as much to do.
    Growth { at: BenchRow, half: BenchRow },
    /// A row's own figure, in bytes.
    Bytes(BenchRow),
    /// The remark says where it is shown, or why it is not measured.
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub what: &'static str,
    /// The paper's ratio, or its bytes.
    pub value: Option<f64>,
    pub unit: Unit,
    /// Other figures of the paper for the same.
    pub also: &'static str,
    pub ours: Ours,
    /// How our measurement differs from the paper's.
    pub remark: &'static str,
}

/// The ways of Atomdir.
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

/// A figure that is no ratio, or that the paper gives without a number.
const fn stated(what: &'static str, also: &'static str) -> Figure {
    figure(what, None, Unit::Long).also(also)
}

/// A ratio of rates for which the paper has only words.
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

    /// Beside the plain side of a row.
    const fn at(self, workload: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Ratio {
            at: BenchRow { workload, row },
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

    const fn growth(self, workload: &'static str, half: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Growth {
            at: BenchRow { workload, row },
            half: BenchRow {
                workload,
                row: half,
            },
        };
        Figure { ours, ..self }
    }

    const fn bytes(self, workload: &'static str, row: &'static str) -> Figure {
        let ours = Ours::Bytes(BenchRow { workload, row });
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

    /// The workload that measures the like.
    pub fn workload(&self) -> Option<&'static str> {
        self.places().map(|place| place.workload).next()
    }
}

/// Whether a figure of a paper needs this workload.
pub fn needs(workload: &str) -> bool {
    let mut figures = ALL.iter().flat_map(|paper| paper.figures);
    figures.any(|figure| figure.workload() == Some(workload))
}
