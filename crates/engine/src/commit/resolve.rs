//! Lists conflicts, and commits with a side chosen in each.
//!
//! Invariants
//! 1. A commit overwrites a change of others only if its number was named, and only if the
//!    base is still as it was when the conflict was listed: the same commit or outside writer,
//!    and the same identity, length and times. Whatever else is in conflict by then refuses
//!    the commit.
//! 2. Taking sides changes the write set, never the view. So a commit that is refused loses
//!    nothing, not even the changes for which their side was to be taken.
//! 3. Contents that are taken are written whole, so that no file mixes pages of both sides.
//!    Where others have replaced or removed the file, these become a new file at its name: it
//!    replaces what was listed there, and nothing else. The write set then has an entry for the
//!    name, and every check of an entry applies, those of the user's permissions among them.
//! 4. If the user's permission was revoked, that conflict stays: no side can be taken in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Name};
use atomdir_types::path::AnyPath;
use atomdir_types::{ChangeLine, TreePath};

use crate::base::core::Core;
use crate::base::snapshot::Snapshot;
use crate::base::{Base, Stamp};
use crate::commit::at_its_expense;
use crate::commit::equal::{self, Equal};
use crate::commit::landing::no_part;
use crate::commit::prepare::{Chosen, prepare};
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::{NodeId, Sequence};
use crate::progress::Meter;
use crate::rules::Rule;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::transaction::listed::{Listed, PathState, Sides};
use crate::view::View;
use crate::view::part::Part;
use crate::write_set::{EntryWrite, Object, ObjectWrite, WriteSet};

const LOSES_THEIRS: &str = "it would need to remove what others have put there, or to bring back \
                            what they have moved or removed";
const NO_CONTENTS: &str = "the transaction has only changed its attributes, or it is no file, and \
                           what others have removed is not brought back";
const OF_ANOTHER: &str = "it belonged to another user, and the file would have to be made again";
const CONTENTS_GONE: &str = "the transaction has changed a part of it only, and the rest went with \
                             the file that others have removed";

const GOES_WITH_THEIRS: &str = "it belongs to another change for which their side is to be taken";

/// The sides that a commit takes.
#[derive(Default)]
pub(crate) struct Taken {
    /// Everything but the changes for which their side is taken; `None`: everything.
    pub part: Option<Part>,
    /// The changes that are not committed.
    pub dropped: Vec<ChangeLine<TreePath>>,
    pub mine: Vec<Listed>,
    /// The files that become new ones, because others have replaced or removed them.
    pub anew: HashSet<NodeId>,
}

/// The conflicts that do not count, under the commit lock.
#[derive(Default)]
pub(crate) struct Accepted {
    conflicts: Vec<(Vec<u8>, ConflictKind, Option<Sequence>)>,
    /// The paths of entries whose present objects are replaced.
    entries: HashSet<Vec<u8>>,
    /// What others have changed is equal to what the transaction has.
    pub equal: Equal,
}

impl Accepted {
    pub fn of(equal: Equal) -> Accepted {
        Accepted {
            equal,
            ..Accepted::default()
        }
    }

    pub fn has_entry(&self, path: &(impl AnyPath + ?Sized)) -> bool {
        !self.entries.is_empty() && self.entries.contains(&*path.bytes())
    }

    pub fn takes(&self, rule: Rule, path: &[u8], what: ConflictKind, by: Option<Sequence>) -> bool {
        // Conflicts say `.` for the root.
        let path = if path.is_empty() { b"." } else { path };
        let mut accepted = self.conflicts.iter().filter(|one| one.0 == path);
        let is_accepted = accepted.any(|one| {
            // A choice for the contents also applies to a doubt about the contents, and the
            // reverse.
            let is_doubt = match (one.1, what) {
                (ConflictKind::Contents, ConflictKind::UnknownParts) => true,
                (ConflictKind::UnknownParts, ConflictKind::Contents) => by.is_some(),
                _ => false,
            };
            is_doubt || (one.1 == what && one.2 == by)
        });
        match rule {
            Rule::AttributesChanged
            | Rule::PagesChanged
            | Rule::FileChangedOutside
            | Rule::DirectoryChangedOutside
            | Rule::DyingDirectoryChanged => is_accepted,
            // The object that an entry replaces dies as it was listed.
            Rule::DyingFileChanged | Rule::DyingFileChangedOutside => {
                is_accepted || self.has_entry(path)
            }
            _ => false,
        }
    }
}

