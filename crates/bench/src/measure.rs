//! Measures several ways to do the same work in turns, so that other load on the machine affects all
//! of them alike.

use std::fmt;
use std::time::{Duration, Instant};

use crate::device::Written;
use crate::error::Result;

/// One of the ways to do the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The plain file system.
    Plain,
    /// An ideal write-ahead logger, which does no more than necessary (Valor).
    Logger,
    /// The kernel's overlay, with renames as its commit. It has no guarantees.
    Overlay,
    /// The kernel's overlay with `metacopy` and `redirect_dir`, without any commit.
    Bare,
    /// In a transaction, in an exact view.
    Exact,
    /// In a transaction, in a native view.
    Native,
    /// In a transaction that locks the store, in an exclusive view.
    Exclusive,
    /// Appends the same bytes to a file, and flushes it.
    Append,
    /// In a transaction of the library, in the program's own process.
    Embedded,
    /// In a transaction of the library, through the service.
    Service,
    /// SQLite with a rollback journal.
    Rollback,
    /// SQLite with a write-ahead log.
    Sqlite,
    /// SQLite's rewrite in Rust, in its mode for several writers.
    Turso,
    Lmdb,
    BerkeleyDb,
    /// The crate fstx.
    Fstx,
    /// `atomdir-deliver`, `atomdir-ldap`, `atomdir make` and `atomdir unpack`.
    Tool,
    Maildrop,
    Procmail,
    /// slapd's own database of files.
    BackLdif,
}

impl Side {
    pub const ALL: [Side; 20] = [
        Side::Plain,
        Side::Logger,
        Side::Overlay,
        Side::Bare,
        Side::Exact,
        Side::Native,
        Side::Exclusive,
        Side::Append,
        Side::Embedded,
        Side::Service,
        Side::Rollback,
        Side::Sqlite,
        Side::Turso,
        Side::Lmdb,
        Side::BerkeleyDb,
        Side::Fstx,
        Side::Tool,
        Side::Maildrop,
        Side::Procmail,
        Side::BackLdif,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Side::Plain => "plain",
            Side::Logger => "logger",
            Side::Overlay => "overlay",
            Side::Bare => "bare",
            Side::Exact => "exact",
            Side::Native => "native",
            Side::Exclusive => "exclusive",
            Side::Append => "append",
            Side::Embedded => "embedded",
            Side::Service => "service",
            Side::Rollback => "rollback",
            Side::Sqlite => "sqlite",
            Side::Turso => "turso",
            Side::Lmdb => "lmdb",
            Side::BerkeleyDb => "bdb",
            Side::Fstx => "fstx",
            Side::Tool => "tool",
            Side::Maildrop => "maildrop",
            Side::Procmail => "procmail",
            Side::BackLdif => "back-ldif",
        }
    }

    /// Whether the side works in a store with a service.
    pub fn has_store(self) -> bool {
        matches!(
            self,
            Side::Exact | Side::Native | Side::Exclusive | Side::Tool
        )
    }
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub milliseconds: f64,
    /// The disk's flushes and bytes written, if they were counted.
    pub written: Option<Written>,
    /// How many requests the kernel sent to the service, if there is one.
    pub requests: Option<u64>,
    /// Processor time of the programs and of the service, if it was measured.
    pub processor_milliseconds: Option<u64>,
}

impl From<Duration> for Sample {
    fn from(took: Duration) -> Sample {
        Sample {
            milliseconds: took.as_secs_f64() * 1000.0,
            written: None,
            requests: None,
            processor_milliseconds: None,
        }
    }
}

/// A side's samples in one workload.
#[derive(Debug, Clone, Default)]
pub struct Series(Vec<Sample>);

