//! Fits a write set, prepared from a snapshot, to what others have committed since to other
//! parts of the same objects. The commit lock is held. Validation has found no conflict, except
//! that `correct_places` runs before it.
//!
//! Invariant: a file has one inode, whatever names others have given it meanwhile. A write set
//! may replace a file by a new inode, because the file had one name when that was decided. If it
//! has several by now, the names that this transaction does not know would keep the old inode.
//! Nobody can list those names, since outside writers link, too. So such a file is changed in
//! place (`in_place`), like every file with several names: its staged pages are written into the
//! inode that all its names have.
//!
//! An outside writer may still link the file before the record is written. The last check looks
//! for that and reports a conflict. A link that is made after the check, before the commit is
//! applied, keeps the old inode. This is as if the link had been made before and the file had
//! then been replaced by a rename.

use std::sync::Arc;

use atomdir_disk::{Disk, Errno, Kind};

use crate::base::Place;
use crate::base::core::Core;
use crate::commit::prepare::{Fill, unflushed};
use crate::commit::privileges;
use crate::error::{ChangedBy, CommitError, Conflict, ConflictKind};
use crate::ids::Sequence;
use crate::rules::Rule;
use crate::view::View;
use crate::view::dress::dress;
use crate::write_set::{ContentsWrite, Object, ObjectWrite, Staging, WriteSet};

/// If a file has several names, sets its place to the name by which the transaction knows it,
/// because that name stays.
pub(crate) fn correct_places<D: Disk>(view: &View<D>, set: &WriteSet) {
    let written = set.objects.iter().map(|object| (object.node, &object.base));
    let linked = set.entries.iter().filter_map(|entry| match &entry.after {
        Some(Object::Base(base)) => Some((*view.nodes.by_base.get(&base.serial)?, base)),
        _ => None,
    });
    let written = written.filter(|_| Rule::CorrectPlaces.holds());
    let linked = linked.filter(|_| Rule::CorrectPlacesOfLinked.holds());
    for (node, base) in written.chain(linked) {
        if base.kind == Kind::Directory {
            continue;
        }
        let Some((parent, name)) = view.base_place(node) else {
            continue;
        };
        if base.state().place.is_entry(&parent, &name) {
            continue;
        }
        let core = &view.core;
        let present = core
            .directory(&parent)
            .and_then(|handle| core.disk.stat_at(&handle, &name));
        let mut state = base.state();
        if present.is_ok_and(|stat| stat.identity == state.identity) {
            state.place = Place::Entry { parent, name };
        }
    }
}

/// Looks for the last time at a file that gets a new inode.
pub(crate) fn refuse_linked_since<D: Disk>(
    core: &Core<D>,
    object: &ObjectWrite,
) -> Result<(), CommitError> {
    let is_linked = core.stat_now(&object.base).is_ok_and(|stat| stat.links > 1);
    if is_linked && Rule::ChangeLinkedInPlace.holds() {
        return Err(CommitError::Conflict(vec![Conflict {
            path: object.path.to_bytes(),
            what: ConflictKind::Contents,
            by: ChangedBy::Outside,
        }]));
    }
    Ok(())
}

/// Completes replacements once more: a file prepared as a whole from the snapshot must not undo
/// what others have since committed to other parts of it.
pub(crate) fn refresh_replacements<D: Disk>(
    view: &mut View<D>,
    owner: u32,
    set: &WriteSet,
    staging: Staging,
) -> Result<(), CommitError> {
    for object in &set.objects {
        let at = view.at;
        let changed = object
            .base
            .state()
            .changed()
            .and_then(|changed| changed.anything());
        let replaced = object.contents.as_ref();
        let replaced = replaced.filter(|contents| contents.replacement.is_some());
        if let Some(contents) = replaced
            && changed.is_some_and(|changed| changed > at)
            && Rule::RefreshReplacements.holds()
        {
            let file = refresh(view, owner, object, contents)
                .map_err(|errno| CommitError::io("stage", &object.path, errno))?;
            if staging == Staging::Flushed {
                view.core.disk.sync(&file).map_err(unflushed)?;
            }
        }
    }
    Ok(())
}

/// Returns the staged file, not yet flushed.
fn refresh<D: Disk>(
    view: &mut View<D>,
    owner: u32,
    object: &ObjectWrite,
    contents: &ContentsWrite,
) -> Result<Arc<D::Handle>, Errno> {
    let file = view.staged_file(object.node)?;
    let core = view.core.clone();
    let present = core.stat_now(&object.base)?;
    let length = contents.length.unwrap_or(present.length);
    let keep = if contents.length.is_some() {
        contents.keep
    } else {
        present.length
    };
    let newest = Sequence::AFTER_ALL;
    Fill {
        base: &object.base,
        at: newest,
        pages: &contents.pages,
        keep,
        length,
    }
    .run(&core, &file)?;
    let change = &object.attributes;
    let mut attributes = present.attributes;
    let taken_over = privileges::mode_to_take_over(attributes.mode, owner);
    attributes.mode = change.mode.unwrap_or(taken_over);
    attributes.owner.user = change.user.unwrap_or(attributes.owner.user);
    attributes.owner.group = change.group.unwrap_or(attributes.owner.group);
    attributes.times.modified = change.modified.unwrap_or(attributes.times.modified);
    attributes.times.accessed = change.accessed.unwrap_or(attributes.times.accessed);
    let xattrs = privileges::xattrs_to_be(&core, owner, object)?;
    // The file was staged with those of the snapshot.
    for name in core.disk.xattr_names(&file)? {
        if !xattrs.iter().any(|(wanted, _)| *wanted == name) {
            core.disk.remove_xattr(&file, &name)?;
        }
    }
    dress(&core, &file, object.base.kind, attributes, &xattrs)?;
    Ok(file)
}