/// Finds what taking these sides means for the view.
pub(crate) fn take_sides<D: Disk>(
    view: &mut View<D>,
    listed: &[Listed],
    sides: &Sides,
) -> Result<Taken, CommitError> {
    let find = |number: &u64| {
        let place = usize::try_from(*number).ok().and_then(|n| n.checked_sub(1));
        let found = place.and_then(|place| listed.get(place));
        found.ok_or(CommitError::NotListed { number: *number })
    };
    let mut taken = Taken::default();
    let taken_as_mine = sides.mine.iter().filter_map(|number| find(number).ok());
    let changed = changed_at(view, taken_as_mine.map(|one| &*one.conflict.path));
    for number in &sides.mine {
        let one = find(number)?;
        let path = &one.conflict.path;
        if sides.theirs.contains(number) {
            return Err(not_taken(path, "their side is to be taken as well"));
        }
        if one.conflict.what.is_read() {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(CommitError::ReadSince { path });
        }
        if !is_takeable(&one.conflict) {
            return Err(not_taken(path, LOSES_THEIRS));
        }
        match one.conflict.what {
            ConflictKind::Contents | ConflictKind::UnknownParts => {
                if let Some(node) = changed.get(path) {
                    looked_up(view.stage_whole(*node), path)?;
                }
            }
            ConflictKind::Replaced | ConflictKind::Removed => {
                if let Some(node) = changed.get(path) {
                    taken.anew.extend(take_anew(view, *node, path)?);
                }
            }
            _ => {}
        }
        taken.mine.push(one.clone());
    }
    let mut theirs = Vec::new();
    for number in &sides.theirs {
        theirs.push(nearest_changed(view, find(number)?.conflict.path.clone()));
    }
    if !theirs.is_empty() {
        let (left, dropped) = view.part_without(&theirs).map_err(no_part)?;
        taken.dropped = looked_up(view.changes_in(&dropped), b"")?;
        taken.part = Some(left);
        let is_dropped = |mine: &&Listed| {
            let path = &mine.conflict.path;
            let mut dropped = taken.dropped.iter();
            dropped.any(|line| {
                line.path == **path || line.from.as_ref().is_some_and(|from| *from == **path)
            })
        };
        if let Some(mine) = taken.mine.iter().find(is_dropped) {
            return Err(not_taken(&mine.conflict.path, GOES_WITH_THEIRS));
        }
    }
    Ok(taken)
}

/// The changed objects at these paths of the view. Outside writers may have taken the paths, so they
/// are not looked up.
pub(crate) fn changed_at<'a, D: Disk>(
    view: &View<D>,
    paths: impl Iterator<Item = &'a [u8]>,
) -> HashMap<Vec<u8>, NodeId> {
    let paths: HashSet<&[u8]> = paths.collect();
    if paths.is_empty() {
        return HashMap::new();
    }
    let has_name = |id: &NodeId| {
        let own = view.node(*id).ok().and_then(|node| node.own());
        own.is_some_and(|own| own.attributes.links > 0)
    };
    let changed = view.changed_nodes().filter(has_name);
    changed
        .map(|id| (view.path(id), id))
        .filter(|(path, _)| paths.contains(&path[..]))
        .collect()
}

/// Completes a file whose name others have taken from it. `None`: the transaction has changed the
/// name itself, so what it has there needs no completion.
fn take_anew<D: Disk>(
    view: &mut View<D>,
    id: NodeId,
    path: &[u8],
) -> Result<Option<NodeId>, CommitError> {
    let node = looked_up(view.node(id), path)?;
    if node.base.is_none() || view.base_place(id).is_none() && node.contents().is_none() {
        return Ok(None);
    }
    if node.contents().is_none() {
        return Err(not_taken(path, NO_CONTENTS));
    }
    let owner = node.own().map(|own| own.attributes.owner);
    let is_anothers = match &view.restricted_to {
        Some(user) => owner.is_none_or(|owner| owner.user != user.user),
        None => owner.is_none_or(|owner| !view.core.options.privileges.can_own_as(owner)),
    };
    if is_anothers {
        return Err(not_taken(path, OF_ANOTHER));
    }
    match view.stage_whole(id) {
        Err(Errno::STALE) => Err(not_taken(path, CONTENTS_GONE)),
        staged => looked_up(staged, path).map(|()| Some(id)),
    }
}

fn looked_up<T>(result: Result<T, Errno>, path: &[u8]) -> Result<T, CommitError> {
    result.map_err(|errno| CommitError::io("look at", path, errno))
}

fn not_taken(path: &[u8], reason: &'static str) -> CommitError {
    CommitError::NotTaken {
        path: String::from_utf8_lossy(path).into_owned(),
        reason,
    }
}

