//! Prepares new contents of files that the base has: as a new inode, or in place.

use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Stat};
use atomdir_types::TreePath;

use super::{Outcome, Preparation, failed};
use crate::base::core::Core;
use crate::base::present::permissions;
use crate::base::snapshot::{PAGE, Snapshot};
use crate::base::{Base, Place};
use crate::ids::{NodeId, Sequence};
use crate::names;
use crate::ranges::RangeSet;
use crate::write_set::ContentsWrite;

/// A file up to this length is replaced if possible, not changed in place, so that
/// outside readers see it whole. Its writer may prefer otherwise.
const REPLACE_LENGTH_MAX: u64 = 1 << 20;

impl<D: Disk> Preparation<'_, '_, D> {
    pub(super) fn write_contents(&mut self, id: NodeId, path: &TreePath) -> Outcome<ContentsWrite> {
        let staging = |errno| failed("stage", path, errno);
        let node = self.view.node(id).map_err(staging)?;
        let base = node.base.clone().ok_or_else(|| staging(Errno::STALE))?;
        let (Some(contents), Some(own)) = (node.contents(), node.own()) else {
            return Err(staging(Errno::STALE));
        };
        let (keep, mut pages) = (contents.base_limit, contents.pages.clone());
        let length = own.attributes.length;
        // If an outside writer has removed the file, validation will report it.
        let original = match self.view.snapshot_stat(&base) {
            Err(Errno::STALE) => None,
            original => Some(original.map_err(staging)?),
        };
        let original_length = original.map_or(length, |original| original.length);
        let changes_length = length != original_length || keep < original_length;
        if keep == 0 {
            pages = RangeSet::default();
            pages.insert(0, length.div_ceil(PAGE));
        }
        let owned = pages.total() * PAGE;
        let is_short = length <= REPLACE_LENGTH_MAX && !contents.in_place;
        let prefers_new = keep == 0 || is_short || owned * 2 >= length;
        // The staged file may be needed for a change in place all the same.
        let file = self.view.staged_file(id).map_err(staging)?;
        let mut replacement = None;
        if self.is_anew(id) {
            let stat = give_length(&self.view.core.disk, &file, length).map_err(staging)?;
            replacement = Some(self.staged.len());
            self.register(id, stat.identity);
        } else if let Some(original) = original
            && (prefers_new || self.is_executed(&base))
            && self.may_replace(id, &original).map_err(staging)?
        {
            let at = self.view.at_of(&base);
            let fill = Fill {
                base: &base,
                at,
                pages: &pages,
                keep,
                length,
            };
            match fill.run(&self.view.core, &file) {
                Err(Errno::STALE) => {}
                filled => {
                    filled.map_err(staging)?;
                    let identity = self.view.core.disk.stat(&file).map_err(staging)?.identity;
                    replacement = Some(self.staged.len());
                    self.register(id, identity);
                }
            }
        }
        let staged = self.view.staged(id).map_err(staging)?;
        let slot = staged.and_then(|staged| names::slot_number(&staged.name));
        let slot = slot.ok_or_else(|| staging(Errno::STALE))?;
        let length = changes_length.then_some(length);
        Ok(ContentsWrite {
            slot,
            pages,
            length,
            keep,
            replacement,
            is_carried: false,
            differing: None,
            is_used: false,
        })
    }

    /// Whether a program runs from the file, so that the kernel lets nobody change it
    /// in place. If one is started later than this, `look` refuses the commit.
    fn is_executed(&self, base: &Base) -> bool {
        let opened = self.view.core.open_now(base, Access::ReadWrite);
        opened.is_err_and(|errno| errno == Errno::TXTBSY)
    }

    /// Not if an outside writer has moved or removed the file, which validation will report.
    fn may_replace(&self, id: NodeId, original: &Stat) -> Result<bool, Errno> {
        match self.can_replace(id, original) {
            Err(Errno::STALE) => Ok(false),
            can => can,
        }
    }

    /// Whether a new inode can stand for the file without anyone noticing.
    fn can_replace(&self, id: NodeId, original: &Stat) -> Result<bool, Errno> {
        let node = self.view.node(id)?;
        let (Some(own), Some(base)) = (node.own(), &node.base) else {
            return Ok(false);
        };
        let core = &self.view.core;
        let privileges = &core.options.privileges;
        let is_single = original.links == 1 && own.attributes.links == 1;
        let owner = own.attributes.owner;
        if !is_single || original.immutable || !privileges.can_own_as(owner) {
            return Ok(false);
        }
        if let Some(user) = self.view.restricted_to.as_ref().filter(|_| privileges.all) {
            // Apply will have no more rights than this user.
            let parent = match &base.state().place {
                Place::Entry { parent, .. } => parent.clone(),
                _ => return Ok(false),
            };
            let rights = permissions(core, &parent, user)?;
            return Ok(owner.user == user.user && rights & CHANGE_NAMES == CHANGE_NAMES);
        }
        if privileges.all {
            return Ok(true);
        }
        let names = self.view.snapshot().xattrs(base)?;
        let is_plain = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.");
        let parent = match &base.state().place {
            Place::Entry { parent, .. } => parent.clone(),
            _ => return Ok(false),
        };
        let directory = core.directory(&parent)?;
        Ok(names.iter().all(|(name, _)| is_plain(name))
            && core.disk.may_access(&directory, CHANGE_NAMES)?)
    }
}

/// Completes a staged file: copies the base's pages where the transaction has no pages of its own,
/// and keeps holes.
pub(crate) struct Fill<'a> {
    pub base: &'a Arc<Base>,
    pub at: Sequence,
    pub pages: &'a RangeSet,
    pub keep: u64,
    pub length: u64,
}

/// To write to a directory and to search it.
const CHANGE_NAMES: u32 = 3;
const COPY_CHUNK: usize = 1 << 20;

impl Fill<'_> {
    pub fn run<D: Disk>(&self, core: &Core<D>, file: &D::Handle) -> Result<(), Errno> {
        give_length(&core.disk, file, self.length)?;
        let end = self.keep.min(self.length);
        let mut at = 0;
        while at < end {
            let (is_own, until) = self.pages.run_at(at / PAGE);
            let until = until.saturating_mul(PAGE).min(end);
            if !is_own {
                self.copy_run(core, file, at, until)?;
            }
            at = until;
        }
        Ok(())
    }

    fn copy_run<D: Disk>(
        &self,
        core: &Core<D>,
        file: &D::Handle,
        mut at: u64,
        end: u64,
    ) -> Result<(), Errno> {
        let snapshot = Snapshot::new(core, self.at);
        let mut buffer = vec![0; COPY_CHUNK.min((end - at) as usize)];
        while at < end {
            let Some(run) = snapshot.next_data(self.base, at)? else {
                break;
            };
            if run.offset >= end {
                break;
            }
            let start = run.offset.max(at);
            let stop = (run.offset.saturating_add(run.length)).min(end);
            let mut from = start;
            while from < stop {
                let count = buffer.len().min((stop - from) as usize);
                snapshot.read(self.base, from, &mut buffer[..count])?;
                core.disk.write_at(file, &buffer[..count], from)?;
                from += count as u64;
            }
            at = stop;
        }
        Ok(())
    }
}

/// Gives a staged file its length, if it has another one, and returns what it was before.
pub(super) fn give_length<D: Disk>(disk: &D, file: &D::Handle, length: u64) -> Result<Stat, Errno> {
    let stat = disk.stat(file)?;
    if stat.length != length {
        disk.set_length(file, length)?;
    }
    Ok(stat)
}
