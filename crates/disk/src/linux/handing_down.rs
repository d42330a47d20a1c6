//! What a directory hands down to objects that are made in it, besides what their maker says.
//!
//! All of these are the file system's: whoever has made the directory above has set them, perhaps for
//! other purposes. An object that is made here and moved elsewhere would keep them.

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, IFlags, StatxAttributes, StatxFlags, XattrFlags, fgetxattr, fremovexattr, fsetxattr,
    ioctl_getflags, ioctl_setflags, statx,
};
use rustix::io::retry_on_intr;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

use crate::{Errno, Result};

const DEFAULT_ACL: &str = "system.posix_acl_default";
const ACCESS_ACL: &str = "system.posix_acl_access";
const BTRFS_COMPRESSION: &str = "btrfs.compression";
const LABEL: &str = "security.selinux";
const LABEL_LENGTH_MAX: usize = 4096;

/// Flags that a new object takes over from its directory, on one file system or another.
const FLAGS: IFlags = IFlags::NOATIME
    .union(IFlags::SYNC)
    .union(IFlags::DIRSYNC)
    .union(IFlags::NODUMP)
    .union(IFlags::COMPRESSED)
    .union(IFlags::JOURNALING)
    .union(IFlags::NOCOW)
    .union(IFlags::NOTAIL)
    .union(IFlags::UNRM)
    .union(IFlags::SECURE_REMOVAL)
    .union(IFlags::from_bits_retain(
        UNCOMPRESSED | CASE_FOLDED | DIRECT_ACCESS,
    ));
/// `FS_NOCOMP_FL`, `FS_CASEFOLD_FL` and `FS_DAX_FL` of Linux's `include/uapi/linux/fs.h`.
const UNCOMPRESSED: u32 = 0x400;
const CASE_FOLDED: u32 = 0x4000_0000;
const DIRECT_ACCESS: u32 = 0x0200_0000;

/// `struct fsxattr` of Linux's `include/uapi/linux/fs.h`.
#[repr(C)]
struct Extended {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copied_extent_size: u32,
    rest: [u8; 8],
}

/// `FS_XFLAG_RTINHERIT`, `_PROJINHERIT`, `_NOSYMLINKS`, `_EXTSZINHERIT`, `_FILESTREAM`, `_DAX` and
/// `_COWEXTSIZE`.
const EXTENDED_FLAGS: u32 = 0x100 | 0x200 | 0x400 | 0x1000 | 0x4000 | 0x8000 | 0x1_0000;

pub(super) fn stop(directory: &OwnedFd, like: &OwnedFd) -> Result<Option<&'static str>> {
    remove(directory, DEFAULT_ACL)?;
    // It came from a default ACL.
    remove(directory, ACCESS_ACL)?;
    remove(directory, BTRFS_COMPRESSION)?;
    if !has_label_of(directory, like)? {
        return Ok(Some("a security label"));
    }
    if !clear_flags(directory)? {
        return Ok(Some("flags that `lsattr -d` shows"));
    }
    if !clear_extended(directory)? {
        return Ok(Some("a project or flags that `lsattr -pd` shows"));
    }
    if is_encrypted(directory)? && !is_encrypted(like)? {
        return Ok(Some("encryption"));
    }
    Ok(None)
}

fn remove(directory: &OwnedFd, name: &str) -> Result<()> {
    match retry_on_intr(|| fremovexattr(directory, name)) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
        // An immutable directory refuses the removal even of what it does not have.
        Err(Errno::PERM) => match fgetxattr(directory, name, &mut [0_u8; 0]) {
            Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::INVAL) => Ok(()),
            _ => Err(Errno::PERM),
        },
        Err(errno) => Err(errno),
    }
}

fn has_label_of(directory: &OwnedFd, like: &OwnedFd) -> Result<bool> {
    let label = |object: &OwnedFd| {
        let mut buffer = [0; LABEL_LENGTH_MAX];
        match fgetxattr(object, LABEL, &mut buffer) {
            Ok(length) => Ok(buffer[..length].to_vec()),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Vec::new()),
            Err(errno) => Err(errno),
        }
    };
    let (present, wanted) = (label(directory)?, label(like)?);
    if present == wanted || wanted.is_empty() {
        return Ok(true);
    }
    match fsetxattr(directory, LABEL, &wanted, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// False if some stay.
fn clear_flags(directory: &OwnedFd) -> Result<bool> {
    let present = match ioctl_getflags(directory) {
        Ok(flags) => flags,
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    if !present.intersects(FLAGS) {
        return Ok(true);
    }
    match ioctl_setflags(directory, present.difference(FLAGS)) {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL | Errno::NOTEMPTY | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn clear_extended(directory: &OwnedFd) -> Result<bool> {
    const GET: u32 = opcode::read::<Extended>(b'X', 31);
    const SET: u32 = opcode::write::<Extended>(b'X', 32);
    // SAFETY: The call fills a structure of this size, whose bytes may have any value.
    let found = unsafe { ioctl(directory, Getter::<GET, Extended>::new()) };
    let mut extended = match found {
        Ok(extended) => extended,
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => return Ok(true),
        Err(errno) => return Err(errno),
    };
    if extended.flags & EXTENDED_FLAGS == 0 && extended.project == 0 {
        return Ok(true);
    }
    extended.flags &= !EXTENDED_FLAGS;
    (
        extended.project,
        extended.extent_size,
        extended.copied_extent_size,
    ) = (0, 0, 0);
    // SAFETY: The call reads a structure of this size.
    match unsafe { ioctl(directory, Setter::<SET, Extended>::new(extended)) } {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}

fn is_encrypted(object: &OwnedFd) -> Result<bool> {
    let stat = retry_on_intr(|| statx(object, c"", AtFlags::EMPTY_PATH, StatxFlags::empty()))?;
    Ok(stat.stx_attributes.contains(StatxAttributes::ENCRYPTED))
}