fn is_takeable(conflict: &Conflict) -> bool {
    let has_side = matches!(conflict.by, ChangedBy::Commit { .. } | ChangedBy::Outside);
    has_side && conflict.what.has_side_of_transaction()
}

/// The path, or the nearest one above it at which the view has changes. A conflict may be
/// about something that others have put into a directory which the transaction removes.
fn nearest_changed<D: Disk>(view: &mut View<D>, mut path: Vec<u8>) -> Vec<u8> {
    while !path.is_empty() && view.part_to_drop(&[path.clone()]).is_err() {
        let above = path.iter().rposition(|byte| *byte == b'/');
        path.truncate(above.unwrap_or(0));
    }
    path
}

/// The state in the base of each path of the write set.
pub(crate) fn seen<D: Disk>(core: &Core<D>, set: &WriteSet, path: &[u8]) -> PathState {
    let path = if path == b"." { b"" } else { path };
    let object = set.objects.iter().find(|object| object.path == *path);
    let object = object.and_then(|object| core.stat_now(&object.base).ok());
    let entry = changed_entry(set, path).or_else(|| home(set, path));
    let entry = entry.and_then(|(directory, name)| {
        let handle = core.directory(directory).ok()?;
        match core.stat_entry(&handle, name) {
            Ok(stat) => Some(Some(Stamp::of(&stat))),
            Err(Errno::NOENT) => Some(None),
            Err(_) => None,
        }
    });
    PathState {
        object: object.map(|stat| Stamp::of(&stat)),
        entry,
    }
}

/// The entry of the base that the write set changes, perhaps by removing its directory.
fn changed_entry<'a>(set: &'a WriteSet, path: &[u8]) -> Option<(&'a Arc<Base>, &'a Name)> {
    let entry = set.entries.iter().find(|entry| entry.path == *path);
    if let Some(entry) = entry {
        return match &entry.directory {
            Object::Base(directory) => Some((directory, &entry.name)),
            Object::Created(_) => None,
        };
    }
    let above = path.iter().rposition(|byte| *byte == b'/')?;
    let mut removed = set.removed_directories.iter();
    let removed = removed.find(|directory| directory.path == path[..above])?;
    let mut names = removed.names.keys();
    let name = names.find(|name| name.as_bytes() == &path[above + 1..])?;
    Some((&removed.base, name))
}

/// The name in the base of a changed file whose name the write set does not change.
fn home<'a>(set: &'a WriteSet, path: &[u8]) -> Option<(&'a Arc<Base>, &'a Name)> {
    let object = set.objects.iter().find(|object| object.path == *path)?;
    let (directory, name) = object.home.as_ref()?;
    Some((directory, name))
}

/// Prepares a write set for the sides that are taken, as far as the base is still as it was
/// listed. The commit lock is held.
pub(crate) fn accept<D: Disk>(
    core: &Core<D>,
    owner: u32,
    set: &mut WriteSet,
    mine: &[Listed],
) -> Result<Accepted, CommitError> {
    let mut accepted = Accepted::default();
    for Listed {
        conflict,
        seen: then,
    } in mine
    {
        let Conflict { path, what, by } = conflict;
        if !seen(core, set, path).is_as_listed(then) {
            continue;
        }
        let by = match by {
            ChangedBy::Commit { sequence, .. } => Some(*sequence),
            _ => None,
        };
        let is_of_name = matches!(
            what,
            ConflictKind::Entry | ConflictKind::Replaced | ConflictKind::Removed
        );
        if !is_of_name {
            accepted.conflicts.push((path.clone(), *what, by));
            continue;
        }
        make_anew(set, path);
        if replace_present(core, owner, set, path)? {
            accepted.entries.insert(path.clone());
        } else {
            return Err(not_taken(path, LOSES_THEIRS));
        }
    }
    Ok(accepted)
}

/// Makes a changed file that others have replaced or removed a new one with its own entry.
fn make_anew(set: &mut WriteSet, path: &[u8]) {
    let is_it = |object: &ObjectWrite| {
        let contents = object.contents.as_ref();
        object.path == *path && contents.is_some_and(|contents| contents.replacement.is_some())
    };
    let Some(index) = set.objects.iter().position(is_it) else {
        return;
    };
    let has_entry = set.entries.iter().any(|entry| entry.path == *path);
    if !has_entry && set.objects[index].home.is_none() {
        return;
    }
    let object = set.objects.remove(index);
    let created = object.contents.and_then(|contents| contents.replacement);
    if let (false, Some(created), Some((directory, name))) = (has_entry, created, object.home) {
        set.entries.push(EntryWrite {
            directory: Object::Base(directory),
            name,
            before: None,
            after: Some(Object::Created(created)),
            path: object.path,
        });
    }
}

