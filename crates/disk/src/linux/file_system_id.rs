//! An id of a file system that lasts as long as the file system.
//!
//! `f_fsid` comes from the file system's UUID only for some types; of others, as XFS, it is the
//! device's number, which may be another one after a reboot. Only types are asked for which the answer
//! is the same in every kernel that we support, so that a newer kernel does not change the id.

use std::mem::MaybeUninit;

use rustix::fd::OwnedFd;
use rustix::fs::FsWord;
use rustix::ioctl::{Getter, ioctl, opcode};

use crate::FileSystemId;

/// Linux's `include/uapi/linux/magic.h`, and the sources of bcachefs and ZFS. The id of a
/// Btrfs file system is combined with that of the subvolume, so a snapshot has another one.
const WITH_UUID_IN_FSID: [FsWord; 5] = [
    0xef53,
    0x9123_683e,
    0x0102_1994,
    0xca45_1a4e_u32 as FsWord,
    0x2fc1_2fc1,
];
const XFS_SUPER_MAGIC: FsWord = 0x5846_5342;

/// `struct xfs_fsop_geom_v1`, of which only the UUID matters here.
#[repr(C, align(8))]
struct XfsGeometry {
    sizes: [u8; 64],
    uuid: [u8; 16],
    rest: [u8; 32],
}

pub(super) fn of(object: &OwnedFd, kind: FsWord, fsid: u64) -> FileSystemId {
    let mut id = [0; 16];
    if WITH_UUID_IN_FSID.contains(&kind) {
        id[..8].copy_from_slice(&fsid.to_le_bytes());
    } else if kind == XFS_SUPER_MAGIC
        && let Some(geometry) = xfs_geometry(object)
    {
        id = geometry.uuid;
    }
    FileSystemId(id)
}

/// `None` for a handle that was opened with `O_PATH`.
fn xfs_geometry(object: &OwnedFd) -> Option<XfsGeometry> {
    const XFS_IOC_FSGEOMETRY_V1: u32 = opcode::read::<XfsGeometry>(b'X', 100);
    let _ = MaybeUninit::<XfsGeometry>::uninit();
    // SAFETY: The call fills a structure of this size, whose bytes may have any value.
    unsafe { ioctl(object, Getter::<XFS_IOC_FSGEOMETRY_V1, XfsGeometry>::new()) }.ok()
}