impl Series {
    pub fn add(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|sample| sample.milliseconds)
    }

    pub fn median(&self) -> f64 {
        median(self.all())
    }

    pub fn min(&self) -> f64 {
        self.all().fold(f64::INFINITY, f64::min)
    }

    pub fn max(&self) -> f64 {
        self.all().fold(f64::NEG_INFINITY, f64::max)
    }

    pub fn flushes(&self) -> Option<f64> {
        self.counted(|sample| Some(sample.written?.flushes))
    }

    pub fn bytes_written(&self) -> Option<f64> {
        self.counted(|sample| Some(sample.written?.bytes))
    }

    pub fn requests(&self) -> Option<f64> {
        self.counted(|sample| sample.requests)
    }

    pub fn processor_milliseconds(&self) -> Option<f64> {
        self.counted(|sample| sample.processor_milliseconds)
    }

    fn counted(&self, of: impl Fn(&Sample) -> Option<u64>) -> Option<f64> {
        let counts: Vec<f64> = self
            .0
            .iter()
            .filter_map(of)
            .map(|count| count as f64)
            .collect();
        (!counts.is_empty()).then(|| median(counts.into_iter()))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => f64::NAN,
        all if all.len() % 2 == 1 => all[middle],
        all => f64::midpoint(all[middle - 1], all[middle]),
    }
}

/// The series of each side that was measured.
#[derive(Debug, Clone, Default)]
pub struct Sides(Vec<(Side, Series)>);

impl Sides {
    pub fn of(&self, side: Side) -> Option<&Series> {
        self.0
            .iter()
            .find(|(of, _)| *of == side)
            .map(|(_, series)| series)
    }

    pub fn add(&mut self, side: Side, sample: Sample) {
        if let Some((_, series)) = self.0.iter_mut().find(|(of, _)| *of == side) {
            series.add(sample);
        } else {
            self.0.push((side, Series(vec![sample])));
        }
    }

    /// Replaces the series of `side` by the one in `others`.
    pub fn take_from(&mut self, others: &Sides, side: Side) {
        self.0.retain(|(of, _)| *of != side);
        let series = others.of(side).cloned();
        self.0.extend(series.map(|series| (side, series)));
    }

    /// The fastest side that works in a store.
    pub fn best_view(&self) -> Option<&Series> {
        self.0
            .iter()
            .filter(|(side, _)| side.has_store())
            .map(|(_, series)| series)
            .min_by(|one, other| one.median().total_cmp(&other.median()))
    }

    pub fn iter(&self) -> impl Iterator<Item = (Side, &Series)> {
        self.0.iter().map(|(side, series)| (*side, series))
    }
}

/// One run of a workload, and the durations of its steps.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub whole: Sample,
    pub steps: Vec<(String, Duration)>,
}

impl From<Sample> for Outcome {
    fn from(whole: Sample) -> Outcome {
        Outcome {
            whole,
            steps: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Measured {
    pub whole: Sides,
    steps: Vec<(String, Sides)>,
}

impl Measured {
    pub fn step(&self, name: &str) -> Sides {
        let found = self.steps.iter().find(|(of, _)| of == name);
        found.map(|(_, sides)| sides.clone()).unwrap_or_default()
    }

    pub fn add(&mut self, side: Side, outcome: Outcome) {
        self.whole.add(side, outcome.whole);
        for (name, took) in outcome.steps {
            let index = match self.steps.iter().position(|(of, _)| *of == name) {
                Some(index) => index,
                None => {
                    self.steps.push((name, Sides::default()));
                    self.steps.len() - 1
                }
            };
            self.steps[index].1.add(side, Sample::from(took));
        }
    }
}

/// Runs all sides in `rounds` rounds, after one that does not count, since memory and disk are slow at
/// first. Each round begins with another side. `once` prepares, measures one side, and cleans up.
pub fn in_turns(
    rounds: usize,
    sides: &[Side],
    mut once: impl FnMut(Side) -> Result<Outcome>,
) -> Result<Measured> {
    let mut measured = Measured::default();
    for round in 0..=rounds {
        let mut turns = sides.to_vec();
        turns.rotate_left(round % sides.len().max(1));
        for side in turns {
            let outcome = once(side)?;
            if round > 0 {
                measured.add(side, outcome);
            }
        }
    }
    Ok(measured)
}

pub fn timed<T>(action: impl FnOnce() -> Result<T>) -> Result<(Sample, T)> {
    let start = Instant::now();
    let value = action()?;
    Ok((Sample::from(start.elapsed()), value))
}
