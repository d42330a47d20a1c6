//! Finds later changes that were themselves taken back, by another undo or by hand: an object that
//! is again as it was before them. Such changes are no conflict.
//!
//! An object that only seems changed is reported as a conflict, never the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Result};

use super::reverse::{OldPages, Reverse};
use crate::base::Base;
use crate::base::snapshot::PAGE;
use crate::undo::changes::ChangeRef;

/// More contents are not compared: the changes count as a conflict.
const COMPARED_BYTES_MAX: u64 = 16 << 20;

impl<D: Disk> Reverse<'_, D> {
    /// Whether the object is again as it was before these changes, the oldest first. Everybody
    /// else who has changed it since the first of them must be among them.
    pub(super) fn is_taken_back(&self, base: &Arc<Base>, changes: &[ChangeRef]) -> Result<bool> {
        let Some(first) = changes.first() else {
            return Ok(true);
        };
        let (_, _, former) = self.since.change(*first);
        let stat = self.stat(base)?;
        let (old, now) = (former.attributes, stat.attributes);
        if (old.mode, old.owner) != (now.mode, now.owner) {
            return Ok(false);
        }
        if !self.has_old_xattrs(base, changes)? {
            return Ok(false);
        }
        // The length and times of a directory change with its entries.
        if base.kind == Kind::Directory {
            return Ok(true);
        }
        let is_same = (former.length, old.times.modified) == (stat.length, now.times.modified);
        Ok(is_same && self.has_old_contents(base, changes, former.length)?)
    }

    fn has_old_xattrs(&self, base: &Arc<Base>, changes: &[ChangeRef]) -> Result<bool> {
        let mut seen = BTreeSet::new();
        for change in changes {
            let (_, _, former) = self.since.change(*change);
            for (name, old) in &former.xattrs {
                if !seen.insert(name) {
                    continue;
                }
                let now = match self.view.snapshot().xattr(base, name) {
                    Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
                    now => Some(now?),
                };
                if now != *old {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn has_old_contents(
        &self,
        base: &Arc<Base>,
        changes: &[ChangeRef],
        length: u64,
    ) -> Result<bool> {
        let mut old: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for change in changes {
            let Some(pages) = self.old_pages(*change)? else {
                return Ok(false);
            };
            for (page, bytes) in pages {
                old.entry(page).or_insert(bytes);
            }
        }
        for (page, bytes) in old {
            let start = page * PAGE;
            let count = length.saturating_sub(start).min(PAGE) as usize;
            let mut now = vec![0; count];
            self.view.snapshot().read(base, start, &mut now)?;
            if now != bytes[..count] {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The pages that a commit has overwritten; `None` if they are too many to compare.
    fn old_pages(&self, change: ChangeRef) -> Result<Option<BTreeMap<u64, Vec<u8>>>> {
        let (step, _, former) = self.since.change(change);
        let total: u64 = former.extents.iter().map(|extent| extent.length).sum();
        if total > COMPARED_BYTES_MAX {
            return Ok(None);
        }
        let mut pages = BTreeMap::new();
        for extent in &former.extents {
            let end = extent.offset.saturating_add(extent.length);
            for page in extent.offset / PAGE..end.div_ceil(PAGE) {
                pages.insert(page, vec![0; PAGE as usize]);
            }
        }
        let identity = step.object(former.object);
        let mut runs = OldPages::open(self.view, identity, step.sequence, former)?;
        while let Some(run) = runs.next(&self.view.core.disk)? {
            for (at, byte) in (run.offset..).zip(run.bytes) {
                if let Some(page) = pages.get_mut(&(at / PAGE)) {
                    page[(at % PAGE) as usize] = byte;
                }
            }
        }
        Ok(Some(pages))
    }
}
