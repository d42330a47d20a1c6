//! Turns a view into a write set: completes its new objects in the staging
//! directory and makes them durable. Nothing outside that directory changes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use atomdir_disk::{Access, Attributes, Disk, Errno, Identity, Kind, Name, NewNode, Owner, Times};
use atomdir_format::record::AttributesChange;

use crate::base::Xattrs;
use crate::core::Core;
use crate::error::CommitError;
use crate::ids::{NodeId, Sequence};
use crate::names;
use crate::ranges::RangeSet;
use crate::snapshot::{PAGE, Snapshot};
use crate::view::View;
use crate::view::node::{DirectoryDelta, OwnBody, Staged, StagedParent, Touched};
use crate::write_set::{
    ContentsWrite, Created, CreatedPlace, EntryWrite, Object, ObjectWrite, RemovedDirectory,
    WriteSet,
};

type Outcome<T> = Result<T, CommitError>;

/// Up to so many staged files are synced one by one; more by one syncfs.
const SYNC_EACH_MAX: usize = 16;
/// A file up to this length is rather replaced than changed in place, so that
/// outside readers see it whole.
const REPLACE_LENGTH_MAX: u64 = 1 << 20;

pub(crate) fn prepare<D: Disk>(view: &mut View<D>) -> Outcome<WriteSet> {
    let mut preparation = Preparation {
        view,
        set: WriteSet::default(),
        created: HashMap::new(),
    };
    preparation.run()?;
    Ok(preparation.set)
}

struct Preparation<'a, D: Disk> {
    view: &'a mut View<D>,
    set: WriteSet,
    /// New nodes and nodes whose file is replaced, as indices of `set.created`.
    created: HashMap<NodeId, usize>,
}

