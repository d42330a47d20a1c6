//! Unmounts what ordinary users have mounted in the way.

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, openat};
use rustix::io::retry_on_intr;
use rustix::mount::UnmountFlags;

use super::open::path_of;
use crate::mounts::{self, Mount};
use crate::{Errno, Name, Result};

/// How many file systems are unmounted from one name: a user can mount one on another.
const COVERS_MAX: usize = 64;

/// An ordinary user's mount can only be a FUSE file system: `fusermount3` mounts it for them.
pub(super) fn uncover(directory: &OwnedFd, name: &Name) -> Result<bool> {
    for count in 0..COVERS_MAX {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let cover = retry_on_intr(|| openat(directory, name.as_bytes(), flags, Mode::empty()))?;
        // Requests nothing for which the kernel would have to ask the server of a mounted file
        // system.
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let stat = retry_on_intr(|| rustix::fs::statx(&cover, c"", flags, StatxFlags::empty()))?;
        let is_cover = |mount: &Mount| mount.id == stat.stx_mnt_id;
        let mount = mounts::list()?.into_iter().find(is_cover);
        let is_users = mount.is_some_and(|mount| mount.user.is_some_and(|user| user != 0));
        // The store itself may lie in a user's FUSE file system.
        let is_root = stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        if !is_root || !is_users {
            return Ok(count > 0);
        }
        match rustix::mount::unmount(path_of(&cover), UnmountFlags::DETACH) {
            Err(Errno::PERM) => return Ok(false),
            unmounted => unmounted?,
        }
    }
    Ok(true)
}
