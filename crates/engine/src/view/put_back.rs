//! Finds changes that the transaction has reverted itself. Such objects do not count as changed.
//!
//! Contents are compared only if the file has its old modification time again. A write
//! changes that time, so the contents of most changed files are not read.

use std::collections::BTreeSet;
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Result, Stat};

use super::View;
use crate::base::Base;
use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::view::node::OwnBody;

const CHUNK: u64 = 256 << 10;

impl<D: Disk> View<D> {
    /// Returns the objects of the base that were modified, but whose attributes and
    /// contents are again those of the snapshot.
    pub(crate) fn put_back(&mut self) -> Result<BTreeSet<NodeId>> {
        let mut found = BTreeSet::new();
        let changed: Vec<NodeId> = self.changed_nodes().collect();
        for id in changed {
            match self.is_put_back(id) {
                Ok(true) => drop(found.insert(id)),
                Ok(false) => {}
                // An outside writer removed it, or took away the right to look at it; validation will
                // find that.
                Err(Errno::STALE | Errno::NOENT | Errno::ACCESS) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(found)
    }

    fn is_put_back(&mut self, id: NodeId) -> Result<bool> {
        let node = self.node(id)?;
        let (Some(own), Some(base)) = (node.own(), node.base.clone()) else {
            return Ok(false);
        };
        let modified = own.attributes.modified;
        let has_old_time = own.stamp.is_some_and(|stamp| stamp.modified() == modified);
        if !node.is_modified() || own.touched.modified && !has_old_time {
            return Ok(false);
        }
        let sets_only_permissions = own.xattrs.is_empty()
            && !matches!(own.body, OwnBody::File(_))
            && !own.touched.accessed
            && !own.touched.modified;
        if let Some((mode, owner)) = node.reported.filter(|_| sets_only_permissions) {
            // An outside writer may have changed the object, which does not matter then.
            return Ok(own.attributes.mode == mode && own.attributes.owner == owner);
        }
        let old = self.snapshot_stat(&base)?;
        Ok(self.has_old_attributes(id, &old)?
            && self.has_old_xattrs(id, &base)?
            && self.has_old_contents(id, &base, &old)?)
    }

    fn has_old_attributes(&self, id: NodeId, old: &Stat) -> Result<bool> {
        let own = self.node(id)?.own().ok_or(Errno::STALE)?;
        let (touched, now, old) = (own.touched, own.attributes, old.attributes);
        Ok((!touched.mode || now.mode == old.mode)
            && (!touched.owner || now.owner == old.owner)
            && (!touched.accessed || now.accessed == old.times.accessed)
            && (!touched.modified || now.modified == old.times.modified))
    }

    fn has_old_xattrs(&self, id: NodeId, base: &Arc<Base>) -> Result<bool> {
        let own = self.node(id)?.own().ok_or(Errno::STALE)?;
        for (name, value) in &own.xattrs {
            let old = match self.snapshot().xattr(base, name) {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
                old => Some(old?),
            };
            if old != *value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_old_contents(&mut self, id: NodeId, base: &Arc<Base>, old: &Stat) -> Result<bool> {
        let Some(contents) = self.node(id)?.contents().cloned() else {
            return Ok(true);
        };
        let length = self.file_length(id)?;
        if length != old.length {
            return Ok(false);
        }
        let mut at = 0;
        while at < length {
            // Pages of the base that still show through are unchanged, up to where the
            // file was cut.
            let (is_own, end) = if at < contents.base_limit {
                let (is_own, until) = contents.pages.run_at(at / PAGE);
                let until = until.saturating_mul(PAGE).min(contents.base_limit);
                (is_own, until.min(length))
            } else {
                (true, length)
            };
            if is_own && !self.is_run_as_before(id, base, at, end)? {
                return Ok(false);
            }
            at = end;
        }
        Ok(true)
    }

    pub(super) fn is_run_as_before(
        &mut self,
        id: NodeId,
        base: &Arc<Base>,
        start: u64,
        end: u64,
    ) -> Result<bool> {
        let mut at = start;
        while at < end {
            let length = CHUNK.min(end - at) as usize;
            let (mut old, mut new) = (vec![0; length], vec![0; length]);
            self.snapshot().read(base, at, &mut old)?;
            let plan = self.read_plan(id, at, length)?;
            plan.read(&self.core, &mut new)?;
            if old != new {
                return Ok(false);
            }
            at += length as u64;
        }
        Ok(true)
    }
}
