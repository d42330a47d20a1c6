//! Finds what came later: changes of other commits by their records, and changes of outside
//! writers by change times.
//!
//! A record says when its commit was in the base (`settled`), on the file system's clock. An
//! object that it changed has no later change time, unless somebody changed it again. A later commit that
//! changes an object also says which change time it found, so it does not hide an outside writer.
//! A directory's own attributes are compared instead, because its change time changes with its
//! entries.
//!
//! If a recovery has replayed the commit, `settled` is later than what outside writers did between
//! the commit and that recovery, and change times are those of the recovery. But recovery leaves
//! modification times as commits set them. So if nobody else has changed an object, it has been
//! modified before the commit was made, or at the time that the record sets, and it has the mode and
//! owner that the record sets. After a crash of the machine, recovery writes again what the record
//! says, so only what the record does not say can be an outside writer's.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Identity, Kind, Owner, Stat, Timestamp};
use atomdir_format::past::SettledBy;
use atomdir_format::record::{ContentChange, Former, Update};
use atomdir_types::TreePath;
use atomdir_types::path::AnyPath;

use super::reverse::Reverse;
use crate::base::Base;
use crate::base::snapshot::PAGE;
use crate::error::{ChangedBy, Conflict, ConflictKind, UndoError};
use crate::ids::{NodeId, Sequence};
use crate::ranges::RangeSet;
use crate::undo::changes::{ChangeRef, Key, NameUndone, Touch};
use crate::undo::io;

type Outcome<T> = Result<T, UndoError>;

