//! Takes set-id bits and file capabilities from files that a user's commit writes.
//!
//! The kernel does this when a user writes to a file, and a view does it with what its
//! snapshot shows. But a commit or an outside writer can give a file such privileges later.
//! New contents do not conflict with that, and the kernel takes none when root's service
//! writes.
//!
//! Invariant: a commit of a user other than root leaves no such privileges on a file whose
//! contents it changes, except those that its transaction has set.
//! 1. The record takes those that the file has under the commit lock, so that older
//!    snapshots go on showing them.
//! 2. Apply takes those that the file gets after that and before the new contents, and so
//!    does every redo (`apply::updates`).
//! 3. A new inode does not take them over.

use atomdir_disk::{Disk, Errno};

use crate::base::Xattrs;
use crate::base::core::Core;
use crate::base::privileges::{CAPABILITY, without_set_id};
use crate::error::CommitError;
use crate::write_set::{ObjectWrite, WriteSet};

pub(crate) fn take<D: Disk>(
    core: &Core<D>,
    owner: u32,
    set: &mut WriteSet,
) -> Result<(), CommitError> {
    // A commit of root keeps them. If this process lacks root's rights, the kernel takes
    // them.
    if owner == 0 || !core.options.privileges.all {
        return Ok(());
    }
    for object in &mut set.objects {
        if object.contents.is_some() {
            take_of(core, object)
                .map_err(|errno| CommitError::io("look at", &object.path, errno))?;
        }
    }
    Ok(())
}

fn take_of<D: Disk>(core: &Core<D>, object: &mut ObjectWrite) -> Result<(), Errno> {
    let (identity, place) = object.base.identity_and_place();
    let (mode, has_capability) = core.with_object(&place, identity, |file| {
        let mode = core.disk.stat(file)?.attributes.mode;
        match core.disk.xattr(file, CAPABILITY) {
            Ok(_) => Ok((mode, true)),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok((mode, false)),
            Err(errno) => Err(errno),
        }
    })?;
    let left = without_set_id(mode);
    if mode != left {
        object.attributes.mode.get_or_insert(left);
    }
    if has_capability && !sets_capability(object) {
        object.xattrs.push((CAPABILITY.to_vec(), None));
    }
    Ok(())
}

fn sets_capability(object: &ObjectWrite) -> bool {
    object.xattrs.iter().any(|(name, _)| name == CAPABILITY)
}

/// The mode of a new inode, if the transaction sets none.
pub(crate) fn mode_to_take_over(present: u32, owner: u32) -> u32 {
    match owner {
        0 => present,
        _ => without_set_id(present),
    }
}

/// The extended attributes of a new inode.
pub(crate) fn xattrs_to_be<D: Disk>(
    core: &Core<D>,
    owner: u32,
    object: &ObjectWrite,
) -> Result<Xattrs, Errno> {
    let mut xattrs = object.xattrs_to_be(core)?;
    if owner != 0 && !sets_capability(object) {
        xattrs.retain(|(name, _)| name != CAPABILITY);
    }
    Ok(xattrs)
}
