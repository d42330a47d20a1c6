//! Reading and writing regular files: pages of the staged file over the base.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Extent, Kind, Result, Stat};

use super::View;
use super::node::{Contents, OwnBody};
use super::old_texts::{OldTexts, is_short};
use super::types::Caller;
use crate::base::Base;
use crate::base::core::Core;
use crate::base::snapshot::{PAGE, Snapshot};
use crate::ids::{NodeId, Sequence};
use crate::ranges::RangeSet;

const LENGTH_MAX: u64 = i64::MAX as u64;
const KEEP_SIZE: u32 = 0x01;
const PUNCH_HOLE: u32 = 0x02;
const ZERO_RANGE: u32 = 0x10;

/// All that a read needs. It is collected under the transaction's lock, and the
/// read runs without the lock.
pub(crate) struct ReadPlan<D: Disk> {
    pub length: usize,
    offset: u64,
    base: Option<Arc<Base>>,
    base_limit: u64,
    /// What the base's file held before outside writers could change it, if that is known.
    old: Option<Arc<Vec<u8>>>,
    staged: Option<Arc<D::Handle>>,
    /// Pages of the staged file; empty if it holds the whole file.
    pages: RangeSet,
    at: Sequence,
    /// Of a file of the base that is to be remembered as it is.
    to_remember: Option<(OldTexts, Stat)>,
}

impl<D: Disk> ReadPlan<D> {
    /// Whether there is or may be a hole in the range.
    pub fn may_have_holes(&self, core: &Core<D>) -> Result<bool> {
        let end = self.offset + self.length as u64;
        let mut at = self.offset;
        while at < end {
            let (is_staged, until) = self.run_at(at);
            let until = until.min(end);
            let has_data = match (&self.staged, &self.base) {
                (Some(file), _) if is_staged => has_data(core.disk.next_data(file, at)?, at, until),
                (_, Some(base)) if !is_staged && until <= self.base_limit => {
                    let snapshot = Snapshot::new(core, self.at);
                    // Kept older versions may have other holes.
                    !snapshot.has_versions(base)
                        && has_data(snapshot.next_data(base, at)?, at, until)
                }
                _ => false,
            };
            if !has_data {
                return Ok(true);
            }
            at = until;
        }
        Ok(false)
    }

    /// Fills the first `length` bytes of the buffer.
    pub fn read(&self, core: &Core<D>, buffer: &mut [u8]) -> Result<usize> {
        let buffer = &mut buffer[..self.length];
        let end = self.offset + self.length as u64;
        let mut at = self.offset;
        while at < end {
            let (is_staged, until) = self.run_at(at);
            let until = until.min(end);
            let part = &mut buffer[(at - self.offset) as usize..(until - self.offset) as usize];
            if is_staged {
                self.read_staged(core, at, part)?;
            } else {
                self.read_base(core, at, part)?;
            }
            at = until;
        }
        if let (Some((old_texts, stat)), Some(base)) = (&self.to_remember, &self.base) {
            let total = &core.old_text_bytes;
            old_texts.note_read((base, stat), (self.offset, buffer), total);
        }
        Ok(self.length)
    }

    fn run_at(&self, offset: u64) -> (bool, u64) {
        if self.base_limit == 0 {
            return (self.staged.is_some(), u64::MAX);
        }
        let (inside, until) = self.pages.run_at(offset / PAGE);
        (inside, until.saturating_mul(PAGE))
    }

    fn read_staged(&self, core: &Core<D>, offset: u64, part: &mut [u8]) -> Result<()> {
        let count = match &self.staged {
            Some(file) => core.disk.read_at(file, part, offset)?,
            None => 0,
        };
        part[count..].fill(0);
        Ok(())
    }

    fn read_base(&self, core: &Core<D>, offset: u64, part: &mut [u8]) -> Result<()> {
        let shown = self
            .base_limit
            .saturating_sub(offset)
            .min(part.len() as u64) as usize;
        let (below, rest) = part.split_at_mut(shown);
        rest.fill(0);
        if let Some(old) = &self.old {
            let old = old.get(offset as usize..).unwrap_or_default();
            let count = old.len().min(shown);
            below[..count].copy_from_slice(&old[..count]);
            below[count..].fill(0);
            return Ok(());
        }
        match &self.base {
            Some(base) if shown > 0 => Snapshot::new(core, self.at).read(base, offset, below),
            _ => Ok(()),
        }
    }
}

