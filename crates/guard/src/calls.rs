//! System calls on objects that are known by a descriptor.

use std::os::fd::{AsRawFd, OwnedFd};

use atomdir_disk::{Disk, Kind, LinuxDisk, NewNode, NodeAttributes, SetAttributes, SetTime, Stat};
use atomdir_fuse::{Result, Seek};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps,
    UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::{Errno, retry_on_intr};

const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub fn path_descriptor(directory: &OwnedFd) -> Result<OwnedFd> {
    rustix::fs::openat(directory, c".", FOUND, Mode::empty())
}

/// Finds an object without opening it. Goes into file systems that are mounted in the base.
pub fn find(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd> {
    retry_on_intr(|| rustix::fs::openat(directory, name, FOUND, Mode::empty()))
}

/// Opens the object itself.
pub fn open(object: &OwnedFd, flags: OFlags) -> Result<OwnedFd> {
    let path = path_of(object);
    retry_on_intr(|| rustix::fs::openat(CWD, &*path, flags | OFlags::CLOEXEC, Mode::empty()))
}

fn path_of(object: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", object.as_raw_fd())
}

/// Where the kernel has an object now. That of an object without a name ends in " (deleted)".
pub fn present_path(object: &OwnedFd) -> Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(CWD, &*path_of(object), Vec::new())?.into_bytes())
}

pub fn attributes_of(stat: &Stat) -> NodeAttributes {
    NodeAttributes {
        inode: stat.identity.inode,
        kind: stat.kind,
        mode: stat.attributes.mode,
        links: stat.links,
        owner: stat.attributes.owner,
        device_number: stat.device_number,
        length: stat.length,
        blocks: stat.blocks,
        accessed: stat.attributes.times.accessed,
        modified: stat.attributes.times.modified,
        changed: stat.changed,
    }
}

pub fn make(directory: &OwnedFd, name: &[u8], what: &NewNode, mode: u32) -> Result<()> {
    let mode = Mode::from_raw_mode(mode);
    let node =
        |kind, device| retry_on_intr(|| rustix::fs::mknodat(directory, name, kind, mode, device));
    match what {
        NewNode::Symlink(target) => {
            retry_on_intr(|| rustix::fs::symlinkat(target.as_slice(), directory, name))
        }
        NewNode::Directory => retry_on_intr(|| rustix::fs::mkdirat(directory, name, mode)),
        NewNode::File => node(FileType::RegularFile, 0),
        NewNode::Fifo => node(FileType::Fifo, 0),
        NewNode::Socket => node(FileType::Socket, 0),
        NewNode::CharacterDevice(device) => node(FileType::CharacterDevice, *device),
        NewNode::BlockDevice(device) => node(FileType::BlockDevice, *device),
    }
}

pub fn make_unnamed(directory: &OwnedFd, mode: u32) -> Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let file = retry_on_intr(|| rustix::fs::openat(directory, c".", flags, mode))?;
    // One that is open for writing would count as in use.
    open(&file, OFlags::PATH)
}

pub fn link(object: &OwnedFd, directory: &OwnedFd, name: &[u8]) -> Result<()> {
    retry_on_intr(|| rustix::fs::linkat(object, c"", directory, name, AtFlags::EMPTY_PATH))
}

pub fn read_link(object: &OwnedFd) -> Result<Vec<u8>> {
    let target = retry_on_intr(|| rustix::fs::readlinkat(object, c"", Vec::new()))?;
    Ok(target.into_bytes())
}

/// Clears the bits that a change of contents or a new ACL takes. Returns whether there were any.
pub fn kill_set_id(object: &OwnedFd, stat: &Stat, only_group: bool) -> Result<bool> {
    let mode = stat.attributes.mode;
    let mut bits = 0;
    if only_group || mode & 0o010 != 0 {
        bits |= libc::S_ISGID;
    }
    if !only_group {
        bits |= libc::S_ISUID;
    }
    if mode & bits == 0 {
        return Ok(false);
    }
    set_mode(object, mode & !bits)?;
    Ok(true)
}

