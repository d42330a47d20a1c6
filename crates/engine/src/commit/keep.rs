//! Keeps the versions that a commit replaces, as far as open snapshots show them.
//!
//! Invariant: a replaced version is kept only if an open snapshot shows it. So the memory and space
//! that an open transaction costs grow with the number of objects changed, not with the number of
//! commits.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Identity, Kind, Name};

use crate::apply::{Verdict, verdict};
use crate::base::core::Core;
use crate::base::snapshot::{PAGE, read_xattrs};
use crate::base::{Base, History, OldAttributes, OldBody, Place, push_version};
use crate::ids::{Sequence, TransactionId};
use crate::names;
use crate::ranges::RangeSet;
use crate::store::open_transactions::OpenTransactions;
use crate::write_set::{ContentsWrite, Object, ObjectWrite, WriteSet};

/// The newest snapshot of an open transaction that does not show a commit, if there is one. What
/// the commit replaces is kept if this one shows it: the others show that, too, or have had their
/// versions kept by an earlier commit.
#[derive(Clone, Copy)]
pub(crate) struct Older(Option<Sequence>);

impl Older {
    /// A transaction that lands a part sees this commit, not the versions before it. `but`: a
    /// transaction that has ended.
    pub fn than<D: Disk>(
        sequence: Sequence,
        open: &OpenTransactions<D>,
        but: Option<TransactionId>,
    ) -> Older {
        let others = open.with_snapshots().filter(|one| Some(one.id()) != but);
        let others = others.filter_map(|one| one.snapshot_before(sequence));
        let remembering = open.remembering().filter(|at| *at < sequence);
        Older(others.chain(remembering).max())
    }

    pub fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// Whether an open snapshot shows the version that began at `previous`, the end of the version
    /// before it.
    fn need_version(&self, previous: Option<Sequence>) -> bool {
        self.0
            .is_some_and(|newest| previous.is_none_or(|previous| newest >= previous))
    }
}

/// Installs, before the base changes, what older snapshots will read instead.
pub(crate) struct Keeper<'a, D: Disk> {
    pub core: &'a Core<D>,
    pub sequence: Sequence,
    pub older: Older,
    /// Objects that lose their last name, and inodes that are replaced, if no open
    /// snapshot shows them.
    pub unseen: &'a mut HashSet<Identity>,
    /// The object that was looked at last.
    pub at: Option<Arc<Base>>,
    /// Directories that other users have closed. Nobody can read the objects in them, so no
    /// versions of these are kept, and apply leaves them alone.
    pub closed: HashSet<Identity>,
    /// For calls through a guard. Several of these share a sequence, and no snapshot shows a commit
    /// that is not in the base.
    pub is_guarded: bool,
}

/// Keeps the files open that lose a name and have others, for open transactions: those whose
/// snapshots are older, and those that show the commit, may know a file by that name alone.
pub(crate) fn hold_unnamed<D: Disk>(core: &Core<D>, set: &WriteSet, sequence: Sequence) {
    let after = set.entries.iter().filter_map(|entry| match &entry.after {
        Some(Object::Base(base)) => Some(base.serial),
        _ => None,
    });
    let renamed: HashSet<u64> = after.collect();
    let from_entries = set
        .entries
        .iter()
        .filter_map(|entry| match &entry.directory {
            Object::Base(directory) => Some((entry.before.as_ref()?, directory, &entry.name)),
            Object::Created(_) => None,
        });
    let from_removed = set.removed_directories.iter().flat_map(|removed| {
        let survivors = set.survivors(removed);
        survivors.map(|(name, base)| (base, &removed.base, name))
    });
    for losing in from_entries.chain(from_removed) {
        if !set.is_dying(losing.0) && !renamed.contains(&losing.0.serial) {
            hold(core, sequence, losing);
        }
    }
}