impl<D: Disk> Preparation<'_, D> {
    fn run(&mut self) -> Outcome<()> {
        let changed: Vec<NodeId> = self.view.changed_nodes().collect();
        let summary = self
            .view
            .changes()
            .map_err(|errno| failed("list changes of", b"", errno))?;
        self.set.summary = summary;
        self.displace(&changed)?;
        for &id in &changed {
            if self.is_new(id) {
                self.create(id)?;
            }
        }
        for &id in &changed {
            self.fill_new_directory(id)?;
        }
        for &id in &changed {
            self.write_object(id)?;
        }
        for &id in &changed {
            self.write_entries(id)?;
        }
        self.finish_created()?;
        self.set.dying = self.view.dying.clone();
        self.make_durable()
    }

    fn path(&self, id: NodeId) -> Vec<u8> {
        self.view.path(id)
    }

    fn is_alive(&self, id: NodeId) -> bool {
        let own = self.view.node(id).ok().and_then(|node| node.own());
        own.is_some_and(|own| own.attributes.links > 0)
    }

    fn is_new(&self, id: NodeId) -> bool {
        self.is_alive(id) && self.view.node(id).is_ok_and(|node| node.base.is_none())
    }

    fn delta(&self, id: NodeId) -> Option<&DirectoryDelta> {
        self.view.node(id).ok()?.directory_delta()
    }

    /// An earlier attempt to commit may have placed objects in new directories
    /// where they no longer belong.
    fn displace(&mut self, changed: &[NodeId]) -> Outcome<()> {
        for &id in changed {
            let staged = self
                .view
                .staged(id)
                .map_err(|errno| failed("stage", b"", errno))?;
            let Some(Staged {
                parent: StagedParent::Node(directory),
                name,
                ..
            }) = staged
            else {
                continue;
            };
            let delta = self.delta(directory);
            let wanted = delta.and_then(|delta| delta.entries.get(&name)?.now);
            if wanted != Some(id) {
                let slot = names::slot(self.view.new_slot());
                let moved = self.view.move_staged(id, StagedParent::Slots, slot);
                moved.map_err(|errno| failed("stage", &self.path(id), errno))?;
            }
        }
        Ok(())
    }

    /// Makes the staged object of a new node, without its attributes.
    fn create(&mut self, id: NodeId) -> Outcome<()> {
        let made = self.make_staged(id);
        let identity = made.map_err(|errno| failed("stage", &self.path(id), errno))?;
        self.register(id, identity);
        Ok(())
    }

    fn register(&mut self, id: NodeId, identity: Identity) {
        let kind = self.view.node(id).map_or(Kind::File, |node| node.kind);
        self.created.insert(id, self.set.created.len());
        self.set.created.push(Created {
            node: id,
            identity,
            kind,
            place: CreatedPlace::Slot(0),
            attributes: AttributesChange::default(),
        });
    }

    fn make_staged(&mut self, id: NodeId) -> Result<Identity, Errno> {
        let own = self.view.node(id)?.own().ok_or(Errno::STALE)?;
        let number = own.attributes.device_number;
        let what = match (&own.body, own.attributes.kind) {
            (OwnBody::File(_), _) => return self.complete_file(id),
            (OwnBody::Symlink(target), _) => NewNode::Symlink(target.clone()),
            (OwnBody::Directory(_), _) => NewNode::Directory,
            (_, Kind::Fifo) => NewNode::Fifo,
            (_, Kind::Socket) => NewNode::Socket,
            (_, Kind::CharacterDevice) => NewNode::CharacterDevice(number),
            (_, Kind::BlockDevice) => NewNode::BlockDevice(number),
            _ => return Err(Errno::INVAL),
        };
        if let Some(identity) = own.staged.as_ref().and_then(|staged| staged.identity) {
            return Ok(identity);
        }
        let stage = self.view.stage()?;
        let name = names::slot(self.view.new_slot());
        self.view.core.disk.make(&stage, &name, &what, 0o700)?;
        let identity = self.view.core.disk.stat_at(&stage, &name)?.identity;
        let staged = Staged {
            parent: StagedParent::Slots,
            name,
            identity: Some(identity),
        };
        self.view.set_staged(id, staged)?;
        Ok(identity)
    }

    /// A regular file that shows nothing of the base.
    fn complete_file(&mut self, id: NodeId) -> Result<Identity, Errno> {
        let file = self.view.staged_file(id)?;
        let length = self.view.attributes(id)?.length;
        let disk = &self.view.core.disk;
        let stat = disk.stat(&file)?;
        if stat.length != length {
            disk.set_length(&file, length)?;
        }
        let staged = self.view.staged(id)?.ok_or(Errno::STALE)?;
        let staged = Staged {
            identity: Some(stat.identity),
            ..staged
        };
        self.view.set_staged(id, staged)?;
        Ok(stat.identity)
    }

    /// Puts new objects into the staged directories of new directories, so
    /// that a whole new tree lands by one rename.
    fn fill_new_directory(&mut self, id: NodeId) -> Outcome<()> {
        if !self.is_new(id) {
            return Ok(());
        }
        let entries = self.entries_now(id);
        for (name, child) in entries {
            let staged = self.view.staged(child).ok().flatten();
            let is_free = staged.is_some_and(|staged| staged.parent == StagedParent::Slots);
            if self.is_new(child) && is_free {
                let moved = self.view.move_staged(child, StagedParent::Node(id), name);
                moved.map_err(|errno| failed("stage", &self.path(child), errno))?;
            }
        }
        Ok(())
    }

    fn entries_now(&self, id: NodeId) -> Vec<(Name, NodeId)> {
        let entries = self.delta(id).into_iter().flat_map(|delta| &delta.entries);
        entries
            .filter_map(|(name, entry)| Some((name.clone(), entry.now?)))
            .collect()
    }

    /// What changes in an object of the base that stays itself.
    fn write_object(&mut self, id: NodeId) -> Outcome<()> {
        let Ok(node) = self.view.node(id) else {
            return Ok(());
        };
        let (Some(base), Some(own)) = (node.base.clone(), node.own()) else {
            return Ok(());
        };
        if own.attributes.links == 0 {
            return Ok(());
        }
        let has_entries = node
            .directory_delta()
            .is_some_and(|delta| !delta.entries.is_empty());
        let is_implied = !node.is_modified();
        if is_implied && !has_entries {
            return Ok(());
        }
        let mut attributes = attributes_change(&own.attributes, own.touched);
        if has_entries {
            attributes.modified = Some(own.attributes.modified);
        }
        let xattrs = own
            .xattrs
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let stamp = own.stamp;
        let path = self.path(id);
        let contents = match self.view.node(id).ok().and_then(|node| node.contents()) {
            Some(_) => Some(self.write_contents(id, &path)?),
            None => None,
        };
        self.set.objects.push(ObjectWrite {
            node: id,
            base,
            stamp,
            path,
            attributes,
            is_implied,
            xattrs,
            contents,
        });
        Ok(())
    }

    fn write_contents(&mut self, id: NodeId, path: &[u8]) -> Outcome<ContentsWrite> {
        let staging = |errno| failed("stage", path, errno);
        let node = self.view.node(id).map_err(staging)?;
        let base = node.base.clone().ok_or_else(|| staging(Errno::STALE))?;
        let (Some(contents), Some(own)) = (node.contents(), node.own()) else {
            return Err(staging(Errno::STALE));
        };
        let (keep, mut pages) = (contents.base_limit, contents.pages.clone());
        let length = own.attributes.length;
        let original = self.view.snapshot_stat(&base).map_err(staging)?;
        let changes_length = length != original.length || keep < original.length;
        if keep == 0 {
            pages = RangeSet::default();
            pages.insert(0, length.div_ceil(PAGE));
        }
        let owned = pages.total() * PAGE;
        let prefers_new = keep == 0 || length <= REPLACE_LENGTH_MAX || owned * 2 >= length;
        let may_replace = self.can_replace(id, &original).map_err(staging)?;
        let file = self.view.staged_file(id).map_err(staging)?;
        let mut replacement = None;
        if prefers_new && may_replace {
            let fill = Fill {
                base: &base,
                at: self.view.at,
                pages: &pages,
                keep,
                length,
            };
            fill.run(&self.view.core, &file).map_err(staging)?;
            let identity = self.view.core.disk.stat(&file).map_err(staging)?.identity;
            replacement = Some(self.set.created.len());
            self.register(id, identity);
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
        })
    }

    /// Whether a new inode can stand for the file without anyone noticing.
    fn can_replace(&self, id: NodeId, original: &atomdir_disk::Stat) -> Result<bool, Errno> {
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
        if privileges.all {
            return Ok(true);
        }
        let names = Snapshot {
            core,
            at: self.view.at,
        }
        .xattrs(base)?;
        let is_plain = |name: &[u8]| name.starts_with(b"user.") || name.starts_with(b"system.");
        let parent = match &base.state().place {
            crate::base::Place::Entry { parent, .. } => parent.clone(),
            _ => return Ok(false),
        };
        let directory = core.directory(&parent)?;
        Ok(names.iter().all(|(name, _)| is_plain(name)) && core.disk.may_access(&directory, 3)?)
    }

    fn write_entries(&mut self, id: NodeId) -> Outcome<()> {
        let Some(delta) = self.delta(id) else {
            return Ok(());
        };
        let base = self.view.node(id).ok().and_then(|node| node.base.clone());
        if delta.removed {
            if let Some(base) = base {
                let entries = delta.entries.iter();
                let names = entries
                    .filter_map(|(name, entry)| Some((name.clone(), entry.before.clone()?)))
                    .collect();
                let path = self.path(id);
                self.set
                    .removed_directories
                    .push(RemovedDirectory { base, names, path });
            }
            return Ok(());
        }
        let directory = match (base, self.created.get(&id)) {
            (Some(base), _) => Object::Base(base),
            (None, Some(index)) => Object::Created(*index),
            (None, None) => return Ok(()),
        };
        let deltas: Vec<_> = delta
            .entries
            .iter()
            .map(|(name, entry)| (name.clone(), entry.before.clone(), entry.now))
            .collect();
        for (name, before, now) in deltas {
            if let (Some(now), Object::Created(_)) = (now, &directory)
                && self.is_placed(now, id, &name)
            {
                continue;
            }
            let after = match now {
                Some(now) => Some(self.object(now)?),
                None => None,
            };
            let path = self.view.path_of_entry(id, &name);
            let directory = directory.clone();
            self.set.entries.push(EntryWrite {
                directory,
                name,
                before,
                after,
                path,
            });
        }
        Ok(())
    }

    fn is_placed(&self, id: NodeId, directory: NodeId, name: &Name) -> bool {
        let staged = self.view.staged(id).ok().flatten();
        let here = StagedParent::Node(directory);
        self.is_new(id)
            && staged.is_some_and(|staged| staged.parent == here && staged.name == *name)
    }

    fn object(&self, id: NodeId) -> Outcome<Object> {
        if let Some(index) = self.created.get(&id) {
            return Ok(Object::Created(*index));
        }
        let base = self.view.node(id).ok().and_then(|node| node.base.clone());
        base.map(Object::Base)
            .ok_or_else(|| failed("stage", &self.path(id), Errno::STALE))
    }

    /// Places and attributes of everything new, children before the times of
    /// the directories they are in.
    fn finish_created(&mut self) -> Outcome<()> {
        let mut depths: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for index in 0..self.set.created.len() {
            let id = self.set.created[index].node;
            let finished = self.finish_one(index, id);
            finished.map_err(|errno| failed("set the attributes of", &self.path(id), errno))?;
            if self.set.created[index].kind == Kind::Directory {
                let depth = self.path(id).iter().filter(|byte| **byte == b'/').count();
                depths.entry(depth).or_default().push(index);
            }
        }
        for index in depths.into_values().rev().flatten() {
            let id = self.set.created[index].node;
            let finished = self.set_directory_times(id);
            finished.map_err(|errno| failed("set the times of", &self.path(id), errno))?;
        }
        Ok(())
    }

    fn finish_one(&mut self, index: usize, id: NodeId) -> Result<(), Errno> {
        let staged = self.view.staged(id)?.ok_or(Errno::STALE)?;
        let created = &mut self.set.created[index];
        created.place = match staged.parent {
            StagedParent::Slots => {
                CreatedPlace::Slot(names::slot_number(&staged.name).ok_or(Errno::STALE)?)
            }
            StagedParent::Node(directory) => {
                let directory = *self.created.get(&directory).ok_or(Errno::STALE)?;
                CreatedPlace::Entry {
                    directory,
                    name: staged.name.clone(),
                }
            }
        };
        let wanted = self.view.attributes(id)?;
        if !matches!(created.kind, Kind::File | Kind::Directory) {
            let all = Touched {
                mode: true,
                owner: true,
                accessed: true,
                modified: true,
            };
            created.attributes = attributes_change(&wanted, all);
            if created.kind == Kind::Symlink {
                created.attributes.mode = None;
            }
        }
        let xattrs = self.view.all_xattrs(id)?;
        let wanted = Attributes {
            mode: wanted.mode,
            owner: wanted.owner,
            times: Times {
                accessed: wanted.accessed,
                modified: wanted.modified,
            },
        };
        let kind = created.kind;
        if kind == Kind::File {
            let file = self.view.staged_file(id)?;
            return dress(&self.view.core, &file, kind, wanted, &xattrs);
        }
        let parent = self.view.staged_parent(staged.parent)?;
        let handle = self
            .view
            .core
            .disk
            .open(&parent, &staged.name, Access::Path)?;
        dress(&self.view.core, &handle, kind, wanted, &xattrs)
    }

    fn set_directory_times(&mut self, id: NodeId) -> Result<(), Errno> {
        let wanted = self.view.attributes(id)?;
        let handle = self.view.staged_parent(StagedParent::Node(id))?;
        let times = Times {
            accessed: wanted.accessed,
            modified: wanted.modified,
        };
        self.view.core.disk.set_times(&handle, times)
    }

    /// Everything the record will refer to must survive a crash before it.
    fn make_durable(&mut self) -> Outcome<()> {
        if !self.view.has_stage() {
            return Ok(());
        }
        let in_place = self.set.objects.iter().filter_map(|object| {
            let contents = object.contents.as_ref()?;
            contents.replacement.is_none().then_some(object.node)
        });
        let created = self.set.created.iter();
        let files: Vec<NodeId> = created
            .clone()
            .filter(|created| created.kind == Kind::File)
            .map(|created| created.node)
            .chain(in_place)
            .collect();
        let directories: Vec<NodeId> = created
            .filter(|created| created.kind == Kind::Directory)
            .map(|created| created.node)
            .collect();
        if files.is_empty() && self.set.created.is_empty() {
            return Ok(());
        }
        let synced = if files.len() + directories.len() > SYNC_EACH_MAX {
            self.view
                .stage()
                .and_then(|stage| self.view.core.disk.sync_file_system(&stage))
        } else {
            self.sync_each(&files, &directories)
        };
        synced.map_err(|errno| failed("flush the staged files of", b"", errno))
    }

    fn sync_each(&mut self, files: &[NodeId], directories: &[NodeId]) -> Result<(), Errno> {
        for &id in files {
            let file = self.view.staged_file(id)?;
            self.view.core.disk.sync(&file)?;
        }
        for &id in directories {
            let directory = self.view.staged_parent(StagedParent::Node(id))?;
            self.view.core.disk.sync_directory(&directory)?;
        }
        let stage = self.view.stage()?;
        self.view.core.disk.sync_directory(&stage)?;
        self.view
            .core
            .disk
            .sync_directory(&self.view.core.control.stage)
    }
}

