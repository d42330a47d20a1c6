//! Opening and creating objects: by one name below a directory handle, never through
//! a symbolic link, never in another file system.

use std::path::Path;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::retry_on_intr;

use super::attributes;
use crate::{Access, Errno, Kind, Name, NewNode, Result};

/// A [`Name`] is a single component, so RESOLVE_BENEATH would check nothing more,
/// and it takes a lock that the whole machine shares.
const RESOLVE: ResolveFlags = ResolveFlags::NO_XDEV.union(ResolveFlags::NO_SYMLINKS);

#[derive(Debug, Clone, Copy)]
pub(super) struct Opener {
    /// Every kernel that we support has openat2, but a seccomp filter may forbid it.
    pub(super) has_openat2: bool,
}

pub(super) fn directory_at_path(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(CWD, path, flags, Mode::empty()))
}

impl Opener {
    pub(super) fn probe() -> Opener {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let probe = retry_on_intr(|| {
            rustix::fs::openat2(CWD, c"/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
        });
        Opener {
            has_openat2: !matches!(probe, Err(Errno::NOSYS | Errno::PERM)),
        }
    }

    pub(super) fn open(self, directory: &OwnedFd, name: &Name, access: Access) -> Result<OwnedFd> {
        // NONBLOCK keeps the open of a FIFO or a device from waiting for the other
        // side, and that of a leased file from waiting for the lease's holder, who
        // may be any owner of a file. The kernel then asks the holder to give the
        // lease back.
        let flags = match access {
            Access::Path => return self.open_exactly(directory, name, OFlags::PATH),
            Access::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
            Access::Read => OFlags::RDONLY | OFlags::NONBLOCK,
            Access::ReadWrite => OFlags::RDWR | OFlags::NONBLOCK,
        };
        // Only an object's owner and root may use NOATIME.
        let result = match self.open_exactly(directory, name, flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open_exactly(directory, name, flags),
            result => result,
        };
        match result {
            Err(Errno::NOTDIR) if is_symlink(directory, name) => Err(Errno::LOOP),
            result => result,
        }
    }

    fn open_exactly(self, directory: &OwnedFd, name: &Name, flags: OFlags) -> Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = name.as_bytes();
        if self.has_openat2 {
            return retry_on_intr(|| {
                rustix::fs::openat2(directory, name, flags, Mode::empty(), RESOLVE)
            });
        }
        let object = retry_on_intr(|| rustix::fs::openat(directory, name, flags, Mode::empty()))?;
        if mount(&object)? != mount(directory)? {
            return Err(Errno::XDEV);
        }
        Ok(object)
    }

    /// Like [`Opener::open`], but if someone holds a lease on the file (for example
    /// a file server, for its clients), this waits until they give it back. The
    /// kernel revokes the lease after `/proc/sys/fs/lease-break-time`, 45 seconds by
    /// default.
    pub(super) fn open_waiting(
        self,
        directory: &OwnedFd,
        name: &Name,
        access: Access,
    ) -> Result<OwnedFd> {
        match self.open(directory, name, access) {
            Err(Errno::AGAIN) => {}
            result => return result,
        }
        let flags = match access {
            Access::ReadWrite => OFlags::RDWR,
            _ => OFlags::RDONLY,
        };
        let object = self.open_exactly(directory, name, OFlags::PATH)?;
        // Opening a FIFO or a device could wait for ever.
        if attributes::stat(&object)?.kind != Kind::File {
            return Err(Errno::AGAIN);
        }
        let path = path_of(&object);
        let flags = flags | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::openat(CWD, path.as_str(), flags, Mode::empty()))
    }

    pub(super) fn make(
        self,
        directory: &OwnedFd,
        name: &Name,
        node: &NewNode,
        mode: u32,
    ) -> Result<()> {
        let bytes = name.as_bytes();
        let wanted = Mode::from_raw_mode(mode);
        let make_node = |file_type, device| {
            retry_on_intr(|| rustix::fs::mknodat(directory, bytes, file_type, wanted, device))
        };
        match node {
            NewNode::Symlink(target) => {
                return retry_on_intr(|| {
                    rustix::fs::symlinkat(target.as_slice(), directory, bytes)
                });
            }
            NewNode::Directory => retry_on_intr(|| rustix::fs::mkdirat(directory, bytes, wanted)),
            NewNode::File => make_node(FileType::RegularFile, 0),
            NewNode::Fifo => make_node(FileType::Fifo, 0),
            NewNode::Socket => make_node(FileType::Socket, 0),
            NewNode::CharacterDevice(device) => make_node(FileType::CharacterDevice, *device),
            NewNode::BlockDevice(device) => make_node(FileType::BlockDevice, *device),
        }?;
        let stat =
            retry_on_intr(|| rustix::fs::statat(directory, bytes, AtFlags::SYMLINK_NOFOLLOW))?;
        if Mode::from_raw_mode(stat.st_mode) == wanted {
            return Ok(());
        }
        attributes::set_mode(&self.open_exactly(directory, name, OFlags::PATH)?, mode)
    }
}

/// The umask, the parent's set-group-id bit and its default ACL all change a new
/// object's mode. Reading the mode costs a tenth of always setting it.
pub(super) fn create(directory: &OwnedFd, name: &Name, mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let wanted = Mode::from_raw_mode(mode);
    let file = retry_on_intr(|| rustix::fs::openat(directory, name.as_bytes(), flags, wanted))?;
    let stat = retry_on_intr(|| rustix::fs::fstat(&file))?;
    if Mode::from_raw_mode(stat.st_mode) != wanted {
        attributes::set_mode(&file, mode)?;
    }
    // Reads then leave the access time alone. If a file server has given the file another owner,
    // the kernel refuses this. It would refuse the flag at the open, too, but after making the
    // file.
    let _ = rustix::fs::fcntl_setfl(&file, OFlags::NOATIME);
    Ok(file)
}

/// A path that leads to the object itself, even if it is a symbolic link, for calls
/// that do not take a handle opened with [`Access::Path`].
pub(super) fn path_of(object: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

fn is_symlink(directory: &OwnedFd, name: &Name) -> bool {
    matches!(attributes::stat_at(directory, name), Ok(stat) if stat.kind == Kind::Symlink)
}

fn mount(object: &OwnedFd) -> Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    let stat = retry_on_intr(|| rustix::fs::statx(object, c"", flags, StatxFlags::MNT_ID))?;
    Ok(stat.stx_mnt_id)
}
