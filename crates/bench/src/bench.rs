//! The settings of a run, which every workload gets.

use std::path::{Path, PathBuf};

use crate::corpus::Corpus;
use crate::device::Device;
use crate::error::{Describe, Result};
use crate::measure::Side;

/// More memory than most workloads touch for the first time.
const MEMORY_TOUCHED_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub struct Bench {
    /// The `atomdir` that is measured.
    pub program: PathBuf,
    /// A directory on the measured file system, used by this run only.
    pub directory: PathBuf,
    /// A directory for downloads and built programs, which later runs use again.
    pub cache: PathBuf,
    pub rounds: usize,
    /// The names of the rows of `library` and `bulk` to measure. Empty means all.
    pub rows: Vec<String>,
    /// Multiplies the sizes of the workloads. With 1, all take about an hour.
    pub scale: f64,
    pub corpus: Corpus,
    pub device: Device,
    /// The kinds of views that `atomdir run` offers.
    pub views: Vec<Side>,
    /// Whether this user may mount an overlay.
    pub may_mount: bool,
}

impl Bench {
    pub fn scaled(&self, amount: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(1)
    }

    /// The plain side, and one side for each kind of view.
    pub fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::Plain];
        sides.extend(&self.views);
        sides
    }

    /// The kind of view that `atomdir run` uses by default.
    pub fn default_view(&self) -> Side {
        match self.views.contains(&Side::Native) {
            true => Side::Native,
            false => Side::Exact,
        }
    }

    /// The plain side, a bare overlay, and one side for each kind of view.
    pub fn sides_with_overlay(&self) -> Vec<Side> {
        let mut sides = self.sides();
        if self.may_mount {
            sides.insert(1, Side::Overlay);
        }
        sides
    }

    /// Rounds of workloads that take long: a few are enough.
    pub fn few_rounds(&self) -> usize {
        self.rounds.min(2)
    }

    /// Rounds of workloads that take milliseconds: the median is steady only with many.
    pub fn many_rounds(&self) -> usize {
        self.rounds * 8
    }

    /// Brings disk and memory to rest before a measurement. Writes all dirty pages. Touches memory, so
    /// that the host of a virtual machine provides it now: that can cost more than the workload.
    pub fn rest(&self) -> Result<()> {
        sync(&self.directory)?;
        let bytes = MEMORY_TOUCHED_BYTES as f64 * self.scale.min(1.0);
        let mut memory = vec![0_u8; bytes as usize];
        for page in memory.chunks_mut(rustix::param::page_size()) {
            page[0] = 1;
        }
        std::hint::black_box(&memory);
        Ok(())
    }
}

/// Makes the file system that holds `directory` durable.
pub fn sync(directory: &Path) -> Result<()> {
    let opened = std::fs::File::open(directory).describe("open", directory)?;
    rustix::fs::syncfs(opened).describe("flush", directory)
}
