//! Turns a view into a write set: completes its new objects in the staging
//! directory and makes them durable. Nothing outside that directory changes.

mod contents;
mod created;

use std::collections::{BTreeSet, HashMap, HashSet};

use atomdir_disk::{Disk, Errno, Identity, Kind, Name, Timestamp};
use atomdir_format::record::AttributesChange;
use atomdir_types::path::AnyPath;
use atomdir_types::{ChangeLine, TreePath};

pub(crate) use contents::Fill;

use crate::base::acl::AccessControlList;
use crate::commit::carry;
use crate::commit::equal::Equal;
use crate::error::{CommitError, Poison, StoreError};
use crate::ids::NodeId;
use crate::options::SYNC_EACH_MAX;
use crate::progress::Meter;
use crate::seen::EqualCreation;
use crate::view::node::{DirectoryDelta, EntryDelta, StagedParent, Touched};
use crate::view::part::Part;
use crate::view::paths::Paths;
use crate::view::{LINKS_MAX, NodeAttributes, View};
use crate::write_set::{EntryWrite, Object, ObjectWrite, RemovedDirectory, Staging, WriteSet};

type Outcome<T> = Result<T, CommitError>;

/// A write set whose new objects are complete in the staging directory. Everything that
/// had to be flushed is durable.
pub(crate) struct Prepared {
    pub set: WriteSet,
    pub staging: Staging,
}

/// Which changes are prepared, and how.
#[derive(Clone, Copy, Default)]
pub(crate) struct Chosen<'a> {
    /// Only these; `None`: all.
    pub part: Option<&'a Part>,
    /// Old files, staged whole, that are prepared as new ones: their names have lost them.
    pub anew: Option<&'a HashSet<NodeId>>,
    /// New objects that others have made, too, and that are not made again.
    pub equal: Option<&'a Equal>,
}

/// Prepares the changes of the view.
pub(crate) fn prepare<D: Disk>(
    view: &mut View<D>,
    Chosen { part, anew, equal }: Chosen<'_>,
    meter: &mut Meter<'_>,
) -> Outcome<Prepared> {
    let mut preparation = Preparation {
        view,
        part,
        anew,
        equal,
        set: WriteSet::default(),
        created: HashMap::new(),
        staged: Vec::new(),
        put_back: BTreeSet::new(),
        paths: Paths::default(),
        meter,
    };
    let staging = preparation.run()?;
    let set = preparation.set;
    Ok(Prepared { set, staging })
}

struct Preparation<'a, 'r, D: Disk> {
    view: &'a mut View<D>,
    part: Option<&'a Part>,
    anew: Option<&'a HashSet<NodeId>>,
    equal: Option<&'a Equal>,
    meter: &'a mut Meter<'r>,
    set: WriteSet,
    /// New nodes and nodes whose file is replaced, as indices of `staged`.
    created: HashMap<NodeId, usize>,
    /// The objects that become `set.created`, in the same order.
    staged: Vec<StagedObject>,
    /// Nodes whose changes cancel out. Nothing is written to them.
    put_back: BTreeSet<NodeId>,
    /// Nothing gets another name while the changes are prepared.
    paths: Paths,
}

/// A new object in the staging directory that has no final place or attributes yet.
#[derive(Clone, Copy)]
struct StagedObject {
    node: NodeId,
    identity: Identity,
    kind: Kind,
    /// The time of a directory that gets entries only when the commit is applied.
    modified: Option<Timestamp>,
}

