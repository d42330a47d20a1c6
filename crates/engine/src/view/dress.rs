//! Gives a staged object the attributes that the view shows of it.

use atomdir_disk::{Attributes, Disk, Errno, Kind, Owner};

use crate::base::Xattrs;
use crate::base::core::Core;
use crate::base::rights::with_rights;

/// Sets a staged object's owner, extended attributes, mode and times, in an
/// order in which none undoes another.
pub(crate) fn dress<D: Disk>(
    core: &Core<D>,
    handle: &D::Handle,
    kind: Kind,
    wanted: Attributes,
    xattrs: &Xattrs,
) -> Result<(), Errno> {
    let disk = &core.disk;
    let present = disk.stat(handle)?.attributes;
    let Owner { user, group } = wanted.owner;
    if (present.owner.user, present.owner.group) != (user, group) {
        disk.set_owner(handle, wanted.owner)?;
    }
    for (name, value) in xattrs {
        with_rights(disk, &[handle], || disk.set_xattr(handle, name, value))?;
    }
    if kind != Kind::Symlink {
        disk.set_mode(handle, wanted.mode)?;
    }
    disk.set_times(handle, wanted.times)
}
