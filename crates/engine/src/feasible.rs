//! What the file system would refuse when a commit is applied is found out
//! while there is still a way back.
//!
//! Most errors cannot happen, as the same was done in the staging directory.
//! What remains: objects that are locked (chattr +i and +a, mount points, swap
//! files), names that may not be removed, and extended attributes that do not
//! fit, which is tried on a stand-in.

use std::collections::HashSet;
use std::sync::Arc;

use atomdir_disk::{Access, Disk, Errno, Kind, Name, NewNode};

use crate::base::{Base, Place, Xattrs};
use crate::control;
use crate::core::Core;
use crate::error::CommitError;
use crate::names;
use crate::write_set::{Object, ObjectWrite, WriteSet};

type Outcome<T> = Result<T, CommitError>;

const REMOVE: &str = "remove, rename or replace locked";

pub(crate) fn check<D: Disk>(core: &Core<D>, set: &WriteSet) -> Outcome<()> {
    let mut directories = HashSet::new();
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            if directories.insert(directory.serial) {
                check_unlocked(
                    core,
                    directory,
                    "change an entry of a locked directory:",
                    &entry.path,
                )?;
            }
            if let Some(before) = &entry.before {
                check_unlocked(core, before, REMOVE, &entry.path)?;
                check_removable(core, (directory, &entry.name), before.kind, &entry.path)?;
            }
        }
        if let Some(Object::Base(after)) = &entry.after {
            let path = after.path().unwrap_or_default();
            check_unlocked(core, after, "rename or link locked", &path)?;
        }
    }
    for base in set.dying.values() {
        check_unlocked(
            core,
            base,
            "remove locked",
            &base.path().unwrap_or_default(),
        )?;
    }
    for object in &set.objects {
        check_unlocked(core, &object.base, "change locked", &object.path)?;
        let is_new = object
            .contents
            .as_ref()
            .is_some_and(|contents| contents.replacement.is_some());
        if is_new && let Place::Entry { parent, name } = object.base.state().place.clone() {
            check_removable(core, (&parent, &name), object.base.kind, &object.path)?;
        }
        if !object.xattrs.is_empty() && !is_new {
            rehearse_xattrs(core, object).map_err(|errno| {
                CommitError::io("set the extended attributes of", &object.path, errno)
            })?;
        }
    }
    Ok(())
}

fn check_unlocked<D: Disk>(
    core: &Core<D>,
    base: &Base,
    step: &'static str,
    path: &[u8],
) -> Outcome<()> {
    match core.stat_now(base) {
        Ok(stat) if stat.immutable => Err(CommitError::io(step, path, Errno::PERM)),
        // The root may be a mount point; nothing moves it.
        Ok(stat) if stat.mount_point && base.serial != 0 => {
            Err(CommitError::io(step, path, Errno::BUSY))
        }
        // What is missing was for validation to find.
        _ => Ok(()),
    }
}

/// Of anything but a directory. The kernel checks whether a name may be removed
/// before it notices that rmdir(2) is not the way.
fn check_removable<D: Disk>(
    core: &Core<D>,
    (directory, name): (&Arc<Base>, &Name),
    kind: Kind,
    path: &[u8],
) -> Outcome<()> {
    if kind == Kind::Directory {
        return Ok(());
    }
    let removed = core
        .directory(directory)
        .and_then(|handle| core.disk.remove_directory(&handle, name));
    match removed {
        Err(errno @ (Errno::PERM | Errno::TXTBSY | Errno::BUSY)) => {
            Err(CommitError::io(REMOVE, path, errno))
        }
        // Rights are given and taken by commits: see `apply::rights`.
        _ => Ok(()),
    }
}

/// Sets all extended attributes that the object will have on a stand-in.
fn rehearse_xattrs<D: Disk>(core: &Core<D>, object: &ObjectWrite) -> Result<(), Errno> {
    let xattrs = object.xattrs_to_be(core)?;
    let (stage, name) = (&core.control.stage, names::fixed(names::REHEARSAL));
    // One whose removal failed may be there.
    control::remove_tree(&core.disk, stage, &name)?;
    match object.base.kind {
        Kind::File => core.disk.create(stage, &name, 0o600).map(drop)?,
        Kind::Directory => core.disk.make(stage, &name, &NewNode::Directory, 0o700)?,
        _ => return Ok(()),
    }
    let set = set_all(core, &xattrs);
    match object.base.kind {
        Kind::Directory => core.disk.remove_directory(stage, &name)?,
        _ => core.disk.unlink(stage, &name)?,
    }
    set
}

fn set_all<D: Disk>(core: &Core<D>, xattrs: &Xattrs) -> Result<(), Errno> {
    let name = names::fixed(names::REHEARSAL);
    let handle = core.disk.open(&core.control.stage, &name, Access::Path)?;
    xattrs
        .iter()
        .try_for_each(|(name, value)| core.disk.set_xattr(&handle, name, value))
}
