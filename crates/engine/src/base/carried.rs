//! A new object with all that it consists of, as the record of its commit carries it.
//!
//! While a commit is published and not in the base yet ([`crate::base::ahead`]), its new objects are
//! answered for from memory: nobody but the engine reaches them in the staging directory, so they
//! cannot look different there.

use atomdir_disk::{Extent, NewNode, Stat};
use atomdir_format::record::Run;

use crate::base::Xattrs;

pub(crate) struct CarriedObject {
    pub node: NewNode,
    pub stat: Stat,
    pub xattrs: Xattrs,
    /// The contents without the holes, in ascending order.
    pub runs: Vec<Run>,
}

impl CarriedObject {
    /// Returns how many bytes of the buffer lie before the end of the file, and fills these.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> usize {
        let left = self.stat.length.saturating_sub(offset);
        let count = left.min(buffer.len() as u64) as usize;
        let buffer = &mut buffer[..count];
        buffer.fill(0);
        copy_runs(&self.runs, offset, buffer);
        count
    }

    /// The next run of data at or after `offset`.
    pub fn next_data(&self, offset: u64) -> Option<Extent> {
        let ends_after = |run: &&Run| run.offset + run.bytes.len() as u64 > offset;
        let run = self.runs.iter().find(ends_after)?;
        let start = run.offset.max(offset);
        let length = run.offset + run.bytes.len() as u64 - start;
        Some(Extent {
            offset: start,
            length,
        })
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> u64 {
        let contents: u64 = self.runs.iter().map(|run| run.bytes.len() as u64).sum();
        contents + size_of::<CarriedObject>() as u64
    }
}

/// Fills the buffer with what the runs have from `at` on. The rest of it stays as it is.
pub(crate) fn copy_runs(runs: &[Run], at: u64, buffer: &mut [u8]) {
    let end = at + buffer.len() as u64;
    for run in runs {
        let start = run.offset.max(at);
        let stop = (run.offset + run.bytes.len() as u64).min(end);
        if start < stop {
            let from = &run.bytes[(start - run.offset) as usize..(stop - run.offset) as usize];
            buffer[(start - at) as usize..(stop - at) as usize].copy_from_slice(from);
        }
    }
}
