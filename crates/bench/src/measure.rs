//! Two ways of doing the same, in turns, so that what else the machine does
//! meets both.

use std::time::{Duration, Instant};

use crate::error::Result;

#[derive(Debug, Clone, Default)]
pub struct Series {
    milliseconds: Vec<f64>,
}

impl Series {
    pub fn add(&mut self, took: Duration) {
        self.milliseconds.push(took.as_secs_f64() * 1000.0);
        self.milliseconds.sort_by(f64::total_cmp);
    }

    pub fn median(&self) -> f64 {
        let middle = self.milliseconds.len() / 2;
        match self.milliseconds.as_slice() {
            [] => f64::NAN,
            all if all.len() % 2 == 1 => all[middle],
            all => f64::midpoint(all[middle - 1], all[middle]),
        }
    }

    pub fn min(&self) -> f64 {
        self.milliseconds.first().copied().unwrap_or(f64::NAN)
    }

    pub fn max(&self) -> f64 {
        self.milliseconds.last().copied().unwrap_or(f64::NAN)
    }

    pub fn all(&self) -> &[f64] {
        &self.milliseconds
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Plain,
    Transaction,
}

#[derive(Debug, Clone, Default)]
pub struct Pair {
    pub plain: Series,
    pub transaction: Series,
}

impl Pair {
    pub fn of_mut(&mut self, side: Side) -> &mut Series {
        match side {
            Side::Plain => &mut self.plain,
            Side::Transaction => &mut self.transaction,
        }
    }
}

/// One round that does not count, since memory and disk are slow at first
/// touch, then `rounds` that do; who goes first alternates. `once` gives the
/// time of what is measured, without what prepares it and clears it away.
pub fn alternate(
    rounds: usize,
    mut once: impl FnMut(Side, usize) -> Result<Duration>,
) -> Result<Pair> {
    let mut pair = Pair::default();
    for round in 0..=rounds {
        let mut sides = [Side::Plain, Side::Transaction];
        if round % 2 == 1 {
            sides.reverse();
        }
        for side in sides {
            let took = once(side, round)?;
            if round > 0 {
                pair.of_mut(side).add(took);
            }
        }
    }
    Ok(pair)
}

/// More than any workload touches anew.
const MEMORY_TOUCHED_BYTES: usize = 512 << 20;

/// Everything written, and free memory that a virtual machine's host has
/// really given: its first touch can cost more than what is measured.
pub fn rest() {
    rustix::fs::sync();
    let mut memory = vec![0_u8; MEMORY_TOUCHED_BYTES];
    for page in memory.chunks_mut(rustix::param::page_size()) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
}

pub fn timed<T>(action: impl FnOnce() -> Result<T>) -> Result<(Duration, T)> {
    let start = Instant::now();
    let value = action()?;
    Ok((start.elapsed(), value))
}
