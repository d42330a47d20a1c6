//! What others have made equal to what the transaction has, or to what it found: no conflict.
//!
//! Two kinds. Others have created the same object at a name: of the same kind, with the same contents,
//! mode, owner and extended attributes. The commit then takes theirs for its own: it does not create
//! the object, and its record does not contain the name, so an undo of the commit leaves it alone. If
//! it is a directory, what the transaction has put into its own goes into theirs. And others have
//! written to a file that the transaction changes, but have left it with the contents and attributes
//! that the transaction found.
//!
//! A commit looks for them only when it is refused, so other commits pay nothing.
//!
//! Invariants
//! 1. Objects are compared before the commit lock is taken, and while the view does not change. Under
//!    the lock, and once more right before the commit is applied, only their stamps are looked at. If
//!    one has changed since it was compared, that is a conflict.
//! 2. Nothing is given up but what the base already has.
//! 3. What outside writers have created is flushed before the record that relies on it.
//! 4. A directory counts as equal only if everything in it that both have made is.

use std::collections::HashMap;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, Stat};

use crate::base::core::Core;
use crate::base::snapshot::{Found, Snapshot};
use crate::base::{Base, Stamp, Xattrs};
use crate::commit::prepare::unflushed;
use crate::commit::resolve::changed_at;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::{NodeId, Sequence};
use crate::options::SYNC_EACH_MAX;
use crate::rules::Rule;
use crate::seen::{EqualCreation, Looks};
use crate::view::View;
use crate::view::node::EntryDelta;
use crate::view::old_texts::OldFile;

const CHUNK: usize = 256 << 10;

/// What was found equal. It is valid as long as the view does not change.
#[derive(Clone, Default)]
pub(crate) struct Equal {
    /// Old files as they looked when they were compared, by serial.
    files: HashMap<u64, Stamp>,
    /// What others have created, by the view's new nodes.
    pub creations: HashMap<NodeId, EqualCreation>,
    /// Outside writers may have made some of these, so nobody may have flushed them.
    is_of_outside: bool,
}

impl Equal {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.creations.is_empty()
    }

    /// Whether the file still looks as it did when it was found to be as the transaction found it.
    pub fn has_file(&self, base: &Base, now: Stamp) -> bool {
        self.files.get(&base.serial) == Some(&now) && Rule::TimesAlone.holds()
    }
}

/// Whether it is worth looking for what is equal.
pub(crate) fn may_be_equal(conflicts: &[Conflict]) -> bool {
    conflicts.iter().any(is_candidate)
}

fn is_candidate(conflict: &Conflict) -> bool {
    match conflict.what {
        ConflictKind::Entry => {
            matches!(conflict.by, ChangedBy::Commit { .. } | ChangedBy::Outside)
        }
        ConflictKind::Contents => conflict.by == ChangedBy::Outside,
        _ => false,
    }
}

/// Looks for what is equal in these conflicts. `is_part`: a part is to land. Its objects then stay in
/// the view, so what is in an equal directory cannot go elsewhere.
pub(crate) fn find<D: Disk>(
    view: &mut View<D>,
    conflicts: &[Conflict],
    is_part: bool,
) -> Result<Equal, CommitError> {
    let candidates = conflicts.iter().filter(|one| is_candidate(one));
    let changed = changed_at(view, candidates.map(|one| &*one.path));
    let mut equal = Equal::default();
    for conflict in conflicts.iter().filter(|one| is_candidate(one)) {
        let path = &conflict.path;
        let Some(&id) = changed.get(path) else {
            continue;
        };
        let compared = match conflict.what {
            ConflictKind::Contents => compare_file(view, id, &mut equal),
            _ if Rule::EqualCreations.holds() => {
                let mut comparison = Comparison {
                    view,
                    is_part,
                    found: Vec::new(),
                };
                let is_equal = comparison.compare_entry(id);
                let found = comparison.found;
                is_equal.map(|is_equal| {
                    if is_equal {
                        equal.is_of_outside |= conflict.by == ChangedBy::Outside || found.len() > 1;
                        equal.creations.extend(found);
                    }
                })
            }
            _ => Ok(()),
        };
        match compared {
            // Outside writers have just removed it.
            Ok(()) | Err(Errno::STALE | Errno::NOENT | Errno::NOTDIR) => {}
            Err(errno) => return Err(CommitError::io("compare", path, errno)),
        }
    }
    if equal.is_of_outside {
        flush(&view.core, &equal).map_err(unflushed)?;
    }
    Ok(equal)
}

