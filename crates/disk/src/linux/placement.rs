//! What decides whether the kernel moves an object from one directory to another of the same file
//! system.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::retry_on_intr;

use super::last_error;
use crate::{Errno, Placement, Result};

/// Linux's `struct fsxattr`.
#[repr(C)]
#[derive(Default)]
struct FileAttributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// `FS_IOC_FSGETXATTR` and `FS_XFLAG_PROJINHERIT`
const GET_ATTRIBUTES: libc::c_ulong = 0x801c_581f;
const INHERITS_PROJECT: u32 = 0x200;
/// `FS_IOC_GET_ENCRYPTION_POLICY_EX`
const GET_POLICY: libc::c_ulong = 0xc009_6616;
/// `STATX_ATTR_ENCRYPTED`
const ENCRYPTED: u64 = 0x800;
/// The size of the longest policy, and of the field before it.
const POLICY_BYTES: usize = 64;

pub(super) fn of(object: &OwnedFd) -> Result<Placement> {
    let attributes = attributes(object)?;
    let flags = AtFlags::EMPTY_PATH;
    let raw = retry_on_intr(|| rustix::fs::statx(object, c"", flags, StatxFlags::TYPE))?;
    let is_encrypted = raw.stx_attributes.bits() & ENCRYPTED != 0;
    Ok(Placement {
        project: attributes.project,
        inherits_project: attributes.flags & INHERITS_PROJECT != 0,
        encryption: match is_encrypted {
            true => Some(policy(object)?),
            false => None,
        },
    })
}

/// A file system that has no projects has one for all.
fn attributes(object: &OwnedFd) -> Result<FileAttributes> {
    let mut attributes = FileAttributes::default();
    // SAFETY: the kernel writes a structure of this layout and size.
    let result =
        unsafe { libc::ioctl(object.as_raw_fd(), GET_ATTRIBUTES as _, &raw mut attributes) };
    if result == 0 {
        return Ok(attributes);
    }
    match last_error() {
        Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL => {
            Ok(FileAttributes::default())
        }
        errno => Err(errno),
    }
}

fn policy(object: &OwnedFd) -> Result<Vec<u8>> {
    let mut buffer = vec![0; POLICY_BYTES];
    let room = (POLICY_BYTES - size_of::<u64>()) as u64;
    buffer[..size_of::<u64>()].copy_from_slice(&room.to_ne_bytes());
    // SAFETY: the kernel writes at most the size that the first field gives, behind that field.
    let result = unsafe { libc::ioctl(object.as_raw_fd(), GET_POLICY as _, buffer.as_mut_ptr()) };
    match result {
        0 => Ok(buffer),
        _ => Err(last_error()),
    }
}
