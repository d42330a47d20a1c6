//! The arguments that every workload gets.

use std::path::{Path, PathBuf};

use crate::corpus::Corpus;
use crate::device::Device;
use crate::error::{Describe, Result};
use crate::measure::Side;

/// More than most workloads touch anew.
const MEMORY_TOUCHED_BYTES: usize = 256 << 20;

#[derive(Debug)]
pub struct Bench {
    /// The `atomdir` that is measured.
    pub program: PathBuf,
    /// A directory on the file system that is measured, for this run alone.
    pub directory: PathBuf,
    /// What is kept from one run to the next.
    pub cache: PathBuf,
    pub rounds: usize,
    /// The names of the rows of `library` to measure; none: all.
    pub rows: Vec<String>,
    /// 1: about an hour in all; the papers' sizes are given where they are used.
    pub scale: f64,
    pub corpus: Corpus,
    pub device: Device,
    /// The views that `atomdir run` knows.
    pub views: Vec<Side>,
    /// Whether this user may mount an overlay.
    pub may_mount: bool,
}

impl Bench {
    pub fn scaled(&self, amount: u64) -> u64 {
        ((amount as f64 * self.scale) as u64).max(1)
    }

    /// Plain and each view.
    pub fn sides(&self) -> Vec<Side> {
        let mut sides = vec![Side::Plain];
        sides.extend(&self.views);
        sides
    }

    /// The kind of view that `atomdir run` takes by itself.
    pub fn default_view(&self) -> Side {
        match self.views.contains(&Side::Native) {
            true => Side::Native,
            false => Side::Exact,
        }
    }

    /// Plain, a bare overlay, and each view.
    pub fn sides_with_overlay(&self) -> Vec<Side> {
        let mut sides = self.sides();
        if self.may_mount {
            sides.insert(1, Side::Overlay);
        }
        sides
    }

    /// For what takes long: few rounds tell enough.
    pub fn few_rounds(&self) -> usize {
        self.rounds.min(2)
    }

    /// For what takes milliseconds: many make a steady median.
    pub fn many_rounds(&self) -> usize {
        self.rounds * 8
    }

    /// Everything written, and free memory that a virtual machine's host has
    /// really given: its first touch can cost more than what is measured.
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