/// Flushes what others have created, since the commit must be as durable as if it had.
fn flush<D: Disk>(core: &Core<D>, equal: &Equal) -> Result<(), Errno> {
    let mut is_flushed = equal.creations.len() <= SYNC_EACH_MAX;
    for creation in equal.creations.values() {
        is_flushed = is_flushed && flush_one(core, creation)?;
    }
    match is_flushed {
        true => Ok(()),
        false => core.disk.sync_file_system(&core.root),
    }
}

/// Returns false if it cannot be opened.
fn flush_one<D: Disk>(core: &Core<D>, creation: &EqualCreation) -> Result<bool, Errno> {
    let object = &creation.object;
    let Ok(above) = core.directory(&creation.directory) else {
        // The check under the lock reports it.
        return Ok(true);
    };
    match object.kind {
        Kind::File => match core.open_now(object, Access::Read) {
            Ok(file) => core.disk.sync(&file)?,
            Err(errno) => return Ok(errno == Errno::STALE),
        },
        Kind::Directory => {
            if let Ok(directory) = core.directory(object) {
                core.disk.sync_directory(&directory)?;
            }
        }
        _ => {}
    }
    core.disk.sync_directory(&above)?;
    Ok(true)
}

/// Compares a changed file with what the transaction found.
///
/// If the transaction has set the same contents again, it does not count as having changed them:
/// overlayfs may have copied the file for its attributes alone.
fn compare_file<D: Disk>(view: &mut View<D>, id: NodeId, equal: &mut Equal) -> Result<(), Errno> {
    let node = view.node(id)?;
    let (Some(base), true) = (&node.base.clone(), node.contents().is_some()) else {
        return Ok(());
    };
    let Some(old) = view.old_texts.get(base) else {
        return Ok(());
    };
    let core = &*view.core.clone();
    let plan = view.read_plan(id, 0, usize::MAX)?;
    if plan.length == old.contents.len() {
        let mut mine = vec![0; plan.length];
        plan.read(core, &mut mine)?;
        if mine == *old.contents {
            return Ok(());
        }
    }
    let now = core.stat_now(base)?;
    if is_as_found(core, base, &old, &now)? && Stamp::of(&core.stat_now(base)?) == Stamp::of(&now) {
        equal.files.insert(base.serial, Stamp::of(&now));
    }
    Ok(())
}

fn is_as_found<D: Disk>(
    core: &Core<D>,
    base: &Arc<Base>,
    old: &OldFile,
    now: &Stat,
) -> Result<bool, Errno> {
    let newest = Snapshot::new(core, Sequence::AFTER_ALL);
    let is_alike = now.length == old.stat.length
        && now.links == old.stat.links
        && now.attributes.mode == old.stat.attributes.mode
        && now.attributes.owner == old.stat.attributes.owner;
    let Some(xattrs) = old.xattrs.clone().filter(|_| is_alike) else {
        return Ok(false);
    };
    if sorted(xattrs) != sorted(newest.xattrs(base)?) {
        return Ok(false);
    }
    let mut contents = vec![0; old.contents.len()];
    newest.read(base, 0, &mut contents)?;
    Ok(contents == *old.contents)
}

fn sorted(mut xattrs: Xattrs) -> Xattrs {
    xattrs.sort();
    xattrs
}

struct Comparison<'a, D: Disk> {
    view: &'a mut View<D>,
    is_part: bool,
    found: Vec<(NodeId, EqualCreation)>,
}