impl<D: Disk> Preparation<'_, '_, D> {
    fn run(&mut self) -> Outcome<Staging> {
        let changed: Vec<NodeId> = self.view.changed_nodes().collect();
        let listing = |errno| failed("list changes of", b"", errno);
        self.put_back = self.view.put_back().map_err(listing)?;
        for &id in &self.put_back {
            // The transaction depends on the object being as before, and on nothing
            // else of it.
            match self.view.note_attributes(id) {
                // An outside writer has removed it.
                Ok(()) | Err(Errno::STALE) => {}
                Err(errno) => return Err(listing(errno)),
            }
        }
        self.set.summary = self
            .view
            .changes_but(&self.put_back, self.part)
            .map_err(listing)?;
        if let Some(equal) = self.equal.filter(|equal| !equal.is_empty()) {
            let creations = equal.creations.values();
            let paths: HashSet<&[u8]> = creations.map(|one| &one.path[..]).collect();
            let is_made = |line: &ChangeLine<TreePath>| !paths.contains(&line.path.to_bytes()[..]);
            self.set.summary.retain(is_made);
        }
        self.meter.expect(changed.len());
        self.view.record_before_moves().map_err(listing)?;
        self.displace(&changed)?;
        for &id in &changed {
            self.refuse_too_many_names(id)?;
            if self.is_new(id) && self.has_node(id) {
                self.create(id)?;
            }
            self.meter.step();
        }
        self.view.record_before_moves().map_err(listing)?;
        if changed.iter().any(|id| self.is_new_directory(*id)) {
            self.view.flush_new_directories().map_err(unflushed)?;
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
        self.set.dying = self.view.nodes.dying.clone();
        if let Some(part) = self.part {
            self.set.dying.retain(|serial, _| part.has_base(*serial));
        }
        self.set.restored = self.view.restored.clone();
        self.set.add_successions(&self.view.successions);
        self.make_durable()
    }

    /// Overlayfs counts a file's names itself and sets no limit, so the limit is
    /// checked here.
    fn refuse_too_many_names(&self, id: NodeId) -> Outcome<()> {
        let own = self.view.node(id).ok().and_then(|node| node.own());
        let file = own.filter(|own| own.attributes.kind != Kind::Directory);
        if file.is_some_and(|own| own.attributes.links > LINKS_MAX) {
            return Err(failed("stage", &self.path(id), Errno::MLINK));
        }
        Ok(())
    }

    /// For messages.
    fn path(&self, id: NodeId) -> Vec<u8> {
        self.view.path(id)
    }

    fn tree_path(&mut self, id: NodeId) -> TreePath {
        self.paths.node(self.view, id)
    }

    fn is_alive(&self, id: NodeId) -> bool {
        let own = self.view.node(id).ok().and_then(|node| node.own());
        own.is_some_and(|own| own.attributes.links > 0)
    }

    fn is_new(&self, id: NodeId) -> bool {
        self.is_alive(id)
            && self.equal_of(id).is_none()
            && self.view.node(id).is_ok_and(|node| node.base.is_none())
    }

    fn is_new_directory(&self, id: NodeId) -> bool {
        self.is_new(id) && self.delta(id).is_some()
    }

    fn delta(&self, id: NodeId) -> Option<&DirectoryDelta> {
        self.view.node(id).ok()?.directory_delta()
    }

    /// Whether the object's own changes are to be committed.
    fn has_node(&self, id: NodeId) -> bool {
        self.part.is_none_or(|part| part.has_node(id))
    }

    fn has_entry(&self, directory: NodeId, name: &Name) -> bool {
        self.part.is_none_or(|part| part.has_entry(directory, name))
    }

    /// What others have made equal to this new object.
    fn equal_of(&self, id: NodeId) -> Option<&'_ EqualCreation> {
        self.equal?.creations.get(&id)
    }

    /// Whether an old file becomes a new one.
    fn is_anew(&self, id: NodeId) -> bool {
        self.anew.is_some_and(|anew| anew.contains(&id))
    }

    /// Whether entries of a directory are to be committed, or have come and gone.
    fn has_entries(&self, id: NodeId) -> bool {
        let Some(delta) = self.delta(id) else {
            return false;
        };
        let mut names = delta.entries.values();
        let is_equal =
            |entry: &EntryDelta| entry.now.is_some_and(|now| self.equal_of(now).is_some());
        if !delta.entries.is_empty() && names.all(is_equal) {
            return false;
        }
        match self.part {
            None => delta.is_touched,
            Some(part) => delta.entries.keys().any(|name| part.has_entry(id, name)),
        }
    }

