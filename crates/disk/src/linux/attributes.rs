//! Reading and setting the attributes that stat shows.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    Access as AccessBits, AtFlags, CWD, FileType, Gid, IFlags, Mode, Statx, StatxAttributes,
    StatxFlags, StatxTimestamp, Timespec, Timestamps, UTIME_NOW, Uid,
};
use rustix::io::retry_on_intr;

use super::open::path_of;
use crate::{Attributes, Errno, Identity, Kind, Name, Owner, Result, Stat, Times, Timestamp};

const STAT_FLAGS: AtFlags = AtFlags::NO_AUTOMOUNT.union(AtFlags::STATX_SYNC_AS_STAT);

pub(super) fn stat(object: &OwnedFd) -> Result<Stat> {
    let flags = STAT_FLAGS | AtFlags::EMPTY_PATH;
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    from_statx(&retry_on_intr(|| {
        rustix::fs::statx(object, c"", flags, mask)
    })?)
}

/// Does not ask a file system that is mounted under the name: its server may never
/// answer, or refuse this process.
pub(super) fn stat_at(directory: &OwnedFd, name: &Name) -> Result<Stat> {
    const NOT_ASKING: AtFlags = AtFlags::STATX_DONT_SYNC;
    let all = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let look = |sync, mask| {
        let flags = AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW | sync;
        retry_on_intr(|| rustix::fs::statx(directory, name.as_bytes(), flags, mask))
    };
    let raw = match look(NOT_ASKING, all) {
        Ok(raw) if is_mount_point(&raw) || raw.stx_dev_major != 0 => raw,
        // A file system without a device of its own may have to be asked.
        Ok(_) => look(AtFlags::STATX_SYNC_AS_STAT, all)?,
        Err(Errno::NOENT) => return Err(Errno::NOENT),
        Err(errno) => match look(NOT_ASKING, StatxFlags::empty()) {
            Ok(mut raw) if is_mount_point(&raw) => {
                // Only a listing of the directory would show its kind.
                raw.stx_mode = FileType::Directory.as_raw_mode() as u16;
                raw
            }
            _ => return Err(errno),
        },
    };
    from_statx(&raw)
}

