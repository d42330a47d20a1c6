//! Decides which files keep their inode when a commit changes their contents. The commit lock is
//! held, and validation has found no conflict.
//!
//! Invariants
//! 1. A file that other programs have open for writing, have mapped for writing or have locked
//!    keeps its inode. Otherwise their later writes would go to a file without a name, and their
//!    locks would exclude nobody. If such a file runs as a program, the kernel lets nobody change
//!    it, and that is a conflict.
//! 2. So does a file that has several names by now (see `merge`), or flags, which a new inode would
//!    not have, and one that cannot be replaced: a user with fewer rights is not its owner any more,
//!    or its directory takes no objects from elsewhere (`placements`).
//! 3. What is written to such a file is what differs from it, and nothing is cut that stays in the
//!    new contents. Programs that have mapped it lose no page for a moment, and an append to a large
//!    file writes its end. The rest is flushed, since the record does not carry it and another
//!    program may have just written it. The whole file still counts as written when others are
//!    validated.
//! 4. A file of which another program has locked a part is not removed or replaced, and not changed
//!    either if that lock is exclusive. Databases lock so what they are in the middle of reading or
//!    changing. A lock of the whole file, as a server has it on the file with its process id, says
//!    only that its owner runs.
//!
//! Undoing a commit that replaced a file brings the old inode back. If somebody uses the present one
//! by then, that is a conflict.
//!
//! Under a guard, programs have the files of the guard open, so it is asked as well: when the commit
//! is checked, and right before its gate closes ([`crate::store::guard`]).
//!
//! A file that others only read, map privately or run is replaced, and they keep what they have
//! opened. If the transaction itself has put another file in its place (`rename`), that has the
//! same result as without a transaction, whoever has the old one open, but for invariant 4.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, FileUsers, Identity, Kind, PartLock};
use atomdir_types::TreePath;

use crate::base::ahead::Found;
use crate::base::core::Core;
use crate::base::snapshot::PAGE;
use crate::base::{Base, Place};
use crate::commit::Committed;
use crate::commit::feasible;
use crate::commit::placements::Placements;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind, Poison, StoreError};
use crate::ranges::RangeSet;
use crate::rules::Rule;
use crate::store::Store;
use crate::store::guard::Gate;
use crate::view::View;
use crate::write_set::{EntryWrite, Object, ObjectWrite, Overwrite, WriteSet};

/// How much of a file is compared at a time.
const CHUNK: u64 = 256 << 10;

impl<D: Disk> Store<D> {
    /// Whether a commit that failed has a chance at once. If somebody has begun to use a file that
    /// was to be replaced, it is now changed in place. If the disk was full, something may be freed.
    pub(super) fn helps_to_repeat(&self, committed: &Result<Committed, CommitError>) -> bool {
        match committed {
            Ok(_) => false,
            Err(CommitError::NoSpace { .. }) => self.free_space(),
            Err(error) => error.is_used_since(),
        }
    }
}

/// Keeps the invariants. The gate of a guard is not closed.
pub(crate) fn choose<D: Disk>(
    view: &mut View<D>,
    set: &mut WriteSet,
    gate: &Gate,
) -> Result<(), CommitError> {
    refuse_used_before_return(&view.core, set)?;
    for (present, path) in given_back(set) {
        if users(gate, present).is_in_use {
            return Err(conflict(path, ConflictKind::PresentInUse));
        }
    }
    refuse_removed_and_locked(&view.core, set, gate)?;
    let core = view.core.clone();
    let mut placements = Placements::new(&core);
    for index in 0..set.objects.len() {
        let object = &set.objects[index];
        let Some(contents) = &object.contents else {
            continue;
        };
        let (identity, place) = object.base.identity_and_place();
        // No program can have opened what only an earlier commit has staged.
        let guarded = users(gate, &object.base);
        let is_used = !core.ahead.has_made(identity)
            && (guarded.is_in_use || is_in_use(&core, (identity, place), &object.path)?);
        let part_lock = || guarded.part_lock.or_else(|| core.part_lock(&object.base));
        if is_used && part_lock() == Some(PartLock::Exclusive) {
            return Err(conflict(&object.path, ConflictKind::PartLocked));
        }
        if contents.replacement.is_some() {
            let is_bound = is_bound(&core, object) || is_anothers(view, object);
            let mut is_replaceable = || {
                let takes = placements.take_staged(&object.base);
                takes.map_err(|errno| CommitError::io("look at", &object.path, errno))
            };
            if !is_used && !is_bound && is_replaceable()? {
                continue;
            }
            if is_used && is_running(&view.core, object) {
                return Err(conflict(&object.path, ConflictKind::LockedAndRunning));
            }
            set.change_in_place(index);
        }
        let object = &set.objects[index];
        let differing = differing(view, object);
        let differing = differing.map_err(|failed| match failed {
            Failed::Comparison(errno) => CommitError::io("compare", &object.path, errno),
            // The kernel may have dropped what it could not write, earlier commits among it.
            Failed::Flush(errno) => CommitError::Store(StoreError::Poisoned {
                reason: Poison::NotFlushed {
                    what: "the base",
                    errno,
                },
            }),
        })?;
        if let Some(contents) = &mut set.objects[index].contents {
            contents.differing = differing;
            contents.is_used = is_used;
        }
    }
    Ok(())
}

