//! Reserving blocks for a range of a file (fallocate without or with `FALLOC_FL_KEEP_SIZE`).
//!
//! A new file is staged as a whole, and so is an old one that the commit replaces. Their reserved
//! blocks land with the staged file. An old file that is changed in place gets only the pages that
//! the transaction owns, and what is a hole in the staged file becomes a hole in the base. So there
//! the missing pages are written as zeros. Blocks past the end of such a file are not reserved.

use atomdir_disk::{Disk, Errno, Result};

use super::View;
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::ranges::RangeSet;

const CHUNK: usize = 256 << 10;

impl<D: Disk> View<D> {
    /// `reaches`: the least length of the file afterwards.
    pub(super) fn reserve_blocks(
        &mut self,
        id: NodeId,
        offset: u64,
        length: u64,
        reaches: u64,
    ) -> Result<()> {
        self.contents_mut(id)?;
        let mut missing = RangeSet::default();
        if !self.is_private_file(id)? {
            missing = self.pages_without_blocks(id, offset, (offset + length).min(reaches))?;
        }
        for (first, end) in missing.iter() {
            self.zero_range(id, first * PAGE, (end * PAGE).min(reaches))?;
        }
        let file = self.staged_file_to_change(id, u64::MAX)?;
        self.core.disk.allocate(&file, offset, length)?;
        if self.stays_in_place(id, reaches)? {
            let zeros = vec![0; CHUNK];
            for (first, end) in missing.iter() {
                let (mut at, end) = (first * PAGE, (end * PAGE).min(reaches));
                while at < end {
                    let count = zeros.len().min((end - at) as usize);
                    self.core.disk.write_at(&file, &zeros[..count], at)?;
                    at += count as u64;
                }
            }
        }
        Ok(())
    }

    /// The pages of a range that are neither the transaction's own nor data of the base.
    fn pages_without_blocks(&self, id: NodeId, offset: u64, end: u64) -> Result<RangeSet> {
        let node = self.node(id)?;
        let base = node.base.clone().ok_or(Errno::STALE)?;
        let contents = node.contents().ok_or(Errno::STALE)?;
        let limit = contents.base_limit;
        let mut missing = RangeSet::default();
        let (mut page, pages_end) = (offset / PAGE, end.div_ceil(PAGE));
        while page < pages_end {
            let (is_own, until) = contents.pages.run_at(page);
            let until = until.min(pages_end);
            if !is_own {
                let mut at = page;
                while at < until {
                    let data = match at * PAGE < limit {
                        true => self.snapshot().next_data(&base, at * PAGE)?,
                        false => None,
                    };
                    let data = data.filter(|run| run.offset < limit);
                    let Some(run) = data else {
                        missing.insert(at, until);
                        break;
                    };
                    let first = (run.offset / PAGE).clamp(at, until);
                    if first > at {
                        missing.insert(at, first);
                    }
                    let run_end = run.offset.saturating_add(run.length).min(limit);
                    at = run_end.div_ceil(PAGE).max(first + 1);
                }
            }
            page = until;
        }
        Ok(missing)
    }

    /// Whether the commit will change the file in place, as far as is known now (`prepare`).
    fn stays_in_place(&self, id: NodeId, length: u64) -> Result<bool> {
        let node = self.node(id)?;
        let (Some(contents), Some(own)) = (node.contents(), node.own()) else {
            return Ok(false);
        };
        let is_whole = contents.base_limit == 0 || contents.pages.total() * PAGE * 2 >= length;
        let has_names = own.attributes.links > 1;
        Ok(node.base.is_some() && (!is_whole || has_names || contents.in_place))
    }
}
