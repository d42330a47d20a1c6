//! Looks up what a commit replaces. The record then contains it, so that the commit can be undone.
//!
//! Objects that lose their last name, and inodes that are replaced, are moved to limbo when the
//! commit is applied. For each object that stays, the record holds the old attributes. It
//! also holds the pages that are overwritten in place, if they are few. Otherwise they are copied
//! to a file in limbo.
//!
//! Invariant: that file is durable before the record is appended, and so before the base is
//! overwritten. It is written once and never changed.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Extent, Identity, Kind, Stat};
use atomdir_format::record::{Before, Former, FormerPages, Run};
use atomdir_types::TreePath;

use crate::base::core::Core;
use crate::base::snapshot::PAGE;
use crate::base::{Base, space_of};
use crate::commit::carry::read_runs;
use crate::commit::prepare::unflushed;
use crate::control;
use crate::error::CommitError;
use crate::ids::Sequence;
use crate::names;
use crate::options::OLD_BYTES_CARRIED_MAX;
use crate::seen::Seen;
use crate::write_set::{ContentsWrite, Object, ObjectWrite, WriteSet};

type Outcome<T> = Result<T, CommitError>;
/// Former states, whose indices are not known yet.
type FormerOf = Vec<(Arc<Base>, Former)>;
type XattrChanges = Vec<(Vec<u8>, Option<Vec<u8>>)>;

const COPY_CHUNK: u64 = 1 << 20;

/// Returns the part of the record that describes the base before the commit.
pub(crate) fn look_before<D: Disk>(
    core: &Core<D>,
    (set, validated): (&WriteSet, &Seen),
    sequence: Sequence,
) -> Outcome<(Before, FormerOf)> {
    let mut look = Look {
        core,
        validated,
        sequence,
        noted: HashSet::new(),
        former: Vec::new(),
        limbo_bytes: set.dying_bytes,
        has_saved: false,
    };
    let in_place = set.objects.iter().filter(|object| is_in_place(object));
    let lengths = in_place.clone().map(|object| {
        let contents = object.contents.as_ref();
        contents.map_or(Ok(0), |contents| {
            let stat = look.stat_validated(&object.base)?;
            let extents = overwritten(contents, stat.length);
            Ok(extents.iter().map(|extent| extent.length).sum::<u64>())
        })
    });
    let total: Result<u64, Errno> = lengths.sum();
    let total = total.map_err(|errno| failed(&TreePath::default(), errno))?;
    let carries = total <= OLD_BYTES_CARRIED_MAX.min(core.options.carried_bytes_max);
    for object in in_place {
        look.add_object(object, carries)?;
    }
    for base in set.replaced() {
        // If an outside writer has removed it, nothing is kept.
        if let Ok(stat) = look.stat_validated(base) {
            look.limbo_bytes += space_of(&stat);
            look.add_unchanged(base, &stat);
        }
    }
    for entry in &set.entries {
        // If an outside writer has removed it, nothing is kept.
        if let Some(left) = &entry.before
            && look.is_new_file(left)
            && let Ok(stat) = look.stat_validated(left)
        {
            look.add_unchanged(left, &stat);
        }
        if let Some(Object::Base(moved)) = &entry.after
            && look.is_new_file(moved)
        {
            let stat = look.stat_validated(moved);
            let stat = stat.map_err(|errno| failed(&entry.path, errno))?;
            look.add_unchanged(moved, &stat);
        }
    }
    if look.has_saved {
        core.disk
            .sync_directory(&core.control.limbo)
            .map_err(unflushed)?;
    }
    let before = Before {
        limbo_bytes: look.limbo_bytes,
        objects: Vec::new(),
        successions: Vec::new(),
        takes_back: Vec::new(),
        leaves_traces: false,
    };
    Ok((before, look.former))
}

/// Whether the object keeps its inode, and more changes than a directory's times.
fn is_in_place(object: &ObjectWrite) -> bool {
    let contents = object.contents.as_ref();
    let is_replaced = contents.is_some_and(|contents| contents.replacement.is_some());
    !object.is_implied && !is_replaced
}

/// The extents of a file of this length that a change of contents overwrites or cuts off.
fn overwritten(contents: &ContentsWrite, length: u64) -> Vec<Extent> {
    extents_of_pages(contents.overwritten(), length)
}

/// The extents of these pages in a file of this length.
pub(super) fn extents_of_pages(
    pages: impl IntoIterator<Item = (u64, u64)>,
    length: u64,
) -> Vec<Extent> {
    let ranges = pages.into_iter().map(|(start, end)| {
        let offset = start.saturating_mul(PAGE);
        (offset, end.saturating_mul(PAGE).min(length))
    });
    let extents = ranges.filter(|(offset, end)| offset < end);
    let extents = extents.map(|(offset, end)| Extent {
        offset,
        length: end - offset,
    });
    extents.collect()
}

