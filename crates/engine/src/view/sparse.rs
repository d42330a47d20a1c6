//! Where a file has data, for programs that leave out holes (lseek with SEEK_DATA).
//!
//! The view sees stores to mapped memory only when the kernel writes them back, so a
//! hole may already be filled. But a program can store to a page only after the kernel
//! has read it.
//!
//! Invariants
//! 1. If any part of a page was a hole when the kernel read the page, the page counts as
//!    data until the kernel forgets the file, since the kernel may have a copy.
//! 2. A page with any data counts as data from its start to its end.

use std::collections::HashMap;

use atomdir_disk::{Disk, Errno, Result};

use super::View;
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::ranges::RangeSet;

/// If a file has more runs of such pages, all pages from the first to the last count.
const RUNS_MAX: usize = 256;

/// Pages that were holes when the kernel read them, by file.
#[derive(Default)]
pub(super) struct HolesRead(HashMap<NodeId, RangeSet>);

impl HolesRead {
    fn insert(&mut self, id: NodeId, start: u64, end: u64) {
        let pages = self.0.entry(id).or_default();
        pages.insert(start, end);
        if pages.iter().nth(RUNS_MAX).is_some() {
            let (first, last) = (pages.iter().next(), pages.iter().last());
            if let (Some((start, _)), Some((_, end))) = (first, last) {
                pages.insert(start, end);
            }
        }
    }

    /// Called when the kernel has no copy of the file any more.
    pub fn forget(&mut self, id: NodeId) {
        self.0.remove(&id);
    }

    pub fn is_any(&self, id: NodeId) -> bool {
        self.0.contains_key(&id)
    }

    fn run_at(&self, id: NodeId, page: u64) -> (bool, u64) {
        let pages = self.0.get(&id);
        pages.map_or((false, u64::MAX), |pages| pages.run_at(page))
    }
}

impl<D: Disk> View<D> {
    /// Notes that the kernel has read a range with holes.
    pub(crate) fn note_hole_read(&mut self, id: NodeId, offset: u64, length: u64) {
        // No program can store to pages of an overlay's lower layer.
        if !self.lower && length > 0 {
            let end = offset.saturating_add(length).div_ceil(PAGE);
            self.holes_read.insert(id, offset / PAGE, end);
        }
    }

    pub fn seek(&mut self, id: NodeId, offset: u64, hole: bool) -> Result<u64> {
        let total = self.file_length(id)?;
        if offset >= total {
            return Err(Errno::NXIO);
        }
        let mut at = offset;
        while at < total {
            let (is_data, until) = self.page_run(id, at, total)?;
            if is_data != hole {
                return Ok(at);
            }
            at = until;
        }
        if hole { Ok(total) } else { Err(Errno::NXIO) }
    }

    /// Whether the page at an offset counts as data, and where that changes.
    fn page_run(&mut self, id: NodeId, offset: u64, total: u64) -> Result<(bool, u64)> {
        let page = offset / PAGE;
        let (is_read, until) = self.holes_read.run_at(id, page);
        let read_at = until.saturating_mul(PAGE);
        if is_read {
            return Ok((true, read_at));
        }
        let page_end = (page + 1) * PAGE;
        let end = total.min(read_at);
        let mut at = page * PAGE;
        while at < end {
            let (is_data, until) = self.data_run(id, at)?;
            if is_data && at < page_end {
                return Ok((true, until.div_ceil(PAGE).saturating_mul(PAGE)));
            }
            if is_data {
                return Ok((false, at / PAGE * PAGE));
            }
            at = until;
        }
        Ok((false, end))
    }

    /// Whether there is data at an offset, and where that changes.
    fn data_run(&mut self, id: NodeId, at: u64) -> Result<(bool, u64)> {
        let node = self.node(id)?;
        let base = node.base.clone();
        let (limit, in_pages, until) = match node.contents() {
            None => (u64::MAX, false, u64::MAX),
            Some(contents) if contents.base_limit == 0 => (0, true, u64::MAX),
            Some(contents) => {
                let (inside, until) = contents.pages.run_at(at / PAGE);
                (contents.base_limit, inside, until.saturating_mul(PAGE))
            }
        };
        let next = if in_pages {
            match self.staged(id)? {
                Some(_) => {
                    let file = self.staged_file(id)?;
                    self.core.disk.next_data(&file, at)?
                }
                None => None,
            }
        } else if let (Some(base), true) = (base, at < limit) {
            self.snapshot().next_data(&base, at)?
        } else {
            None
        };
        let until = if !in_pages && at < limit {
            until.min(limit)
        } else {
            until
        };
        Ok(match next {
            Some(run) if run.offset <= at => {
                (true, (run.offset.saturating_add(run.length)).min(until))
            }
            Some(run) => (false, run.offset.min(until)),
            None => (false, until),
        })
    }
}
