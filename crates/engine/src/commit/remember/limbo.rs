//! Objects in limbo become as they were before: an undo brings them back from there.

use std::sync::Arc;

use atomdir_disk::{Access, Attributes, Disk, Errno, Kind, Name, RenameMode, Result};

use super::found::Finder;
use crate::base::snapshot::read_xattrs;
use crate::base::{Base, OldAttributes, Place};
use crate::commit::before::extents_of_pages;

/// Gives what was removed its old attributes and contents, if these were changed before.
pub(super) fn as_they_were<D: Disk>(finder: &Finder<'_, D>) -> Result<()> {
    for base in finder.dead.values() {
        let Some(old) = finder.old_attributes(base) else {
            continue;
        };
        if base.kind == Kind::File {
            restore_contents(finder, base, &old)?;
        }
        restore_attributes(finder, base, &old)?;
    }
    Ok(())
}

fn restore_contents<D: Disk>(
    finder: &Finder<'_, D>,
    base: &Arc<Base>,
    old: &OldAttributes,
) -> Result<()> {
    let has_changed = !base.state().bodies_after(finder.at).is_empty();
    if !has_changed {
        return Ok(());
    }
    let (core, length) = (finder.core, old.stat.length);
    let (identity, place) = base.identity_and_place();
    let file = core.open_at(&place, identity, Access::ReadWrite)?;
    let kept = extents_of_pages(finder.kept_pages(base).iter(), length);
    finder.write_old(base, &kept, &file)?;
    core.disk.set_length(&file, length)
}

fn restore_attributes<D: Disk>(
    finder: &Finder<'_, D>,
    base: &Arc<Base>,
    old: &OldAttributes,
) -> Result<()> {
    let (core, disk) = (finder.core, &finder.core.disk);
    let (identity, place) = base.identity_and_place();
    let Attributes { mode, owner, times } = old.stat.attributes;
    core.with_object(&place, identity, |object| {
        let now = disk.stat(object)?.attributes;
        if now.owner != owner {
            disk.set_owner(object, owner)?;
        }
        if now.mode != mode && base.kind != Kind::Symlink {
            disk.set_mode(object, mode)?;
        }
        let present = read_xattrs(disk, object)?;
        for (name, _) in &present {
            if old.xattrs.iter().all(|(known, _)| known != name) {
                disk.remove_xattr(object, name)?;
            }
        }
        for one in old.xattrs.iter().filter(|one| !present.contains(one)) {
            disk.set_xattr(object, &one.0, &one.1)?;
        }
        if now.times.modified != times.modified {
            disk.set_times(object, times)?;
        }
        Ok(())
    })
}

/// Puts what was removed back into the removed directories in which it was: an undo brings these
/// back whole. Returns the names in limbo that are no more.
pub(super) fn into_removed_directories<D: Disk>(finder: &Finder<'_, D>) -> Result<Vec<Name>> {
    let (core, disk) = (finder.core, &finder.core.disk);
    let is_dead = |base: &Arc<Base>| finder.dead.contains_key(&base.serial);
    let mut moved = Vec::new();
    for entry in finder.entries.iter().filter(|one| is_dead(&one.directory)) {
        let Some(old) = entry.old.as_ref().filter(|old| is_dead(old)) else {
            continue;
        };
        let directory = core.directory(&entry.directory)?;
        let place = old.state().place.clone();
        match place {
            Place::Limbo(limbo) => {
                let from = (&*core.control.limbo, &limbo);
                let to = (&*directory, &entry.name);
                disk.rename(from, to, RenameMode::NoReplace)?;
                moved.push(limbo);
                core.set_place(old, &entry.directory, &entry.name);
            }
            // It had several names.
            Place::Entry { parent, name } => {
                let from = core.directory(&parent)?;
                disk.link((&from, &name), (&directory, &entry.name))?;
            }
            Place::Root | Place::Held => return Err(Errno::STALE),
        }
    }
    // Their times have just changed.
    for base in finder.dead.values() {
        if base.kind == Kind::Directory
            && let Some(old) = finder.old_attributes(base)
        {
            let (identity, place) = base.identity_and_place();
            let times = old.stat.attributes.times;
            core.with_object(&place, identity, |object| disk.set_times(object, times))?;
        }
    }
    Ok(moved)
}