    fn entries_now(&self, id: NodeId) -> Vec<(Name, NodeId)> {
        let entries = self.delta(id).into_iter().flat_map(|delta| &delta.entries);
        entries
            .filter(|(name, _)| self.has_entry(id, name))
            .filter_map(|(name, entry)| Some((name.clone(), entry.now?)))
            .collect()
    }

    /// Notes what changes in an object of the base that remains.
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
        // True also if entries have come and gone. Their names are not written.
        let has_entries = self.has_entries(id);
        let is_put_back = self.put_back.contains(&id) || !self.has_node(id);
        let is_implied = is_put_back || !node.is_modified();
        if is_implied && !has_entries {
            return Ok(());
        }
        let mut attributes = match is_put_back {
            true => AttributesChange::default(),
            false => attributes_change(&own.attributes, own.touched),
        };
        let mode = match self.has_node(id) {
            true => own.attributes.mode,
            false => match self.view.snapshot_stat(&base) {
                // Validation finds out that outside writers have removed it.
                Err(Errno::STALE) => own.attributes.mode,
                stat => {
                    let looking = |errno| failed("look at", &self.path(id), errno);
                    stat.map_err(looking)?.attributes.mode
                }
            },
        };
        let needed = if node.kind == Kind::Directory {
            0o300
        } else {
            0o600
        };
        let is_closed = mode & needed != needed && node.kind != Kind::Symlink;
        // Apply may have to open the object up. After a crash only the record has its
        // mode.
        let has_all_rights =
            self.view.core.options.privileges.all && self.view.restricted_to.is_none();
        let notes_mode = is_closed && !has_all_rights;
        if notes_mode {
            attributes.mode = Some(mode);
        }
        let is_implied = is_implied && !notes_mode;
        if has_entries {
            attributes.modified = Some(own.attributes.modified);
        }
        let gives_rights = attributes.user.is_some()
            || attributes.group.is_some()
            || own.xattrs.contains_key(AccessControlList::ATTRIBUTE);
        if gives_rights && !is_put_back && node.kind != Kind::Symlink {
            // Apply takes rights away first: see `apply::updates`. After a crash only the record has
            // the mode.
            attributes.mode = Some(own.attributes.mode);
        }
        let xattrs = match is_put_back {
            true => Vec::new(),
            false => own.xattrs.clone().into_iter().collect(),
        };
        let (stamp, reported) = (own.stamp, node.reported);
        let home = match node.kind {
            Kind::File => self.view.base_place(id),
            _ => None,
        };
        let path = self.tree_path(id);
        let contents = match self.view.node(id).ok().and_then(|node| node.contents()) {
            Some(_) if !is_put_back => Some(self.write_contents(id, &path)?),
            _ => None,
        };
        self.set.objects.push(ObjectWrite {
            node: id,
            base,
            stamp,
            reported,
            path,
            home,
            attributes,
            is_implied,
            xattrs,
            contents,
        });
        Ok(())
    }

    fn write_entries(&mut self, id: NodeId) -> Outcome<()> {
        let Some(delta) = self.delta(id) else {
            return Ok(());
        };
        let node = self.view.node(id).ok();
        let base = node.and_then(|node| node.base.clone());
        let reported = node.and_then(|node| node.reported);
        if delta.removed {
            if let Some(base) = base.filter(|_| self.has_node(id)) {
                let entries = delta.entries.iter();
                let names = entries
                    .filter_map(|(name, entry)| Some((name.clone(), entry.before.clone()?)))
                    .collect();
                let path = self.paths.node(self.view, id);
                self.set.removed_directories.push(RemovedDirectory {
                    base,
                    names,
                    path,
                    reported,
                });
            }
            return Ok(());
        }
        let theirs = self.equal_of(id).map(|theirs| theirs.object.clone());
        let directory = match (base.or(theirs), self.created.get(&id)) {
            (Some(base), _) => Object::Base(base),
            (None, Some(index)) => Object::Created(*index),
            (None, None) => return Ok(()),
        };
        let deltas: Vec<_> = delta
            .entries
            .iter()
            .filter(|(name, _)| self.has_entry(id, name))
            .map(|(name, entry)| (name.clone(), entry.before.clone(), entry.now))
            .filter(|(.., now)| now.is_none_or(|now| self.equal_of(now).is_none()))
            .collect();
        for (name, before, now) in deltas {
            if let (Some(now), Object::Created(_)) = (now, &directory)
                && self.is_placed(now, id, &name)
            {
                continue;
            }
            if let Object::Created(index) = directory {
                // The entry comes only when the commit is applied.
                self.staged[index].modified = self.modified(id);
            }
            let after = match now {
                Some(now) => Some(self.object(now)?),
                None => None,
            };
            let path = self.paths.entry(self.view, id, &name);
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

    fn modified(&self, id: NodeId) -> Option<Timestamp> {
        let own = self.view.node(id).ok()?.own()?;
        Some(own.attributes.modified)
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

    /// Makes the objects durable to which the record will refer, except those that the record
    /// carries. They must be durable before the record is.
    fn make_durable(&mut self) -> Outcome<Staging> {
        if !self.view.has_stage() {
            return Ok(Staging::Flushed);
        }
        let in_place = self.set.objects.iter().filter_map(|object| {
            let contents = object.contents.as_ref()?;
            contents.replacement.is_none().then_some(object.node)
        });
        let created = self.set.created.iter();
        let mut files: Vec<NodeId> = created
            .clone()
            .filter(|created| created.kind == Kind::File)
            .map(|created| created.node)
            .collect();
        let new_files = files.len();
        files.extend(in_place);
        let directories: Vec<NodeId> = created
            .filter(|created| created.kind == Kind::Directory)
            .map(|created| created.node)
            .collect();
        if files.is_empty() && self.set.created.is_empty() {
            return Ok(Staging::Flushed);
        }
        if carry::is_small(self.view, &self.set).map_err(unopened)? {
            return Ok(Staging::Carried);
        }
        if files.len() + directories.len() <= SYNC_EACH_MAX {
            if carry::has_few_pages(&self.view.core, &self.set) {
                // The flush of the log that follows makes them durable, too.
                carry::choose_pages(&mut self.set);
                files.truncate(new_files);
            }
            self.sync_each(&files, &directories)?;
        } else {
            let stage = self.view.stage().map_err(unopened)?;
            let synced = self.view.core.disk.sync_file_system(&stage);
            synced.map_err(unflushed)?;
        }
        Ok(Staging::Flushed)
    }

    fn sync_each(&mut self, files: &[NodeId], directories: &[NodeId]) -> Outcome<()> {
        let core = self.view.core.clone();
        for &id in files {
            let file = self.view.staged_file(id).map_err(unopened)?;
            core.disk.sync(&file).map_err(unflushed)?;
        }
        for &id in directories {
            let directory = self.view.staged_parent(StagedParent::Node(id));
            let directory = directory.map_err(unopened)?;
            core.disk.sync_directory(&directory).map_err(unflushed)?;
        }
        let stage = self.view.stage().map_err(unopened)?;
        core.disk.sync_directory(&stage).map_err(unflushed)?;
        let synced = core.disk.sync_directory(&core.control.stage);
        synced.map_err(unflushed)
    }
}

fn unopened(errno: Errno) -> CommitError {
    failed("open the staged files of", b"", errno)
}

/// The error of a failed flush. The staged files may be lost, and the next flush would
/// not report it, so the store must take no more commits.
pub(crate) fn unflushed(errno: Errno) -> CommitError {
    let what = "the staged files";
    let reason = Poison::NotFlushed { what, errno };
    CommitError::Store(StoreError::Poisoned { reason })
}

fn failed(step: &'static str, path: &(impl AnyPath + ?Sized), errno: Errno) -> CommitError {
    CommitError::io(step, path, errno)
}

fn attributes_change(attributes: &NodeAttributes, touched: Touched) -> AttributesChange {
    AttributesChange {
        mode: touched.mode.then_some(attributes.mode),
        user: touched.owner.then_some(attributes.owner.user),
        group: touched.owner.then_some(attributes.owner.group),
        accessed: touched.accessed.then_some(attributes.accessed),
        modified: touched.modified.then_some(attributes.modified),
    }
}
