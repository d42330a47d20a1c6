//! What the file system would refuse when a commit is applied is found out
//! while there is still a way back.
//!
//! Most errors cannot happen, as the same was done in the staging directory.
//! What remains: objects that are locked (chattr +i and +a, mount points), and
//! extended attributes that do not fit, which is tried on a stand-in.

use atomdir_disk::{Access, Disk, Errno, Kind, NewNode};

use crate::base::{Base, Xattrs};
use crate::core::Core;
use crate::error::CommitError;
use crate::names;
use crate::write_set::{Object, ObjectWrite, WriteSet};

type Outcome<T> = Result<T, CommitError>;

pub(crate) fn check<D: Disk>(core: &Core<D>, set: &WriteSet) -> Outcome<()> {
    for entry in &set.entries {
        if let Object::Base(directory) = &entry.directory {
            check_unlocked(
                core,
                directory,
                "change an entry of a locked directory:",
                &entry.path,
            )?;
        }
        if let Some(before) = &entry.before {
            check_unlocked(
                core,
                before,
                "remove, rename or replace locked",
                &entry.path,
            )?;
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

/// Sets all extended attributes that the object will have on a stand-in.
fn rehearse_xattrs<D: Disk>(core: &Core<D>, object: &ObjectWrite) -> Result<(), Errno> {
    let xattrs = object.xattrs_to_be(core)?;
    let (stage, name) = (&core.control.stage, names::fixed(names::REHEARSAL));
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