/// Whether the run of data includes everything between the offsets.
fn has_data(run: Option<Extent>, start: u64, end: u64) -> bool {
    run.is_some_and(|run| run.offset <= start && run.offset.saturating_add(run.length) >= end)
}

/// How much of a file is read at a time to stage all of it.
const WHOLE_CHUNK: usize = 256 << 10;

impl<D: Disk> View<D> {
    pub fn read_plan(&mut self, id: NodeId, offset: u64, length: usize) -> Result<ReadPlan<D>> {
        let total = self.file_length(id)?;
        self.read_plan_within(id, total, (offset, length))
    }

    /// For a program's read: checks whether it may, and notes it.
    pub fn checked_plan(
        &mut self,
        id: NodeId,
        offset: u64,
        length: usize,
        caller: Caller,
    ) -> Result<ReadPlan<D>> {
        self.check_readable(id, caller)?;
        self.require_contents(id)?;
        let mut to_remember = None;
        let total = match (self.node(id)?.own(), &self.node(id)?.base) {
            (None, Some(base)) if base.kind == Kind::File => {
                let base = base.clone();
                let stat = self.snapshot().stat_to_read(&base)?;
                self.watch_stores(id, &stat);
                // Commits keep what they replace.
                if is_short(&stat) && !self.snapshot().has_versions(&base) {
                    to_remember = Some((self.old_texts.clone(), stat));
                }
                stat.length
            }
            _ => self.file_length(id)?,
        };
        self.note_contents(id, total, (offset, length as u64))?;
        let mut plan = self.read_plan_within(id, total, (offset, length))?;
        plan.to_remember = to_remember;
        Ok(plan)
    }

    /// For a file of this length.
    fn read_plan_within(
        &mut self,
        id: NodeId,
        total: u64,
        (offset, length): (u64, usize),
    ) -> Result<ReadPlan<D>> {
        let length = total.saturating_sub(offset).min(length as u64);
        let node = self.node(id)?;
        let base = node.base.clone();
        let node_is_changed = node.contents().is_some();
        let (base_limit, pages) = match node.contents() {
            Some(contents) => {
                let first = offset / PAGE;
                let end = (offset + length).div_ceil(PAGE);
                let mut pages = RangeSet::default();
                let mut at = first;
                while at < end && contents.base_limit > 0 {
                    let (inside, until) = contents.pages.run_at(at);
                    if inside {
                        pages.insert(at, until.min(end));
                    }
                    at = until;
                }
                (contents.base_limit, pages)
            }
            None => (total, RangeSet::default()),
        };
        let staged = match self.staged(id)? {
            Some(_) => Some(self.staged_file(id)?),
            None => None,
        };
        let length = length as usize;
        let old = match (&base, base_limit) {
            (Some(base), 1..) if node_is_changed => self.old_texts.get(base),
            _ => None,
        };
        let at = base.as_ref().map_or(self.at, |base| self.at_of(base));
        Ok(ReadPlan {
            length,
            offset,
            base,
            base_limit,
            old: old.map(|old| old.contents),
            staged,
            pages,
            at,
            to_remember: None,
        })
    }

    /// Stages all contents of a changed file, so that none of the base's show through.
    pub fn stage_whole(&mut self, id: NodeId) -> Result<()> {
        let contents = self.node(id)?.contents();
        if contents.is_none_or(|contents| contents.base_limit == 0) {
            return Ok(());
        }
        let length = self.file_length(id)?;
        let mut at = 0;
        while at < length {
            let plan = self.read_plan(id, at, WHOLE_CHUNK)?;
            let mut buffer = vec![0; WHOLE_CHUNK];
            let count = plan.read(&self.core, &mut buffer)?;
            let file = self.staged_file_to_change(id, u64::MAX)?;
            self.core.disk.write_at(&file, &buffer[..count], at)?;
            at += count as u64;
        }
        self.note_contents_changed(id);
        let contents = self.contents_mut(id)?;
        contents.base_limit = 0;
        contents.pages = RangeSet::default();
        Ok(())
    }

