//! The parts of the base that an operation on a view writes, in the granularity
//! of conflicts. New objects are left out, since no other transaction can have
//! them.

use atomdir_disk::{Disk, Name, Result};

use crate::base::snapshot::PAGE;
use crate::ids::NodeId;
use crate::locks::{Extent, Target};
use crate::view::node::{Node, OwnBody};
use crate::view::{SetAttributes, View};

impl<D: Disk> View<D> {
    fn part(&self, id: NodeId, extent: Extent) -> Result<Vec<Target>> {
        let base = self.node(id)?.base.clone();
        Ok(base
            .map(|base| Target { base, extent })
            .into_iter()
            .collect())
    }

    /// A write past the end also writes the length, which counts as all pages
    /// from the end on.
    pub fn writes_contents(&mut self, id: NodeId, start: u64, end: u64) -> Result<Vec<Target>> {
        if self.node(id)?.base.is_none() || start >= end {
            return Ok(Vec::new());
        }
        let length = self.attributes(id)?.length;
        let extent = if end > length {
            Extent::Pages(start.min(length) / PAGE, u64::MAX)
        } else {
            Extent::Pages(start / PAGE, end.div_ceil(PAGE))
        };
        self.part(id, extent)
    }

    pub fn writes_attributes(&mut self, id: NodeId) -> Result<Vec<Target>> {
        self.part(id, Extent::Attributes)
    }

    pub fn sets_attributes(&mut self, id: NodeId, change: &SetAttributes) -> Result<Vec<Target>> {
        let SetAttributes {
            mode,
            user,
            group,
            accessed,
            modified,
            ..
        } = change;
        let mut targets = Vec::new();
        if let Some(length) = change.length {
            let old = self.attributes(id)?.length;
            targets.extend(self.part(id, Extent::Pages(old.min(length) / PAGE, u64::MAX))?);
        }
        let times = change.length.is_none() && (accessed.is_some() || modified.is_some());
        if mode.is_some() || user.is_some() || group.is_some() || times {
            targets.extend(self.part(id, Extent::Attributes)?);
        }
        Ok(targets)
    }

    pub fn writes_entry(&mut self, parent: NodeId, name: &[u8]) -> Result<Vec<Target>> {
        match Name::new(name) {
            Ok(name) => self.part(parent, Extent::Entry(name)),
            // The operation will be refused.
            Err(_) => Ok(Vec::new()),
        }
    }

    /// The entry is written, and the object that has the name, if any, is
    /// removed.
    pub fn removes_entry(&mut self, parent: NodeId, name: &[u8]) -> Result<Vec<Target>> {
        let mut targets = self.writes_entry(parent, name)?;
        if let Ok(name) = Name::new(name)
            && let Some(child) = self.child(parent, &name)?
        {
            targets.extend(self.part(child, Extent::Object)?);
        }
        Ok(targets)
    }

    /// Everything that the view has written so far.
    pub fn written(&self) -> Vec<Target> {
        let mut targets = Vec::new();
        for id in self.changed_nodes() {
            if let Ok(node) = self.node(id) {
                let extents = self.written_of(node);
                targets.extend(node.base.iter().flat_map(|base| {
                    extents.iter().map(|extent| Target {
                        base: base.clone(),
                        extent: extent.clone(),
                    })
                }));
            }
        }
        targets.extend(self.nodes.dying.values().map(|base| Target {
            base: base.clone(),
            extent: Extent::Object,
        }));
        targets
    }

    fn written_of(&self, node: &Node) -> Vec<Extent> {
        let Some(own) = node.own() else {
            return Vec::new();
        };
        let mut extents = Vec::new();
        let contents = matches!(own.body, OwnBody::File(_));
        let touched = own.touched;
        let times = touched.accessed || (touched.modified && !contents);
        if touched.mode || touched.owner || times || !own.xattrs.is_empty() {
            extents.push(Extent::Attributes);
        }
        match &own.body {
            OwnBody::File(contents) => {
                let pages = contents.pages.iter();
                extents.extend(pages.map(|(start, end)| Extent::Pages(start, end)));
                let before = node.base.as_ref().map(|base| self.snapshot_stat(base));
                let before = before.and_then(Result::ok).map_or(0, |stat| stat.length);
                // From here on the file is cut off or longer.
                if contents.base_limit < before || own.attributes.length > before {
                    extents.push(Extent::Pages(contents.base_limit / PAGE, u64::MAX));
                }
            }
            OwnBody::Directory(delta) => {
                extents.extend(delta.entries.keys().cloned().map(Extent::Entry));
            }
            OwnBody::Unchanged | OwnBody::Symlink(_) | OwnBody::Special => {}
        }
        extents
    }
}