/// Keeps an open handle of a file that goes on under other names. A name in
/// limbo would show in its link count.
fn hold<D: Disk>(
    core: &Core<D>,
    sequence: Sequence,
    (base, directory, name): (&Arc<Base>, &Arc<Base>, &Name),
) {
    let target = match base.kind {
        Kind::Symlink => core
            .directory(directory)
            .and_then(|directory| core.disk.read_link(&directory, name))
            .ok(),
        _ => None,
    };
    let mut state = base.state();
    state.history_mut().changed.unnamed = Some(sequence);
    let identity = state.identity;
    drop(state);
    let access = match base.kind {
        Kind::File => Access::Read,
        _ => Access::Path,
    };
    let here = Place::Entry {
        parent: directory.clone(),
        name: name.clone(),
    };
    if base.kind != Kind::Directory
        && let Ok(handle) = core.open_at(&here, identity, access)
    {
        core.handles.hold(identity, Arc::new(handle), target);
    }
}

impl<D: Disk> Keeper<'_, D> {
    pub fn keep(&mut self, set: &WriteSet) -> Result<Vec<Arc<Base>>, Errno> {
        let mut kept: Vec<Arc<Base>> = Vec::new();
        let mut seen: HashSet<u64> = HashSet::new();
        for object in &set.objects {
            self.keep_object(object)?;
            kept.push(object.base.clone());
            if let Place::Entry { parent, .. } = &object.base.state().place {
                kept.push(parent.clone());
            }
        }
        for entry in &set.entries {
            if let Some(Object::Base(moved)) = &entry.after {
                // A new name changes the change time, and may add a link.
                self.keep_attributes(moved)?;
                moved.state().history_mut().changed.links = Some(self.sequence);
                kept.push(moved.clone());
            }
            let Object::Base(directory) = &entry.directory else {
                continue;
            };
            self.keep_attributes(directory)?;
            let is_seen = self.keep_name(directory, &entry.name, entry.before.clone());
            self.note_name_changed(directory, &entry.name);
            kept.push(directory.clone());
            if let Some(before) = &entry.before {
                self.keep_attributes(before)?;
                let mut state = before.state();
                let links = &mut state.history_mut().changed.links;
                let had_other_names = links.replace(self.sequence).is_some();
                if is_seen || had_other_names {
                    seen.insert(before.serial);
                }
                drop(state);
                kept.push(before.clone());
            }
        }
        for removed in &set.removed_directories {
            // Objects that died in it go to limbo with it.
            for (name, base) in set.survivors(removed) {
                self.keep_attributes(base)?;
                self.keep_name(&removed.base, name, Some(base.clone()));
                kept.push(base.clone());
            }
            kept.push(removed.base.clone());
        }
        for base in set.dying.values() {
            base.state().history_mut().changed.removed = Some(self.sequence);
            self.keep_attributes(base)?;
            kept.push(base.clone());
        }
        let unseen = set.entries.iter().filter_map(|entry| entry.before.as_ref());
        let unseen = unseen.filter(|base| {
            base.kind != Kind::Directory && set.is_dying(base) && !seen.contains(&base.serial)
        });
        self.unseen.extend(unseen.map(|base| base.identity()));
        kept.retain(|base| !set.is_dying(base) || !self.unseen.contains(&base.identity()));
        Ok(kept)
    }

    /// Keeps the object that the name led to, if an open snapshot shows it. Returns whether one
    /// does.
    pub(super) fn keep_name(
        &self,
        directory: &Arc<Base>,
        name: &Name,
        before: Option<Arc<Base>>,
    ) -> bool {
        let mut state = directory.state();
        let History { names, .. } = state.history_mut();
        let versions = names.entry(name.clone()).or_default();
        if versions
            .last()
            .is_some_and(|(until, _)| *until == self.sequence)
        {
            // An attempt that failed has kept it.
            return true;
        }
        let is_needed = self
            .older
            .need_version(versions.last().map(|(until, _)| *until));
        if is_needed {
            push_version(versions, self.sequence, before);
        }
        is_needed
    }

    fn note_name_changed(&self, directory: &Base, name: &Name) {
        let mut state = directory.state();
        state
            .history_mut()
            .changed
            .names
            .insert(name.clone(), self.sequence);
    }

    pub(super) fn keep_attributes(&mut self, base: &Arc<Base>) -> Result<(), Errno> {
        self.at = Some(base.clone());
        let (identity, place, last) = {
            let state = base.state();
            let last = state
                .history
                .as_ref()
                .and_then(|history| history.attributes.last());
            (
                state.identity,
                state.place.clone(),
                last.map(|(until, _)| *until),
            )
        };
        if !self.older.need_version(last) || last == Some(self.sequence) {
            return Ok(());
        }
        let old = match self.core.ahead.object(identity) {
            Some(object) => Ok(OldAttributes {
                stat: object.stat,
                xattrs: object.xattrs.clone(),
            }),
            None => self.core.with_object(&place, identity, |handle| {
                let mut stat = self.core.disk.stat(handle)?;
                if base.kind == Kind::Directory && !self.is_guarded {
                    // Commits that are published and not in the base yet have changed its times.
                    let before = Sequence(self.sequence.0.saturating_sub(1));
                    let on_the_way = &self.core.on_the_way;
                    on_the_way.add_entries(base.serial, before, &mut stat);
                }
                let xattrs = read_xattrs(&self.core.disk, handle)?;
                Ok(OldAttributes { stat, xattrs })
            }),
        };
        match old {
            Ok(old) => {
                let mut state = base.state();
                let versions = &mut state.history_mut().attributes;
                push_version(versions, self.sequence, Arc::new(old));
            }
            Err(errno) if self.is_lost(base, errno) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Whether there is nothing to keep: an outside writer has removed the object, or closed a
    /// directory above it.
    fn is_lost(&mut self, base: &Base, errno: Errno) -> bool {
        let closed = match errno {
            Errno::STALE => return !self.core.is_covered(base),
            Errno::ACCESS => self.core.closed_above(base),
            // A file system is mounted there.
            Errno::XDEV => None,
            // Its owner has made it unreadable, for instance by taking away the key of its
            // directory.
            errno => return verdict(Some(errno), false) == Verdict::Leaves,
        };
        self.closed.extend(closed);
        closed.is_some()
    }

    fn keep_object(&mut self, object: &ObjectWrite) -> Result<(), Errno> {
        self.keep_attributes(&object.base)?;
        if let Some(contents) = &object.contents {
            match self.keep_body(&object.base, contents) {
                Err(errno) if self.is_lost(&object.base, errno) => {}
                kept => kept?,
            }
        }
        let mut state = object.base.state();
        let changed = &mut state.history_mut().changed;
        if object.writes_attributes() {
            changed.attributes = Some(self.sequence);
        }
        if let Some(contents) = &object.contents {
            if contents.length.is_some() {
                changed.length = Some(self.sequence);
            }
            let mut pages = RangeSet::default();
            contents
                .written()
                .into_iter()
                .for_each(|(start, end)| pages.insert(start, end));
            match changed.pages.last_mut() {
                // No open snapshot lies between the two, so one entry serves both.
                Some((last, merged)) if !self.older.need_version(Some(*last)) => {
                    *last = self.sequence;
                    pages
                        .iter()
                        .for_each(|(start, end)| merged.insert(start, end));
                }
                _ => push_version(&mut changed.pages, self.sequence, pages),
            }
        }
        Ok(())
    }

    pub(super) fn keep_body(
        &mut self,
        base: &Arc<Base>,
        contents: &ContentsWrite,
    ) -> Result<(), Errno> {
        let (identity, place, last) = {
            let state = base.state();
            let bodies = state.history.as_ref().map(|history| &history.bodies);
            let last = bodies.and_then(|bodies| bodies.last().cloned());
            (state.identity, state.place.clone(), last)
        };
        if !self.is_guarded
            && last
                .as_ref()
                .is_some_and(|(until, _)| *until >= self.sequence)
        {
            // An attempt that failed has kept it. Or a call through a guard has, and the commit will
            // be cancelled because of that.
            return Ok(());
        }
        let is_replaced = contents.replacement.is_some();
        let last = last.filter(|(until, _)| !self.older.need_version(Some(*until)));
        if let Some((_, last)) = last {
            // No open snapshot shows the contents that came after that version.
            match &*last {
                OldBody::Moved { .. } | OldBody::Restored(_) => {
                    if is_replaced {
                        self.unseen.insert(identity);
                    }
                    return Ok(());
                }
                OldBody::Pages { .. } if is_replaced => {}
                OldBody::Pages {
                    saved,
                    pages,
                    length,
                } => {
                    let file =
                        self.core
                            .disk
                            .open(&self.core.control.limbo, saved, Access::ReadWrite)?;
                    let source = self.core.open_logged(&place, identity, Access::Read)?;
                    let pages = self.save_pages((&source, &file), contents, pages, *length)?;
                    let more = OldBody::Pages {
                        saved: saved.clone(),
                        pages,
                        length: *length,
                    };
                    if let Some((_, last)) = base.state().history_mut().bodies.last_mut() {
                        *last = Arc::new(more);
                    }
                    return Ok(());
                }
            }
        }
        let length = self.core.stat_place(&place, identity)?.length;
        let body = if is_replaced {
            // Older listings show the old inode. The name does not count as
            // written.
            if let Place::Entry { parent, name } = &place {
                self.keep_attributes(parent)?;
                self.keep_name(parent, name, Some(base.clone()));
            }
            OldBody::Moved {
                identity,
                limbo: names::limbo(identity),
            }
        } else {
            let saved = names::saved_pages(identity, self.sequence);
            let disk = &self.core.disk;
            // An attempt that failed may have left this file.
            let (limbo, access) = (&self.core.control.limbo, Access::ReadWrite);
            let file = match disk.create(limbo, &saved, 0o600) {
                Err(Errno::EXIST) => disk.open(limbo, &saved, access)?,
                created => created?,
            };
            let source = self.core.open_logged(&place, identity, Access::Read)?;
            let none = RangeSet::default();
            OldBody::Pages {
                pages: self.save_pages((&source, &file), contents, &none, length)?,
                saved,
                length,
            }
        };
        let mut state = base.state();
        push_version(
            &mut state.history_mut().bodies,
            self.sequence,
            Arc::new(body),
        );
        Ok(())
    }

    /// Copies the pages that are about to be overwritten in place, except those
    /// that were saved before.
    fn save_pages(
        &self,
        (source, file): (&D::Handle, &D::Handle),
        contents: &ContentsWrite,
        before: &RangeSet,
        length: u64,
    ) -> Result<RangeSet, Errno> {
        let mut pages = before.clone();
        for (start, end) in contents.overwritten() {
            let end = end.min(length.div_ceil(PAGE));
            let mut page = start;
            while page < end {
                let (is_saved, until) = before.run_at(page);
                let until = until.min(end);
                if !is_saved {
                    let stop = (until * PAGE).min(length);
                    self.copy((source, file), page * PAGE, stop)?;
                }
                page = until;
            }
            pages.insert(start, end);
        }
        Ok(pages)
    }

    fn copy(
        &self,
        (source, file): (&D::Handle, &D::Handle),
        mut at: u64,
        stop: u64,
    ) -> Result<(), Errno> {
        while at < stop {
            let (from, to) = ((source, at), (file, at));
            let copied = self.core.disk.copy_range(from, to, stop - at)?;
            if copied == 0 {
                break;
            }
            at += copied;
        }
        Ok(())
    }
}