/// Makes an entry replace what the base has there now. Returns false if it cannot: whole
/// directories are not replaced, nor is anything in a directory that the transaction removes.
fn replace_present<D: Disk>(
    core: &Core<D>,
    owner: u32,
    set: &mut WriteSet,
    path: &[u8],
) -> Result<bool, CommitError> {
    let Some(entry) = set.entries.iter_mut().find(|entry| entry.path == *path) else {
        return Ok(false);
    };
    let Object::Base(directory) = &entry.directory else {
        return Ok(false);
    };
    let newest = Snapshot::new(core, Sequence::AFTER_ALL);
    let present = looked_up(newest.lookup(directory, &entry.name), path)?;
    let is_directory = present
        .as_ref()
        .is_some_and(|one| one.stat.kind == Kind::Directory);
    let was_directory = entry
        .before
        .as_ref()
        .is_some_and(|one| one.kind == Kind::Directory);
    if is_directory || was_directory {
        return Ok(false);
    }
    if let Some(present) = &present
        && core.options.privileges.all
        && owner != 0
    {
        // The view has shown nothing there, so the kernel has not asked this.
        let above = looked_up(core.stat_now(directory), path)?.attributes;
        let is_sticky = above.mode & 0o1000 != 0;
        let owners = [above.owner.user, present.stat.attributes.owner.user];
        if is_sticky && !owners.contains(&owner) {
            return Err(CommitError::io("replace", path, Errno::PERM));
        }
    }
    let before = std::mem::replace(&mut entry.before, present.map(|found| found.base));
    if let Some(before) = before {
        // Others have removed it from there.
        set.dying.remove(&before.serial);
    }
    Ok(true)
}

impl<D: Disk> Store<D> {
    /// Lists what would keep the transaction from being committed now. Remembers the list for
    /// [`Portion::Sides`](crate::Portion::Sides). As every try to commit, this drops all savepoints. If writes
    /// have met conflicts, these are listed, and the transaction can only be aborted.
    pub fn list_conflicts(
        &self,
        transaction: &Transaction<D>,
    ) -> Result<Vec<Conflict>, CommitError> {
        let met = transaction.met();
        if !met.is_empty() {
            return Ok(met);
        }
        if transaction.outer().is_some() {
            let reason = "it is nested, and conflicts appear when the outer one is committed";
            return Err(CommitError::OnlyWhole { reason });
        }
        if let Some(at) = transaction.past() {
            return Err(CommitError::Past { at });
        }
        let mut committing = transaction.view.take_for_commit();
        let view = committing.view.as_mut().ok_or(CommitError::Ended)?;
        self.refuse_if_poisoned()?;
        if let Some(nested) = view.nested() {
            return Err(CommitError::Nested { nested });
        }
        view.release_savepoints();
        let mut report = |_| {};
        let mut meter = Meter::new(&mut report);
        let mut equal: Option<Equal> = None;
        let (state, set, mut conflicts) = loop {
            let chosen = Chosen {
                equal: equal.as_ref(),
                ..Chosen::default()
            };
            let prepared = at_its_expense(transaction, || prepare(view, chosen, &mut meter));
            let prepared = prepared.map_err(|error| self.heed_flush(error))?;
            let mut set = prepared.set;
            let state = self.lock_for(view, &set, false)?;
            crate::commit::merge::correct_places(view, &set);
            let accepted = Accepted::of(equal.clone().unwrap_or_default());
            let refused = self.refuse_conflicts(transaction, view, (&mut set, accepted));
            let conflicts = match refused {
                Ok(_) => Vec::new(),
                Err(CommitError::Conflict(conflicts)) => conflicts,
                Err(error) => return Err(error),
            };
            if equal.is_some() || !equal::may_be_equal(&conflicts) {
                break (state, set, conflicts);
            }
            drop(state);
            let found = equal::find(view, &conflicts, false);
            equal = Some(found.map_err(|error| self.heed_flush(error))?);
        };
        self.remember(transaction, &set, &conflicts);
        // No side can be taken against a lock, so it is listed last and not remembered.
        match self.refuse_locked(transaction, &set) {
            Err(CommitError::Conflict(locked)) => conflicts.extend(locked),
            checked => checked?,
        }
        drop(state);
        drop(committing);
        self.describe(&mut conflicts);
        Ok(conflicts)
    }
}
