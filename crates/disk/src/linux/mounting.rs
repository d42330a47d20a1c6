//! Identifies the present boot and mount, and unmounts what is in the way.

use std::sync::OnceLock;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, openat};
use rustix::io::retry_on_intr;
use rustix::mount::UnmountFlags;

use super::open::path_of;
use crate::mounts::{self, Mount};
use crate::{Errno, Mounting, Name, Result};

/// `STATX_MNT_ID_UNIQUE`, since Linux 6.8. The older id is used again after a
/// file system is unmounted, and its device may have crashed in between.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

pub(super) fn of(object: &OwnedFd) -> Result<Option<Mounting>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = retry_on_intr(|| rustix::fs::statx(object, c"", flags, MNT_ID_UNIQUE))?;
    if stat.stx_mask & MNT_ID_UNIQUE.bits() == 0 {
        return Ok(None);
    }
    let mount = stat.stx_mnt_id;
    Ok(boot().map(|boot| Mounting { boot, mount }))
}

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

/// The kernel's random number for this boot, or `None` without `/proc`.
fn boot() -> Option<[u8; 16]> {
    static BOOT: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        let path = c"/proc/sys/kernel/random/boot_id";
        let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 64];
        let count = retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
        let digits = str::from_utf8(&text[..count]).ok()?.trim().replace('-', "");
        u128::from_str_radix(&digits, 16)
            .ok()
            .map(u128::to_le_bytes)
    })
}