fn failed(step: &'static str, path: &[u8], errno: Errno) -> CommitError {
    CommitError::io(step, path, errno)
}

fn attributes_change(
    attributes: &crate::view::NodeAttributes,
    touched: Touched,
) -> AttributesChange {
    AttributesChange {
        mode: touched.mode.then_some(attributes.mode),
        user: touched.owner.then_some(attributes.owner.user),
        group: touched.owner.then_some(attributes.owner.group),
        accessed: touched.accessed.then_some(attributes.accessed),
        modified: touched.modified.then_some(attributes.modified),
    }
}

/// Gives a staged object its owner, extended attributes, mode and times, in
/// the order in which none undoes another.
pub(crate) fn dress<D: Disk>(
    core: &Core<D>,
    handle: &D::Handle,
    kind: Kind,
    wanted: Attributes,
    xattrs: &Xattrs,
) -> Result<(), Errno> {
    let disk = &core.disk;
    let present = disk.stat(handle)?.attributes;
    let Owner { user, group } = wanted.owner;
    if (present.owner.user, present.owner.group) != (user, group) {
        disk.set_owner(handle, wanted.owner)?;
    }
    for (name, value) in xattrs {
        disk.set_xattr(handle, name, value)?;
    }
    if kind != Kind::Symlink {
        disk.set_mode(handle, wanted.mode)?;
    }
    disk.set_times(handle, wanted.times)
}

/// Completes a staged file with what the base has where the transaction has
/// no pages of its own, holes staying holes.
pub(crate) struct Fill<'a> {
    pub base: &'a Arc<crate::base::Base>,
    pub at: Sequence,
    pub pages: &'a RangeSet,
    pub keep: u64,
    pub length: u64,
}

const COPY_CHUNK: usize = 1 << 20;

impl Fill<'_> {
    pub fn run<D: Disk>(&self, core: &Core<D>, file: &D::Handle) -> Result<(), Errno> {
        core.disk.set_length(file, self.length)?;
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
        let snapshot = Snapshot { core, at: self.at };
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
