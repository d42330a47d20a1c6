//! Makes an object like another one: contents, owner, mode, extended attributes, times.

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT,
    Uid, XattrFlags, chownat, fallocate, fstat, ftruncate, seek, utimensat,
};
use rustix::io::{Errno, pread, pwrite};
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const CHUNK: usize = 1 << 20;

/// Gives `to` the contents of `from`. Holes stay holes.
pub(super) fn copy_contents(from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    let length = fstat(from)?.st_size as u64;
    ftruncate(to, length)?;
    let mut buffer = vec![0; CHUNK.min(length as usize)];
    let mut at = 0;
    while at < length {
        let data = match seek(from, SeekFrom::Data(at)) {
            Ok(data) => data.min(length),
            Err(Errno::NXIO) => length,
            Err(errno) => return Err(errno),
        };
        if data > at {
            punch(to, at, data - at)?;
        }
        at = data;
        if at == length {
            break;
        }
        let end = seek(from, SeekFrom::Hole(at))?.min(length);
        while at < end {
            let wanted = buffer.len().min((end - at) as usize);
            let count = pread(from, &mut buffer[..wanted], at)?;
            if count == 0 {
                return Err(Errno::IO);
            }
            let mut written = 0;
            while written < count {
                written += pwrite(to, &buffer[written..count], at + written as u64)?;
            }
            at += count as u64;
        }
    }
    Ok(())
}

fn punch(file: &OwnedFd, offset: u64, length: u64) -> Result<(), Errno> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(file, flags, offset, length)
}

/// Gives `to` the times of `from`; with `attributes`, also its owner, mode and extended
/// attributes. Both may be opened with `O_PATH`.
pub(super) fn dress(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    attributes: bool,
) -> Result<(), Errno> {
    let (wanted, present) = (fstat(from)?, fstat(to)?);
    if attributes {
        if (wanted.st_uid, wanted.st_gid) != (present.st_uid, present.st_gid) {
            let (user, group) = (Uid::from_raw(wanted.st_uid), Gid::from_raw(wanted.st_gid));
            chownat(to, c"", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
        }
        copy_xattrs(from, to)?;
        if FileType::from_raw_mode(wanted.st_mode) != FileType::Symlink
            && fstat(to)?.st_mode != wanted.st_mode
        {
            chmod(to, Mode::from_raw_mode(wanted.st_mode))?;
        }
    }
    set_times(to, &wanted)
}

pub(super) fn chmod(object: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    rustix::fs::chmod(path_of(object)?, mode)
}

pub(super) fn set_times(object: BorrowedFd<'_>, wanted: &Stat) -> Result<(), Errno> {
    let present = fstat(object)?;
    let time = |seconds, nanoseconds, is_same| Timespec {
        tv_sec: seconds,
        tv_nsec: if is_same { UTIME_OMIT } else { nanoseconds },
    };
    let same_access =
        (wanted.st_atime, wanted.st_atime_nsec) == (present.st_atime, present.st_atime_nsec);
    let same_change =
        (wanted.st_mtime, wanted.st_mtime_nsec) == (present.st_mtime, present.st_mtime_nsec);
    if same_access && same_change {
        return Ok(());
    }
    let times = Timestamps {
        last_access: time(wanted.st_atime, wanted.st_atime_nsec as _, same_access),
        last_modification: time(wanted.st_mtime, wanted.st_mtime_nsec as _, same_change),
    };
    utimensat(object, c"", &times, AtFlags::EMPTY_PATH)
}

/// A path that leads to an object opened with `O_PATH`, for calls that take no such
/// descriptor.
fn path_of(object: BorrowedFd<'_>) -> Result<CString, Errno> {
    let path = format!("/proc/self/fd/{}", object.as_raw_fd());
    CString::new(path).map_err(|_| Errno::INVAL)
}

fn copy_xattrs(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    let (from, to) = (path_of(from)?, path_of(to)?);
    let (wanted, present) = (names(&from)?, names(&to)?);
    for name in &present {
        if !wanted.contains(name) {
            rustix::fs::removexattr(&*to, &**name)?;
        }
    }
    for name in &wanted {
        let value = value(&from, name)?;
        if !present.contains(name) || self::value(&to, name)? != value {
            rustix::fs::setxattr(&*to, &**name, &value, XattrFlags::empty())?;
        }
    }
    Ok(())
}

fn names(path: &CString) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    let list = grown(|buffer| rustix::fs::listxattr(&**path, buffer));
    let list = match list {
        Err(Errno::OPNOTSUPP) => return Ok(names),
        list => list?,
    };
    for name in list
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        names.push(CString::new(name).map_err(|_| Errno::INVAL)?);
    }
    Ok(names)
}

fn value(path: &CString, name: &CString) -> Result<Vec<u8>, Errno> {
    grown(|buffer| rustix::fs::getxattr(&**path, &**name, buffer))
}

/// The most that the kernel returns.
const XATTR_LENGTH_MAX: usize = 1 << 16;

fn grown(read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; XATTR_LENGTH_MAX];
    let length = read(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}
