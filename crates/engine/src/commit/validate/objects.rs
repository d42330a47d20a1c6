//! Validates contents and attributes of objects that the transaction changes and
//! does not remove.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind, Owner, Result, Stat};
use atomdir_types::TreePath;

use super::Validation;
use crate::base::snapshot::{PAGE, Snapshot};
use crate::base::{Base, Changed, Place, Stamp, above};
use crate::error::ConflictKind;
use crate::ids::Sequence;
use crate::rules::Rule;
use crate::write_set::{ContentsWrite, ObjectWrite, WriteSet};

impl<D: Disk> Validation<'_, D> {
    /// The kernel let the owner write by the mode and owner that the view
    /// reported, also for a directory in which only entries change. If that right
    /// was taken back since, a service with more rights must not write for them.
    pub(super) fn check_rights(&mut self, object: &ObjectWrite) {
        let (Some(reported), Ok(present)) = (object.reported, self.core.stat_now(&object.base))
        else {
            return;
        };
        if (present.attributes.mode, present.attributes.owner) != reported {
            let rule = Rule::RightsTakenBack;
            let by = self.since(rule, &object.base, |changed| changed.attributes);
            self.conflict(rule, &object.path, ConflictKind::Attributes, by);
        }
    }

    pub(super) fn check_object(&mut self, object: &ObjectWrite, set: &WriteSet) -> Result<()> {
        let (base, path) = (&object.base, &object.path);
        let above_gone = ConflictKind::DirectoryRemoved;
        let rule = Rule::ObjectRemoved;
        if let Some(by) = self.since(rule, base, |changed| changed.removed) {
            let what = self.how_gone(object)?;
            self.conflict(rule, path, what, Some(by));
            return Ok(());
        }
        if let Some(by) = self.removed_above(base).filter(|_| rule.holds()) {
            self.conflict(rule, path, above_gone, by);
            return Ok(());
        }
        let rule = Rule::ObjectUnnamed;
        let is_held = matches!(base.state().place, Place::Held | Place::Limbo(_));
        let is_held = is_held && !set.restored.contains(&base.serial);
        if is_held && rule.holds() {
            // The only name by which the transaction knew the object is gone.
            let by = self.since(rule, base, |changed| changed.unnamed);
            let what = self.how_gone(object)?;
            self.conflict(rule, path, what, by);
            return Ok(());
        }
        let rule = Rule::ObjectLosesLastName;
        if set.is_dying(base) && rule.holds() {
            let by = self.since(rule, base, |changed| changed.links);
            self.conflict(rule, path, ConflictKind::Removed, by);
            return Ok(());
        }
        self.check_parts(object);
        let stat = match self.core.stat_now(base) {
            Ok(stat) => stat,
            Err(Errno::STALE) => {
                let what = self.how_gone(object)?;
                self.conflict(Rule::ObjectGone, path, what, None);
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if !self.is_reachable_above(base)? {
            // An outside writer has moved a directory above it away.
            self.conflict(Rule::DirectoryMovedOutside, path, above_gone, None);
            return Ok(());
        }
        if base.kind == Kind::Directory {
            return self.check_directory_attributes(object, &stat);
        }
        self.seen.note_unchanged(base, &stat);
        let stamp = Stamp::of(&stat);
        let suspect = self.suspect(base, stamp, object.stamp);
        let is_as_found = object.contents.is_some() && self.accepted.equal.has_file(base, stamp);
        if let Some(suspect) = suspect.filter(|one| !(one.is_outside() && is_as_found)) {
            self.conflict_with(suspect, Rule::FileChangedOutside, path);
        }
        Ok(())
    }

    /// How an object has lost the name by which the transaction knows it.
    fn how_gone(&mut self, object: &ObjectWrite) -> Result<ConflictKind> {
        let above = match &object.home {
            Some((directory, _)) => Some(directory.clone()),
            None => above(&object.base).next(),
        };
        if let Some(above) = above
            && !self.is_reachable(&above)?
        {
            return Ok(ConflictKind::DirectoryRemoved);
        }
        let Some((directory, name)) = &object.home else {
            return Ok(ConflictKind::Removed);
        };
        Ok(match self.present(directory, name)? {
            Some(_) => ConflictKind::Replaced,
            None => ConflictKind::Removed,
        })
    }

    /// Checks, part by part, what commits have changed.
    fn check_parts(&mut self, object: &ObjectWrite) {
        let (base, path) = (&object.base, &object.path);
        if object.writes_attributes() {
            let (rule, what) = (Rule::AttributesChanged, ConflictKind::Attributes);
            if let Some(by) = self.since(rule, base, |changed| changed.attributes) {
                self.conflict(rule, path, what, Some(by));
            }
        }
        let Some(contents) = &object.contents else {
            return;
        };
        let (rule, what) = (Rule::PagesChanged, ConflictKind::Contents);
        if let Some(by) = self.since(rule, base, |changed| pages_changed(changed, contents)) {
            self.conflict(rule, path, what, Some(by));
        }
    }

    /// A directory's times change with its entries and prove nothing, so mode and
    /// owner are compared with those that the view first showed.
    fn check_directory_attributes(&mut self, object: &ObjectWrite, present: &Stat) -> Result<()> {
        let before = self.shown_permissions(&object.base, object.reported)?;
        self.check_permissions((&object.base, &object.path), before, present);
        Ok(())
    }

    /// The mode and owner of a directory in the view. `reported`: as it first showed them, if it has.
    pub(super) fn shown_permissions(
        &self,
        base: &Arc<Base>,
        reported: Option<(u32, Owner)>,
    ) -> Result<(u32, Owner)> {
        if let Some(reported) = reported {
            return Ok(reported);
        }
        let snapshot = Snapshot::with_landed(self.core, self.at, self.landed);
        let shown = snapshot.stat(base)?.attributes;
        Ok((shown.mode, shown.owner))
    }

    /// Whether an outside writer has changed a directory's mode or owner, or through a guard another
    /// attribute. `before`: mode and owner as the view showed them.
    pub(super) fn check_permissions(
        &mut self,
        (base, path): (&Base, &TreePath),
        before: (u32, Owner),
        present: &Stat,
    ) {
        let rule = Rule::DirectoryChangedOutside;
        let is_committed = self.since(rule, base, |changed| changed.attributes);
        let now = (present.attributes.mode, present.attributes.owner);
        self.seen.note_directory(base, present, self.at);
        if is_committed.is_none() && (now != before || base.is_guarded_after(self.at)) {
            self.conflict(rule, path, ConflictKind::Attributes, None);
        }
    }
}

impl ObjectWrite {
    pub fn writes_attributes(&self) -> bool {
        let change = &self.attributes;
        // Access times never conflict, and a new modification time goes with
        // new contents.
        let times = change.modified.is_some() && self.contents.is_none();
        !self.xattrs.is_empty()
            || change.mode.is_some()
            || change.user.is_some()
            || (times && !self.is_implied)
    }
}

impl ContentsWrite {
    /// The overwritten pages, as page numbers. A new length counts as all pages
    /// from where it cuts the file off or extends it, so two changes of the
    /// length always overlap.
    pub fn written(&self) -> Vec<(u64, u64)> {
        let mut written: Vec<(u64, u64)> = self.pages.iter().collect();
        if let Some(length) = self.length {
            written.push((length.min(self.keep) / PAGE, u64::MAX));
        }
        written
    }
}

fn pages_changed(changed: &Changed, contents: &ContentsWrite) -> Option<Sequence> {
    let written = contents.written().into_iter();
    let pages = written.map(|(start, end)| changed.pages_changed(start, end));
    pages.max().flatten()
}