/// Looks for the last time, right before the commit is applied, at files that get another inode.
pub(super) fn refuse_used_since<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    found: &Found,
) -> Result<(), CommitError> {
    for object in &set.objects {
        let contents = object.contents.as_ref();
        if contents.is_some_and(|contents| contents.replacement.is_some())
            && !found.is_made(&core.ahead, &object.base)
            && is_in_use(core, found.of(&object.base), &object.path)?
        {
            return Err(conflict(&object.path, ConflictKind::UsedSince));
        }
    }
    refuse_used_before_return(core, set)
}

/// The files that a commit gives other inodes: where they are, and their present inodes.
pub(super) fn given_up(set: &WriteSet) -> Vec<(Vec<u8>, Identity)> {
    let replaced = set.replaced();
    let files = replaced.chain(given_back(set).map(|(present, _)| present));
    files
        .filter_map(|base| Some((base.path()?, base.identity())))
        .collect()
}

/// Like [`refuse_used_since`], for those of [`given_up`] that programs use through a guard.
pub(super) fn refuse_used(set: &WriteSet, used: &HashSet<Identity>) -> Result<(), CommitError> {
    let is_used = |base: &Base| used.contains(&base.identity());
    for object in &set.objects {
        let contents = object.contents.as_ref();
        if contents.is_some_and(|contents| contents.replacement.is_some()) && is_used(&object.base)
        {
            return Err(conflict(&object.path, ConflictKind::UsedSince));
        }
    }
    match given_back(set).find(|(present, _)| is_used(present)) {
        Some((_, path)) => Err(conflict(path, ConflictKind::PresentInUse)),
        None => Ok(()),
    }
}

/// How programs use a file through the guard, if there is one.
fn users(gate: &Gate, base: &Base) -> FileUsers {
    let path = match gate.is_guarded() {
        true => base.path(),
        false => None,
    };
    path.map_or_else(FileUsers::default, |path| {
        gate.users(&path, base.identity())
    })
}

fn refuse_removed_and_locked<D: Disk>(
    core: &Core<D>,
    set: &WriteSet,
    gate: &Gate,
) -> Result<(), CommitError> {
    let removed = set.entries.iter().filter_map(|entry| {
        let before = entry.before.as_ref()?;
        (before.kind == Kind::File && set.is_dying(before)).then_some((before, &entry.path))
    });
    for (base, path) in removed {
        if core.part_lock(base).is_some() || users(gate, base).part_lock.is_some() {
            return Err(conflict(path, ConflictKind::PartLocked));
        }
    }
    Ok(())
}

/// Refuses to bring an older inode back in the place of one that is in use. Its contents are those of
/// the file before a commit that replaced it, so changing the present one would not undo that.
fn refuse_used_before_return<D: Disk>(core: &Core<D>, set: &WriteSet) -> Result<(), CommitError> {
    for (present, path) in given_back(set) {
        // Of files of others an ordinary user's service cannot know.
        let now = present.identity_and_place();
        let is_known = || feasible::owned_by_another(core, now.clone()).is_none();
        if is_known() && is_in_use(core, now.clone(), path)? {
            return Err(conflict(path, ConflictKind::PresentInUse));
        }
    }
    Ok(())
}

/// The files in whose place an older inode comes back, and their paths.
fn given_back(set: &WriteSet) -> impl Iterator<Item = (&Arc<Base>, &TreePath)> {
    let succeeded = set.successions.iter().map(|(present, _)| present.serial);
    let succeeded: HashSet<u64> = succeeded.collect();
    let entries = set.entries.iter().filter(|_| !set.restored.is_empty());
    entries.filter_map(move |entry| {
        let EntryWrite {
            before,
            after,
            path,
            ..
        } = entry;
        let present = before.as_ref().filter(|one| one.kind == Kind::File)?;
        let returns = match after {
            Some(Object::Base(after)) => set.restored.contains(&after.serial),
            _ => false,
        };
        let goes = succeeded.contains(&present.serial) || returns && set.is_dying(present);
        goes.then_some((present, path))
    })
}

/// After a commit has been applied: stores through mappings of the files that it has changed in
/// place change their times again.
pub(super) fn watch_stores<D: Disk>(core: &Core<D>, set: &WriteSet) {
    for object in &set.objects {
        let contents = object.contents.as_ref();
        let is_watched =
            contents.is_some_and(|contents| contents.is_used && contents.replacement.is_none());
        if is_watched && let Ok(file) = core.open_now(&object.base, Access::Read) {
            // If this fails, only the detection of such stores does.
            let _ = core.disk.write_back(&file);
        }
    }
}

/// Whether it has several names or flags, so that no new inode can stand for it.
fn is_bound<D: Disk>(core: &Core<D>, object: &ObjectWrite) -> bool {
    // If the file is missing, an outside writer has just removed it.
    let is_linked = core.stat_now(&object.base).is_ok_and(|stat| stat.links > 1);
    is_linked && Rule::ChangeLinkedInPlace.holds() || has_flags(core, &object.base)
}