impl<D: Disk> Reverse<'_, D> {
    pub(super) fn conflict(
        &mut self,
        path: &(impl AnyPath + ?Sized),
        what: ConflictKind,
        by: Option<Sequence>,
    ) {
        let path = path.bytes();
        // An undone commit is in nobody's way. Its result is not there any more, so others have
        // changed it.
        let by = by.filter(|by| !self.since.is_undone(*by));
        let by = by.map_or(ChangedBy::Outside, ChangedBy::commit);
        let path = if path.is_empty() { b"." } else { &*path };
        self.conflicts.push(Conflict {
            path: path.to_vec(),
            what,
            by,
        });
    }

    /// Whether the user wants a later change at this path to be overwritten. Then notes it.
    pub(super) fn overwrites(
        &mut self,
        path: &(impl AnyPath + ?Sized),
        what: ConflictKind,
        by: Option<Sequence>,
    ) -> bool {
        let is_chosen = self
            .choice
            .is_some_and(|choice| choice.overwrites(&path.bytes()));
        if is_chosen {
            self.conflict(path, what, by);
            self.overwritten.extend(self.conflicts.pop());
        }
        is_chosen
    }

    /// Whether the user wants a file that others have put under a name to go, where there was nothing
    /// before. What the commits left there must be gone, or it is elsewhere by now.
    pub(super) fn replaces(
        &mut self,
        name: &NameUndone,
        present: Option<NodeId>,
    ) -> Result<bool, Errno> {
        let Some(left) = name
            .after
            .filter(|_| name.before.is_none() && !name.is_broken)
        else {
            return Ok(false);
        };
        if let Some(present) = present {
            let base = self.view.node(present)?.base.clone().ok_or(Errno::STALE)?;
            if base.kind == Kind::Directory || base.is_mount_point() {
                return Ok(false);
            }
        }
        let is_there = self.identity(present)? == Some(left);
        let found = self.finder.find(self.view, left)?;
        if !is_there && found.is_some_and(|found| !self.is_in_limbo(&found)) {
            return Ok(false);
        }
        Ok(self.overwrites(&name.path, ConflictKind::Entry, name.by_other))
    }

    fn touches(&self, identity: Identity) -> &[Touch] {
        self.changes
            .touched
            .get(&identity)
            .map_or(&[], Vec::as_slice)
    }

    /// Checks an object that will go: nobody but the undone commits may have changed it.
    /// `made`: how the commit that made it has left it.
    pub(super) fn check_going(
        &mut self,
        base: &Arc<Base>,
        path: &TreePath,
        made: Left,
    ) -> Outcome<()> {
        let stat = self.stat(base).map_err(|errno| io(path, errno))?;
        let touches = self.touches(stat.identity).to_vec();
        let is_directory = base.kind == Kind::Directory;
        let what = match is_directory {
            true => ConflictKind::EntryInRemovedDirectory,
            false => ConflictKind::Contents,
        };
        let mut others = touches
            .iter()
            .rev()
            .filter(|touch| touch.is_others || is_directory && touch.is_others_entry);
        let by = match others.next() {
            Some(touch) => Some(self.since.steps[touch.step].sequence),
            None if self.is_changed_outside(made, &touches, &stat) => None,
            None => return Ok(()),
        };
        // Of a directory, outside writers have perhaps changed the entries. Those that would be lost
        // are checked one by one, but only if all of them came after it was made.
        let is_checked = !is_directory || by.is_none() && self.changes.is_made(stat.identity);
        if !is_checked || !self.overwrites(path, what, by) {
            self.conflict(path, what, by);
        }
        Ok(())
    }

    /// How a commit has left an object.
    pub(super) fn left(&self, touch: &Touch) -> Left {
        let step = &self.since.steps[touch.step];
        let update = touch.change.map(|change| self.since.change(change).1);
        let attributes = update.map(|update| update.attributes).unwrap_or_default();
        let kind = update.map(|update| step.objects()[update.object as usize].kind);
        Left {
            settled: step.settled,
            is_settled_late: step.settled_by.is_late(),
            modified_max: touch.modified.unwrap_or_default().max(step.time()),
            is_written: update.is_some_and(|update| update.content.is_some()),
            mode: attributes.mode.filter(|_| kind != Some(Kind::Symlink)),
            user: attributes.user,
            group: attributes.group,
        }
    }

    /// Whether an object was made after an undone commit brought this directory into the tree.
    pub(super) fn came_later(&self, object: Identity, directory: Identity) -> bool {
        let Some(first) = self.changes.first_touch(directory) else {
            return false;
        };
        let step = &self.since.steps[first.step];
        let is_after = |time: Timestamp| {
            let time = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
            i128::from(object.birth) > time
        };
        if is_after(step.settled) || step.settled_by != SettledBy::Recovery {
            return is_after(step.settled);
        }
        // A recovery may have made the commit's own files again.
        let mut own = step.objects().iter();
        is_after(step.time()) && !own.any(|own| own.identity == object)
    }

    /// Whether a commit has made the object, and the newest one that changed this entry has put it
    /// there.
    pub(super) fn is_put_by_commit(&self, key: &Key, object: Identity) -> bool {
        let steps = self.changes.touched_names.get(key).into_iter().flatten();
        let newest = steps.rev().find_map(|number| {
            let step = &self.since.steps[*number];
            let mut entries = step.entries().iter();
            let entry =
                entries.find(|one| one.name == key.1 && step.directory(one.directory) == key.0);
            entry.map(|entry| step.after(entry))
        });
        self.changes.made.contains(&object) && newest == Some(Some(object))
    }

    /// Whether an outside writer has changed a new file before an undone commit gave it another
    /// inode, which goes as well.
    pub(super) fn is_changed_before_replaced(&self, identity: Identity, step: usize) -> bool {
        let touches = self.touches(identity);
        let until = touches.partition_point(|touch| touch.step <= step);
        let Some((first, later)) = touches[..until].split_first() else {
            return false;
        };
        self.changes.is_new(identity) && self.left_between(self.left(first), later).is_none()
    }

    /// How the object was left after the first commit and these; `None` if an outside writer has
    /// changed it between them.
    pub(super) fn left_between(&self, first: Left, touches: &[Touch]) -> Option<Left> {
        let mut left = first;
        for touch in touches {
            let modified = touch.modified_before;
            if touch.before.is_some_and(|before| before > left.settled)
                || modified.is_some_and(|before| left.is_modified(before))
            {
                return None;
            }
            left.add(self.left(touch));
        }
        Some(left)
    }

    /// Whether an outside writer has changed an object after the first commit, and between or after
    /// these.
    pub(super) fn is_changed_outside(&self, first: Left, touches: &[Touch], stat: &Stat) -> bool {
        let Some(left) = self.left_between(first, touches) else {
            return true;
        };
        let present = stat.attributes;
        stat.changed > left.settled
            || left.is_modified(present.times.modified)
            || left.is_dressed(present.mode, present.owner)
    }

    /// Checks an object that goes on and gets back what these commits changed.
    pub(super) fn check_changed(
        &mut self,
        base: &Arc<Base>,
        path: &TreePath,
        changes: &[ChangeRef],
    ) -> Outcome<()> {
        let Some(first) = changes.first() else {
            return Ok(());
        };
        let stat = self.stat(base).map_err(|errno| io(path, errno))?;
        // A file that got another inode was changed as a whole.
        let replaced = self.changes.replaced.get(&stat.identity).copied();
        let replaced = replaced.filter(|replaced| *replaced < first.step);
        let first = replaced.unwrap_or(first.step);
        let touches = self.touches(stat.identity);
        let since_first = touches.iter().filter(|touch| touch.step >= first);
        let later: Vec<Touch> = since_first.copied().collect();
        let mut pages = RangeSet::default();
        let mut has_attributes = replaced.is_some();
        if replaced.is_some() {
            pages.insert(0, u64::MAX);
        }
        for change in changes {
            let (_, update, former) = self.since.change(*change);
            add_pages(update, former, &mut pages);
            has_attributes |= changes_attributes(update, former, base.kind);
        }
        let others = later.iter().filter(|touch| touch.is_others);
        let others: Vec<ChangeRef> = others.filter_map(|touch| touch.change).collect();
        let before = self.conflicts.len();
        for other in others {
            let (step, update, former) = self.since.change(other);
            let mut theirs = RangeSet::default();
            add_pages(update, former, &mut theirs);
            let by = Some(step.sequence);
            if theirs.iter().any(|(start, end)| pages.overlaps(start, end)) {
                self.conflict(path, ConflictKind::Contents, by);
            }
            if has_attributes
                && changes_attributes(update, former, base.kind)
                && !self.overwrites(path, ConflictKind::Attributes, by)
            {
                self.conflict(path, ConflictKind::Attributes, by);
            }
        }
        if self.conflicts.len() > before || self.is_in_limbo(base) {
            return Ok(());
        }
        if base.kind == Kind::Directory {
            return self.check_directory(base, path, changes);
        }
        let Some((first, later)) = later.split_first() else {
            return Ok(());
        };
        if self.is_changed_outside(self.left(first), later, &stat) {
            self.conflict(path, ConflictKind::Contents, None);
        }
        Ok(())
    }

    /// Compares a directory's attributes with those that the last commit set.
    fn check_directory(
        &mut self,
        base: &Arc<Base>,
        path: &TreePath,
        changes: &[ChangeRef],
    ) -> Outcome<()> {
        let present = self.stat(base).map_err(|errno| io(path, errno))?.attributes;
        let last = |of: &dyn Fn(&Update) -> Option<u32>| {
            let values = changes
                .iter()
                .rev()
                .map(|change| of(self.since.change(*change).1));
            values.flatten().next()
        };
        let is_same = |wanted: Option<u32>, present| wanted.is_none_or(|wanted| wanted == present);
        let is_expected = is_same(last(&|update| update.attributes.mode), present.mode)
            && is_same(last(&|update| update.attributes.user), present.owner.user)
            && is_same(last(&|update| update.attributes.group), present.owner.group);
        if !is_expected && !self.overwrites(path, ConflictKind::Attributes, None) {
            self.conflict(path, ConflictKind::Attributes, None);
        }
        Ok(())
    }

    /// Whether an outside writer has changed a file since this step. The undone commits did not
    /// change it, but it belongs to one they did.
    pub(super) fn is_newer(&self, base: &Arc<Base>, first: usize) -> Result<bool, Errno> {
        let stat = self.stat(base)?;
        let left = self.left(&Touch {
            step: first,
            ..Touch::default()
        });
        let touches = self.touches(stat.identity).iter();
        let later: Vec<Touch> = touches
            .filter(|touch| touch.step >= first)
            .copied()
            .collect();
        Ok(self.is_changed_outside(left, &later, &stat))
    }

    /// Whether the caller has found that this file, as it is now, is equal to the one that the commits
    /// left under the name.
    pub(super) fn is_equal(
        &mut self,
        name: &NameUndone,
        node: Option<NodeId>,
    ) -> Result<bool, Errno> {
        let path = name.path.to_bytes();
        let mut equal = self.equal.iter().filter(|equal| equal.path == path);
        let (Some(_), Some(equal), Some(node)) = (name.after, equal.next(), node) else {
            return Ok(false);
        };
        let base = self.view.node(node)?.base.clone().ok_or(Errno::STALE)?;
        let stat = self.stat(&base)?;
        Ok(stat.kind == Kind::File
            && stat.identity.inode == equal.inode
            && stat.changed == equal.changed)
    }

    pub(super) fn stat(&self, base: &Arc<Base>) -> Result<atomdir_disk::Stat, Errno> {
        let snapshot = self.view.snapshot();
        snapshot.stat(base)
    }
}

