//! New objects like those of the past, and contents of the past.

use atomdir_disk::{Disk, Errno, Kind, Name, Result};

use super::Restore;
use crate::ids::NodeId;
use crate::view::node::{Own, OwnBody, Touched};
use crate::view::{Caller, NewNode, SetAttributes};

const COPY_CHUNK: usize = 1 << 20;

impl<D: Disk> Restore<'_, D> {
    /// Writes what the past has overwritten over the contents of the base.
    pub(super) fn contents(&mut self, then: NodeId, now: NodeId, own: &Own) -> Result<()> {
        let OwnBody::File(contents) = &own.body else {
            return Ok(());
        };
        let length = own.attributes.length;
        let kept = contents.base_limit.min(length);
        self.set_length(now, kept)?;
        self.set_length(now, length)?;
        let page = crate::base::snapshot::PAGE;
        let pages = contents.pages.iter();
        for (start, end) in pages.filter(|_| contents.base_limit > 0) {
            let end = end.saturating_mul(page).min(kept);
            self.copy_range(then, now, start.saturating_mul(page)..end)?;
        }
        self.copy_range(then, now, kept..length)
    }

    fn set_length(&mut self, now: NodeId, length: u64) -> Result<()> {
        if self.now.attributes(now)?.length != length {
            let change = SetAttributes {
                length: Some(length),
                ..SetAttributes::default()
            };
            self.now.set_attributes(now, change)?;
        }
        Ok(())
    }

    /// Copies contents. Beyond the old end of a file, zeros are holes.
    fn copy_range(&mut self, then: NodeId, now: NodeId, range: std::ops::Range<u64>) -> Result<()> {
        let mut at = range.start;
        let mut old = Vec::new();
        while at < range.end {
            let length = (range.end - at).min(COPY_CHUNK as u64) as usize;
            let mut buffer = vec![0; length];
            let core = self.then.core.clone();
            let plan = self.then.read_plan(then, at, length)?;
            let count = plan.read(&core, &mut buffer)?;
            buffer.truncate(count);
            if count == 0 {
                break;
            }
            old.clear();
            old.resize(count, 0);
            let plan = self.now.read_plan(now, at, count)?;
            plan.read(&core, &mut old)?;
            if old != buffer {
                self.now.write(now, at, &buffer, false)?;
            }
            at += count as u64;
        }
        Ok(())
    }

    /// Makes a new object like one of the past, with everything in it.
    pub(super) fn copy(&mut self, then: NodeId, directory: NodeId, name: &Name) -> Result<()> {
        let kind = self.then.node(then)?.kind;
        if kind == Kind::Directory {
            let made = self.copy_alone(then, directory, name)?;
            return self.fill(then, made);
        }
        let made = self.create(then, directory, name)?;
        self.made.insert(then, made);
        if kind == Kind::File {
            let length = self.then.attributes(then)?.length;
            self.set_length(made, length)?;
            self.copy_range(then, made, 0..length)?;
        }
        self.dress(then, made)
    }

    /// Makes in a directory that is a copy what one of the past has in it.
    pub(super) fn fill(&mut self, then: NodeId, made: NodeId) -> Result<()> {
        for entry in self.then.list(then)? {
            let child = self.then.child(then, &entry.name)?.ok_or(Errno::STALE)?;
            self.deeper(|this| this.entry(made, &entry.name, Some(child)))?;
        }
        self.dress(then, made)
    }

    /// Makes an empty directory like one of the past.
    pub(super) fn copy_alone(
        &mut self,
        then: NodeId,
        directory: NodeId,
        name: &Name,
    ) -> Result<NodeId> {
        let made = self.create(then, directory, name)?;
        self.dress(then, made)?;
        Ok(made)
    }

    fn create(&mut self, then: NodeId, directory: NodeId, name: &Name) -> Result<NodeId> {
        let attributes = self.then.attributes(then)?;
        let what = match attributes.kind {
            Kind::File => NewNode::File,
            Kind::Directory => NewNode::Directory,
            Kind::Symlink => NewNode::Symlink(self.then.read_link(then)?),
            Kind::Fifo => NewNode::Fifo,
            Kind::Socket => NewNode::Socket,
            Kind::CharacterDevice => NewNode::CharacterDevice(attributes.device_number),
            Kind::BlockDevice => NewNode::BlockDevice(attributes.device_number),
        };
        let caller = Caller {
            user: attributes.owner.user,
            group: attributes.owner.group,
        };
        let name = name.as_bytes();
        let made = self
            .now
            .create(directory, name, what, attributes.mode, 0, caller)?;
        self.now.forget(made.node, 1);
        Ok(made.node)
    }

    /// Gives a new object the attributes and extended attributes of one of the past.
    fn dress(&mut self, then: NodeId, made: NodeId) -> Result<()> {
        let attributes = self.then.attributes(then)?;
        let inherited = self.now.xattr_names(made)?;
        let mut xattrs: std::collections::BTreeMap<_, _> =
            inherited.into_iter().map(|name| (name, None)).collect();
        for (name, value) in self.then.all_xattrs(then)? {
            xattrs.insert(name, Some(value));
        }
        self.now.dress_as(made, &attributes, Touched::ALL, xattrs)
    }
}