impl<D: Disk> Comparison<'_, D> {
    /// Compares a new object whose directory is in the base.
    fn compare_entry(&mut self, id: NodeId) -> Result<bool, Errno> {
        let node = self.view.node(id)?;
        let above = self.view.node(node.parent)?;
        let (Some(directory), Some(name)) = (above.base.clone(), node.name.clone()) else {
            return Ok(false);
        };
        let entry = above
            .directory_delta()
            .and_then(|delta| delta.entries.get(&name));
        let is_created = entry.is_some_and(|entry| entry.before.is_none() && entry.now == Some(id));
        if !is_created {
            return Ok(false);
        }
        self.compare_in(&directory, name, id)
    }

    /// Compares a new object with what the directory of the base has at the name.
    fn compare_in(&mut self, directory: &Arc<Base>, name: Name, id: NodeId) -> Result<bool, Errno> {
        let core = self.view.core.clone();
        let newest = Snapshot::new(&core, Sequence::AFTER_ALL);
        let Some(Found { base, stat }) = newest.lookup(directory, &name)? else {
            return Ok(false);
        };
        let looks = Looks::of(&stat);
        if !self.is_same(id, &base, &stat)? {
            return Ok(false);
        }
        let creation = EqualCreation {
            directory: directory.clone(),
            name,
            path: self.view.path(id),
            object: base,
            looks,
        };
        let is_unchanged = creation.is_unchanged(&core)?;
        self.found.push((id, creation));
        Ok(is_unchanged)
    }

    fn is_same(&mut self, id: NodeId, base: &Arc<Base>, stat: &Stat) -> Result<bool, Errno> {
        let node = self.view.node(id)?;
        let own = node.own().ok_or(Errno::STALE)?.attributes;
        let is_directory = stat.kind == Kind::Directory;
        let is_alike = node.base.is_none()
            && !self.view.made_of_old.contains(&id)
            && node.kind == stat.kind
            && !base.is_mount_point()
            && own.mode == stat.attributes.mode
            && own.owner == stat.attributes.owner
            && own.device_number == stat.device_number
            && (is_directory || (own.links, stat.links) == (1, 1))
            && (stat.kind != Kind::File || own.length == stat.length);
        if !is_alike {
            return Ok(false);
        }
        let core = self.view.core.clone();
        let newest = Snapshot::new(&core, Sequence::AFTER_ALL);
        if sorted(self.view.all_xattrs(id)?) != sorted(newest.xattrs(base)?) {
            return Ok(false);
        }
        match stat.kind {
            Kind::File => self.has_contents_of(id, base, stat.length),
            Kind::Symlink => Ok(self.view.read_link(id)? == newest.read_link(base)?),
            Kind::Directory => self.compare_children(id, base),
            _ => Ok(true),
        }
    }

    fn has_contents_of(
        &mut self,
        id: NodeId,
        base: &Arc<Base>,
        length: u64,
    ) -> Result<bool, Errno> {
        let core = self.view.core.clone();
        let newest = Snapshot::new(&core, Sequence::AFTER_ALL);
        let mut at = 0;
        while at < length {
            let count = CHUNK.min((length - at) as usize);
            let (mut theirs, mut mine) = (vec![0; count], vec![0; count]);
            newest.read(base, at, &mut theirs)?;
            let plan = self.view.read_plan(id, at, count)?;
            plan.read(&core, &mut mine)?;
            if mine != theirs {
                return Ok(false);
            }
            at += count as u64;
        }
        Ok(true)
    }

    /// Whether everything that both have put into a new directory is equal.
    fn compare_children(&mut self, id: NodeId, base: &Arc<Base>) -> Result<bool, Errno> {
        let delta = self.view.node(id)?.directory_delta();
        let entries = delta.into_iter().flat_map(|delta| &delta.entries);
        let named = |(name, entry): (&Name, &EntryDelta)| Some((name.clone(), entry.now?));
        let children: Vec<(Name, NodeId)> = entries.filter_map(named).collect();
        if self.is_part && !children.is_empty() {
            return Ok(false);
        }
        let core = self.view.core.clone();
        for (name, child) in children {
            let newest = Snapshot::new(&core, Sequence::AFTER_ALL);
            let is_taken = newest.lookup(base, &name)?.is_some();
            if is_taken && !self.compare_in(base, name, child)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