struct Look<'a, D: Disk> {
    core: &'a Core<D>,
    validated: &'a Seen,
    sequence: Sequence,
    /// By serial: the objects in `former`.
    noted: HashSet<u64>,
    former: FormerOf,
    limbo_bytes: u64,
    has_saved: bool,
}

impl<D: Disk> Look<'_, D> {
    /// The attributes that validation read hold until the commit is applied; otherwise the commit
    /// is cancelled.
    fn stat_validated(&self, base: &Base) -> Result<Stat, Errno> {
        let validated = self.validated.stat(base);
        validated.map_or_else(|| self.core.stat_now(base), Ok)
    }

    fn add_object(&mut self, object: &ObjectWrite, carries: bool) -> Outcome<()> {
        self.noted.insert(object.base.serial);
        let failed = |errno| failed(&object.path, errno);
        let mut former = former(&self.stat_validated(&object.base).map_err(failed)?);
        former.xattrs = self.xattrs(object).map_err(failed)?;
        if let Some(contents) = &object.contents {
            former.extents = overwritten(contents, former.length);
            if !former.extents.is_empty() {
                former.pages = self.pages(object, &former.extents, carries)?;
            }
        }
        self.former.push((object.base.clone(), former));
        Ok(())
    }

    /// A file that gets another name, or loses one, has another change time afterwards. That would
    /// hide the change of an outside writer.
    fn add_unchanged(&mut self, base: &Arc<Base>, stat: &Stat) {
        if self.noted.insert(base.serial) {
            self.former.push((base.clone(), former(stat)));
        }
    }

    fn is_new_file(&self, base: &Base) -> bool {
        base.kind != Kind::Directory && !self.noted.contains(&base.serial)
    }

    fn xattrs(&self, object: &ObjectWrite) -> Result<XattrChanges, Errno> {
        if object.xattrs.is_empty() {
            return Ok(Vec::new());
        }
        let (identity, place) = object.base.identity_and_place();
        let present = self.core.xattrs_at(&place, identity)?;
        let old = object.xattrs.iter().map(|(name, _)| {
            let old = present.iter().find(|(of, _)| of == name);
            (name.clone(), old.map(|(_, value)| value.clone()))
        });
        Ok(old.collect())
    }

    fn pages(
        &mut self,
        object: &ObjectWrite,
        extents: &[Extent],
        carries: bool,
    ) -> Outcome<FormerPages> {
        let failed = |errno| failed(&object.path, errno);
        let (identity, place) = object.base.identity_and_place();
        let file = self.core.contents(identity, &place).map_err(failed)?;
        let disk = &self.core.disk;
        if carries {
            let mut runs: Vec<Run> = Vec::new();
            for extent in extents {
                runs.append(&mut read_runs(disk, &file, *extent).map_err(failed)?);
            }
            return Ok(FormerPages::Carried { runs });
        }
        let (saved, bytes) = self.save(identity, &file, extents).map_err(failed)?;
        disk.sync(&saved).map_err(unflushed)?;
        self.limbo_bytes += bytes;
        self.has_saved = true;
        Ok(FormerPages::Limbo)
    }

    /// Copies the extents without their holes; returns the file and the space it takes.
    fn save(
        &self,
        identity: Identity,
        file: &D::Handle,
        extents: &[Extent],
    ) -> Result<(D::Handle, u64), Errno> {
        let (disk, limbo) = (&self.core.disk, &self.core.control.limbo);
        let name = names::saved_pages(identity, self.sequence);
        // A commit that could not be logged may have left it.
        control::remove(disk, limbo, &name)?;
        let saved = disk.create(limbo, &name, 0o600)?;
        for Extent { offset, length } in extents {
            let (mut at, end) = (*offset, offset + length);
            while at < end
                && let Some(data) = disk.next_data(file, at)?
                && data.offset < end
            {
                at = at.max(data.offset);
                let stop = data.offset.saturating_add(data.length).min(end);
                while at < stop {
                    let count = (stop - at).min(COPY_CHUNK);
                    match disk.copy_range((file, at), (&saved, at), count)? {
                        0 => return Err(Errno::IO),
                        copied => at += copied,
                    }
                }
            }
        }
        let space = space_of(&disk.stat(&saved)?);
        Ok((saved, space))
    }
}

pub(super) fn former(stat: &Stat) -> Former {
    Former {
        object: 0,
        attributes: stat.attributes,
        changed: stat.changed,
        length: stat.length,
        xattrs: Vec::new(),
        extents: Vec::new(),
        pages: FormerPages::Carried { runs: Vec::new() },
    }
}

fn failed(path: &TreePath, errno: Errno) -> CommitError {
    CommitError::io("keep for the history the old state of", path, errno)
}