pub fn set_mode(object: &OwnedFd, mode: u32) -> Result<()> {
    let path = path_of(object);
    retry_on_intr(|| rustix::fs::chmod(&*path, Mode::from_raw_mode(mode)))
}

pub fn set_owner(object: &OwnedFd, change: &SetAttributes) -> Result<()> {
    let (user, group) = (
        change.user.map(Uid::from_raw),
        change.group.map(Gid::from_raw),
    );
    retry_on_intr(|| rustix::fs::chownat(object, c"", user, group, AtFlags::EMPTY_PATH))
}

pub fn set_times(object: &OwnedFd, change: &SetAttributes) -> Result<()> {
    let timespec = |time: Option<SetTime>| match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(SetTime::At(time)) => Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.min(999_999_999).into(),
        },
    };
    let times = Timestamps {
        last_access: timespec(change.accessed),
        last_modification: timespec(change.modified),
    };
    retry_on_intr(|| rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH))
}

pub fn set_length(object: &OwnedFd, length: u64) -> Result<()> {
    let file = open(object, OFlags::WRONLY)?;
    retry_on_intr(|| rustix::fs::ftruncate(&file, length))
}

pub fn read(object: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    let file = open(object, OFlags::RDONLY)?;
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        match retry_on_intr(|| rustix::io::pread(&file, &mut buffer[done..], at))? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

pub fn write(file: &OwnedFd, offset: u64, data: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        match retry_on_intr(|| rustix::io::pwrite(file, &data[done..], at))? {
            0 => return Err(Errno::IO),
            count => done += count,
        }
    }
    Ok(())
}

pub fn allocate(file: &OwnedFd, mode: u32, offset: u64, length: u64) -> Result<()> {
    let mode = FallocateFlags::from_bits_retain(mode);
    retry_on_intr(|| rustix::fs::fallocate(file, mode, offset, length))
}

pub fn seek(object: &OwnedFd, offset: u64, what: Seek) -> Result<u64> {
    let file = open(object, OFlags::RDONLY)?;
    let offset =
        u64::try_from(i64::try_from(offset).map_err(|_| Errno::NXIO)?).map_err(|_| Errno::NXIO)?;
    let from = match what {
        Seek::Data => SeekFrom::Data(offset),
        Seek::Hole => SeekFrom::Hole(offset),
    };
    rustix::fs::seek(&file, from)
}

pub fn set_xattr(object: &OwnedFd, name: &[u8], value: &[u8], flags: u32) -> Result<()> {
    let (path, flags) = (path_of(object), XattrFlags::from_bits_retain(flags));
    retry_on_intr(|| rustix::fs::setxattr(&*path, name, value, flags))
}

/// Gives a file the owner, mode, extended attributes and times of another.
pub fn copy_attributes(stat: &Stat, from: &OwnedFd, to: &OwnedFd) -> Result<()> {
    let disk = LinuxDisk::new();
    let attributes = &stat.attributes;
    set_owner(
        to,
        &SetAttributes {
            user: Some(attributes.owner.user),
            group: Some(attributes.owner.group),
            ..SetAttributes::default()
        },
    )?;
    for name in disk.xattr_names(from)? {
        set_xattr(to, &name, &disk.xattr(from, &name)?, 0)?;
    }
    set_mode(to, attributes.mode & 0o7777)?;
    set_times(
        to,
        &SetAttributes {
            accessed: Some(SetTime::At(attributes.times.accessed)),
            modified: Some(SetTime::At(attributes.times.modified)),
            ..SetAttributes::default()
        },
    )
}

/// Makes a file or directory durable.
pub fn flush(object: &OwnedFd, kind: Kind) -> Result<()> {
    let flags = match kind {
        Kind::Directory => OFlags::RDONLY | OFlags::DIRECTORY,
        _ => OFlags::RDONLY,
    };
    rustix::fs::fsync(&open(object, flags)?)
}