/// How a commit has left an object, and earlier ones.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    /// The change time is not later.
    settled: Timestamp,
    /// Outside writers may have changed it before `settled`, so the rest counts as well.
    is_settled_late: bool,
    /// The modification time is not later.
    modified_max: Timestamp,
    is_written: bool,
    mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
}

impl Left {
    /// How a commit that left a directory so has left what is in it.
    pub fn of_contents(self) -> Left {
        Left {
            is_written: false,
            mode: None,
            user: None,
            group: None,
            ..self
        }
    }

    fn add(&mut self, later: Left) {
        // Writing to a file may clear bits of its mode.
        let mode = self.mode.filter(|_| !later.is_written);
        *self = Left {
            settled: self.settled.max(later.settled),
            is_settled_late: self.is_settled_late || later.is_settled_late,
            modified_max: self.modified_max.max(later.modified_max),
            is_written: later.is_written,
            mode: later.mode.or(mode),
            user: later.user.or(self.user),
            group: later.group.or(self.group),
        }
    }

    fn is_modified(&self, modified: Timestamp) -> bool {
        self.is_settled_late && modified > self.modified_max
    }

    fn is_dressed(&self, mode: u32, owner: Owner) -> bool {
        self.is_settled_late && self.differs(mode, owner)
    }

    /// Whether these are not the mode and owner that the commit has set.
    pub(super) fn differs(&self, mode: u32, owner: Owner) -> bool {
        let differs = |wanted: Option<u32>, found| wanted.is_some_and(|wanted| wanted != found);
        differs(self.mode, mode)
            || differs(self.user, owner.user)
            || differs(self.group, owner.group)
    }
}