fn is_mount_point(raw: &Statx) -> bool {
    raw.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

fn from_statx(raw: &Statx) -> Result<Stat> {
    let raw_mode = u32::from(raw.stx_mode);
    let has_birth = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    let bound = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
    Ok(Stat {
        identity: Identity {
            inode: raw.stx_ino,
            birth: if has_birth { birth(&raw.stx_btime) } else { 0 },
        },
        device: rustix::fs::makedev(raw.stx_dev_major, raw.stx_dev_minor),
        kind: Kind::of_mode(raw_mode).ok_or(Errno::OPNOTSUPP)?,
        attributes: Attributes {
            mode: Mode::from_raw_mode(raw_mode).as_raw_mode(),
            owner: Owner {
                user: raw.stx_uid,
                group: raw.stx_gid,
            },
            times: Times {
                accessed: timestamp(&raw.stx_atime),
                modified: timestamp(&raw.stx_mtime),
            },
        },
        changed: timestamp(&raw.stx_ctime),
        links: raw.stx_nlink,
        length: raw.stx_size,
        blocks: raw.stx_blocks,
        device_number: rustix::fs::makedev(raw.stx_rdev_major, raw.stx_rdev_minor),
        immutable: raw.stx_attributes.intersects(bound),
        mount_point: is_mount_point(raw),
    })
}

fn timestamp(raw: &StatxTimestamp) -> Timestamp {
    Timestamp {
        seconds: raw.tv_sec,
        nanoseconds: raw.tv_nsec,
    }
}

/// A birth time before 1970 or after 2554 counts as unknown.
fn birth(raw: &StatxTimestamp) -> u64 {
    u64::try_from(raw.tv_sec)
        .ok()
        .and_then(|seconds| seconds.checked_mul(1_000_000_000))
        .and_then(|nanoseconds| nanoseconds.checked_add(u64::from(raw.tv_nsec)))
        .unwrap_or(0)
}

pub(super) fn set_mode(object: &OwnedFd, mode: u32) -> Result<()> {
    let bits = mode;
    let mode = Mode::from_raw_mode(mode);
    match retry_on_intr(|| change_mode(object, bits)) {
        // The kernel is older than 6.6, or a container forbids the call.
        Err(Errno::NOSYS | Errno::PERM) => {}
        result => return result,
    }
    match retry_on_intr(|| rustix::fs::fchmod(object, mode)) {
        Err(Errno::BADF) => {}
        result => return result,
    }
    // Kernels before 6.6 let some file systems change a symbolic link's mode.
    if stat(object)?.kind == Kind::Symlink {
        return Err(Errno::OPNOTSUPP);
    }
    by_path(object, |path| rustix::fs::chmod(path, mode))
}

/// fchmodat2(2), which also takes a handle that was opened with [`Access::Path`](crate::Access::Path).
/// It is as old as Linux 6.6, and rustix does not have it yet.
fn change_mode(object: &OwnedFd, mode: u32) -> Result<()> {
    const FCHMODAT2: libc::c_long = 452;
    // SAFETY: the kernel reads the name, which is empty.
    let changed = unsafe {
        libc::syscall(
            FCHMODAT2,
            object.as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH,
        )
    };
    match changed {
        0 => Ok(()),
        _ => Err(super::last_error()),
    }
}

pub(super) fn set_owner(object: &OwnedFd, owner: Owner) -> Result<()> {
    // For chown this value means "leave it".
    if owner.user == u32::MAX || owner.group == u32::MAX {
        return Err(Errno::INVAL);
    }
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    retry_on_intr(|| rustix::fs::chownat(object, c"", Some(user), Some(group), AtFlags::EMPTY_PATH))
}

pub(super) fn set_times(object: &OwnedFd, times: Times) -> Result<()> {
    let times = Timestamps {
        last_access: timespec(times.accessed)?,
        last_modification: timespec(times.modified)?,
    };
    retry_on_intr(|| rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH))
}

pub(super) fn touch(object: &OwnedFd) -> Result<()> {
    let now = || Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now(),
        last_modification: now(),
    };
    retry_on_intr(|| rustix::fs::utimensat(object, c"", &times, AtFlags::EMPTY_PATH))
}

/// A full second of nanoseconds or more could mean "now" or "leave it" to
/// utimensat.
fn timespec(time: Timestamp) -> Result<Timespec> {
    if time.nanoseconds >= 1_000_000_000 {
        return Err(Errno::INVAL);
    }
    Ok(Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    })
}

pub(super) fn check_access(object: &OwnedFd, bits: u32) -> Result<()> {
    let bits = AccessBits::from_bits_retain(bits);
    by_path(object, |path| {
        rustix::fs::accessat(CWD, path, bits, AtFlags::EACCESS)
    })
}

/// Calls that do not take a handle opened with `Access::Path` reach the object
/// through `/proc`, even if it is a symbolic link. The object is open, so only
/// `/proc` can be missing.
pub(super) fn by_path<T>(object: &OwnedFd, mut call: impl FnMut(&str) -> Result<T>) -> Result<T> {
    let path = path_of(object);
    match retry_on_intr(|| call(&path)) {
        Err(Errno::NOENT) => Err(Errno::NOSYS),
        result => result,
    }
}

pub(super) fn has_flags(file: &OwnedFd) -> Result<bool> {
    const OF_FILES: IFlags = IFlags::all()
        .difference(IFlags::IMMUTABLE.union(IFlags::APPEND))
        .difference(IFlags::DIRSYNC.union(IFlags::TOPDIR));
    match rustix::fs::ioctl_getflags(file) {
        Ok(flags) => Ok(flags.intersects(OF_FILES)),
        // The file system has no flags.
        Err(Errno::NOTTY | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno),
    }
}