/// Whether somebody else owns it, and the user has fewer rights than this process.
fn is_anothers<D: Disk>(view: &View<D>, object: &ObjectWrite) -> bool {
    let core = &view.core;
    let user = view.restricted_to.as_ref();
    user.filter(|_| core.options.privileges.all)
        .is_some_and(|user| {
            let stat = core.stat_now(&object.base);
            stat.is_ok_and(|stat| stat.attributes.owner.user != user.user)
        })
}

fn is_running<D: Disk>(core: &Core<D>, object: &ObjectWrite) -> bool {
    let opened = core.open_now(&object.base, Access::ReadWrite);
    opened.is_err_and(|errno| errno == Errno::TXTBSY)
}

fn conflict(path: &TreePath, what: ConflictKind) -> CommitError {
    CommitError::Conflict(vec![Conflict {
        path: path.to_bytes(),
        what,
        by: ChangedBy::Outside,
    }])
}

fn is_in_use<D: Disk>(
    core: &Core<D>,
    (identity, place): (Identity, Place),
    path: &TreePath,
) -> Result<bool, CommitError> {
    let failed = |errno| CommitError::io("look for users of", path, errno);
    match core.open_at(&place, identity, Access::Read) {
        // If the question fails, somebody may use it.
        Ok(file) => Ok(core.is_open_for_writing(&file).unwrap_or(true)
            || core.disk.is_locked(&file).unwrap_or(true)),
        // Somebody who has the file open for writing holds a lease on it.
        Err(Errno::AGAIN) => Err(failed(Errno::AGAIN)),
        // The owner has closed the file, or an outside writer has just removed it.
        Err(_) => Ok(false),
    }
}

fn has_flags<D: Disk>(core: &Core<D>, base: &Base) -> bool {
    if core.ahead.has_made(base.identity()) {
        return false;
    }
    let opened = core.open_now(base, Access::Read);
    opened
        .and_then(|file| core.disk.has_flags(&file))
        // The owner has closed the file, or an outside writer has just removed it.
        .unwrap_or(false)
}

enum Failed {
    Comparison(Errno),
    Flush(Errno),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Failed {
        Failed::Comparison(errno)
    }
}

/// For a file that was written whole and is changed in place: what differs from the base. `None` if
/// it was not written whole, or cannot be read. A file that was empty and still is was not written:
/// what others have appended since stays.
fn differing<D: Disk>(
    view: &mut View<D>,
    object: &ObjectWrite,
) -> Result<Option<Overwrite>, Failed> {
    let contents = object.contents.as_ref();
    let contents = contents.filter(|contents| contents.keep == 0);
    let Some(length) = contents.and_then(|contents| contents.length) else {
        return Ok(None);
    };
    let core = view.core.clone();
    let Ok(base) = core.open_now(&object.base, Access::Read) else {
        return Ok(None);
    };
    let staged = view.staged_file(object.node)?;
    let present = core.disk.stat(&base)?.length;
    let comparison = Comparison {
        disk: &core.disk,
        files: [&base, &*staged],
        both: present.min(length),
    };
    let mut pages = RangeSet::default();
    comparison.run(&mut pages)?;
    core.disk.sync_data(&base).map_err(Failed::Flush)?;
    if present < length {
        pages.insert(present / PAGE, length.div_ceil(PAGE));
    }
    Ok(Some(Overwrite {
        keep: (length < present).then_some(length),
        length,
        pages,
    }))
}

struct Comparison<'a, D: Disk> {
    disk: &'a D,
    files: [&'a D::Handle; 2],
    /// How many bytes both files have.
    both: u64,
}

impl<D: Disk> Comparison<'_, D> {
    /// Adds the pages that differ.
    fn run(&self, pages: &mut RangeSet) -> Result<(), Errno> {
        let mut buffers = [vec![0; CHUNK as usize], vec![0; CHUNK as usize]];
        let mut at = 0;
        while let Some(part) = self.next(at)? {
            let length = (part.end - part.start) as usize;
            for (file, buffer) in self.files.iter().zip(&mut buffers) {
                let count = self.disk.read_at(file, &mut buffer[..length], part.start)?;
                buffer[count..length].fill(0);
            }
            let [old, new] = &buffers;
            let page = PAGE as usize;
            let old = old[..length].chunks(page);
            for (number, (old, new)) in old.zip(new[..length].chunks(page)).enumerate() {
                if old != new {
                    let number = part.start / PAGE + number as u64;
                    pages.insert(number, number + 1);
                }
            }
            at = part.end;
        }
        Ok(())
    }

    /// The next part at or after the offset in which one of the files has data. It begins with a page.
    fn next(&self, at: u64) -> Result<Option<Range<u64>>, Errno> {
        let mut start = self.both;
        for file in self.files {
            if let Some(data) = self.disk.next_data(file, at)? {
                start = start.min(data.offset.max(at));
            }
        }
        if start >= self.both {
            return Ok(None);
        }
        let start = start / PAGE * PAGE;
        Ok(Some(start..(start + CHUNK).min(self.both)))
    }
}