    pub fn file_length(&self, id: NodeId) -> Result<u64> {
        let node = self.node(id)?;
        match (node.kind, node.own(), &node.base) {
            (Kind::File, Some(own), _) => Ok(own.attributes.length),
            (Kind::File, None, Some(base)) => Ok(self.show_stat(base)?.length),
            (Kind::Directory, ..) => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// Tells the view log that the set of staged pages changes, other than by adding some.
    fn note_contents_changed(&mut self, id: NodeId) {
        self.nodes.note_unlogged(|unlogged| {
            unlogged.contents.insert(id);
        });
    }

    pub(super) fn contents_mut(&mut self, id: NodeId) -> Result<&mut Contents> {
        if self.node(id)?.contents().is_none() {
            self.note_contents_changed(id);
        }
        if self.node(id)?.contents().is_none() {
            self.remember_old(id);
        }
        let own = self.own_mut(id)?;
        if let OwnBody::Unchanged = own.body {
            let contents = Contents {
                base_limit: own.attributes.length,
                pages: RangeSet::default(),
                in_place: false,
            };
            own.body = OwnBody::File(contents);
        }
        match &mut own.body {
            OwnBody::File(contents) => Ok(contents),
            _ => Err(Errno::INVAL),
        }
    }

    pub fn write(
        &mut self,
        id: NodeId,
        offset: u64,
        data: &[u8],
        kill_set_id: bool,
    ) -> Result<bool> {
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= LENGTH_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        self.file_length(id)?;
        let is_killed = kill_set_id && self.kill_set_id(id)?;
        if data.is_empty() {
            return Ok(is_killed);
        }
        self.fill_edges(id, offset, end)?;
        let file = self.staged_file_to_change(id, u64::MAX)?;
        if let Err(errno) = self.core.disk.write_at(&file, data, offset) {
            self.clear_failed_write(id, &file, offset, end)?;
            return Err(errno);
        }
        self.own_pages(id, offset, end)?;
        self.wrote(id, end)?;
        Ok(is_killed)
    }

    pub fn prefer_in_place(&mut self, id: NodeId) -> Result<()> {
        match &mut self.own_in_place(id)?.body {
            OwnBody::File(contents) => {
                contents.in_place = true;
                Ok(())
            }
            _ => Err(Errno::INVAL),
        }
    }

    /// When the space ran out, a part of the write may be in the staged file.
    /// Clears it past the end of the file and in holes. Otherwise it would appear
    /// when the file grows or another part of the page is written.
    fn clear_failed_write(
        &mut self,
        id: NodeId,
        file: &D::Handle,
        offset: u64,
        end: u64,
    ) -> Result<()> {
        let length = self.file_length(id)?;
        if self.core.disk.stat(file)?.length > length {
            self.core.disk.set_length(file, length)?;
        }
        let contents = self.node(id)?.contents();
        // If the file is staged as a whole, the part lies within what the program
        // wrote.
        let Some(contents) = contents.filter(|contents| contents.base_limit > 0) else {
            return Ok(());
        };
        let pages = contents.pages.clone();
        let (mut page, end) = (offset / PAGE, end.min(length).div_ceil(PAGE));
        while page < end {
            let (is_own, until) = pages.run_at(page);
            let until = until.min(end);
            if !is_own {
                let (start, count) = (page * PAGE, (until - page) * PAGE);
                self.core.disk.punch_hole(file, start, count)?;
            }
            page = until;
        }
        Ok(())
    }

    /// Fills pages at the edges of a range from the base, unless they will be
    /// overwritten as a whole.
    fn fill_edges(&mut self, id: NodeId, offset: u64, end: u64) -> Result<()> {
        let (first, last) = (offset / PAGE, (end - 1) / PAGE);
        if !offset.is_multiple_of(PAGE) {
            self.fill_page(id, first)?;
        }
        if !end.is_multiple_of(PAGE) && (last != first || offset.is_multiple_of(PAGE)) {
            self.fill_page(id, last)?;
        }
        Ok(())
    }

    /// Records that the staged file now holds the pages of a range.
    fn own_pages(&mut self, id: NodeId, offset: u64, end: u64) -> Result<()> {
        let contents = self.contents_mut(id)?;
        if contents.base_limit > 0 {
            let (start, end) = (offset / PAGE, end.div_ceil(PAGE));
            contents.pages.insert(start, end);
            self.nodes
                .note_unlogged(|unlogged| unlogged.pages.push((id, start, end)));
        }
        Ok(())
    }

    fn fill_page(&mut self, id: NodeId, page: u64) -> Result<()> {
        let contents = self.contents_mut(id)?;
        let start = page * PAGE;
        if contents.pages.contains(page) || start >= contents.base_limit {
            return Ok(());
        }
        let shown = (contents.base_limit - start).min(PAGE) as usize;
        let base = self.node(id)?.base.clone().ok_or(Errno::STALE)?;
        let mut buffer = [0; PAGE as usize];
        match self.old_texts.get(&base) {
            Some(old) => {
                let old = old.contents.get(start as usize..).unwrap_or_default();
                let count = old.len().min(shown);
                buffer[..count].copy_from_slice(&old[..count]);
            }
            None => self.snapshot().read(&base, start, &mut buffer[..shown])?,
        }
        let file = self.staged_file_to_change(id, u64::MAX)?;
        self.core.disk.write_at(&file, &buffer[..shown], start)
    }

    /// Updates the node after any change of contents that reaches `end`.
    fn wrote(&mut self, id: NodeId, end: u64) -> Result<()> {
        let now = self.now();
        let own = self.own_mut(id)?;
        let attributes = &mut own.attributes;
        attributes.length = attributes.length.max(end);
        attributes.modified = now;
        attributes.changed = now;
        own.touched.modified = true;
        Ok(())
    }

    pub(super) fn set_length(&mut self, id: NodeId, length: u64) -> Result<()> {
        let old = self.file_length(id)?;
        if length > LENGTH_MAX {
            return Err(Errno::FBIG);
        }
        let before = self.node(id)?.own.clone();
        self.note_contents_changed(id);
        let contents = self.contents_mut(id)?;
        if length < old {
            contents.base_limit = contents.base_limit.min(length);
            contents.pages.truncate(length.div_ceil(PAGE));
            if contents.base_limit == 0 {
                contents.pages.truncate(0);
            }
        }
        self.wrote(id, 0)?;
        self.own_mut(id)?.attributes.length = length;
        if length < old && self.staged(id)?.is_some() {
            let cut = self.cut_staged(id, length);
            if let (Err(errno), Some(before)) = (cut, before) {
                // The bytes left in the staged file must not show when the file grows again.
                self.node_mut(id)?.own = Some(before);
                return Err(errno);
            }
        }
        Ok(())
    }

    fn cut_staged(&mut self, id: NodeId, length: u64) -> Result<()> {
        if length == 0 && self.abandon_staged(id)? {
            return Ok(());
        }
        self.record_before_cut(id)?;
        let file = self.staged_file_to_change(id, length)?;
        if self.core.disk.stat(&file)?.length > length {
            self.core.disk.set_length(&file, length)?;
        }
        Ok(())
    }

    pub fn allocate(&mut self, id: NodeId, mode: u32, offset: u64, length: u64) -> Result<()> {
        let total = self.file_length(id)?;
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= LENGTH_MAX)
            .ok_or(Errno::FBIG)?;
        if length == 0 {
            return Err(Errno::INVAL);
        }
        let reaches = if mode & KEEP_SIZE != 0 { total } else { end };
        match mode & !KEEP_SIZE {
            0 => self.reserve_blocks(id, offset, length, reaches)?,
            PUNCH_HOLE if mode & KEEP_SIZE != 0 => self.zero_range(id, offset, end.min(total))?,
            ZERO_RANGE => self.zero_range(id, offset, end.min(reaches))?,
            _ => return Err(Errno::OPNOTSUPP),
        }
        self.wrote(id, reaches)
    }

    /// Makes a range read as zeros, with holes where whole pages allow it.
    pub(super) fn zero_range(&mut self, id: NodeId, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        self.fill_edges(id, offset, end)?;
        let file = self.staged_file_to_change(id, u64::MAX)?;
        // The staged file may still be shorter than the range.
        if self.core.disk.stat(&file)?.length < end {
            self.core.disk.set_length(&file, end)?;
        }
        self.core.disk.punch_hole(&file, offset, end - offset)?;
        self.own_pages(id, offset, end)
    }
}