/// Whether an update makes attributes other than they were. To set them again is no change. The
/// time of a directory does not count, because it changes with every name.
fn changes_attributes(update: &Update, former: &Former, kind: Kind) -> bool {
    let (change, was) = (&update.attributes, &former.attributes);
    let differs = |wanted: Option<u32>, was| wanted.is_some_and(|wanted| wanted != was);
    let modified = change.modified.filter(|_| update.content.is_none());
    let modified = modified.filter(|_| kind != Kind::Directory);
    let mut xattrs = update.xattrs.iter();
    modified.is_some_and(|modified| modified != was.times.modified)
        || differs(change.mode, was.mode)
        || differs(change.user, was.owner.user)
        || differs(change.group, was.owner.group)
        || xattrs.any(|xattr| !former.xattrs.contains(xattr))
}

/// Adds the pages that an update has written. A new length counts as all pages from where it cuts
/// the file off or extends it.
fn add_pages(update: &Update, former: &Former, pages: &mut RangeSet) {
    let Some(ContentChange {
        keep,
        length,
        extents,
        is_whole,
        ..
    }) = &update.content
    else {
        return;
    };
    for extent in extents {
        let end = extent.offset.saturating_add(extent.length);
        pages.insert(extent.offset / PAGE, end.div_ceil(PAGE));
    }
    let kept = keep.unwrap_or(former.length);
    if *is_whole {
        pages.insert(0, u64::MAX);
    } else if *length != former.length || kept < former.length {
        pages.insert(kept.min(*length) / PAGE, u64::MAX);
    }
}
