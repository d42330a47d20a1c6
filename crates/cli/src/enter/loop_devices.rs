//! Finds loop devices on files of a native view. The kernel has such a file open for writing, and
//! no process does, so only a message can help.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/block";
const LOOP_GET_STATUS64: libc::c_ulong = 0x4c05;
const LISTED_LENGTH: usize = 8 << 10;

/// struct loop_info64 of linux/loop.h.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rest: [u64; 27],
}

/// The loop devices on files in the tree below `root`. Those that the caller may not look at are
/// left out.
pub(super) fn on_files_of(root: impl AsFd) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(devices) = openat(CWD, DEVICES, flags, Mode::empty()) else {
        return Vec::new();
    };
    let mut buffer = [MaybeUninit::uninit(); LISTED_LENGTH];
    let mut entries = RawDir::new(&devices, &mut buffer);
    let mut found = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if let Ok(name) = std::str::from_utf8(name)
            && name.starts_with("loop")
            && is_on(&devices, name, &root).unwrap_or(false)
        {
            found.push(format!("/dev/{name}"));
        }
    }
    found.sort();
    found
}

fn is_on(devices: &OwnedFd, name: &str, root: impl AsFd) -> rustix::io::Result<bool> {
    let Some(path) = backing_file(devices, name)? else {
        return Ok(false);
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = openat(CWD, Path::new("/dev").join(name), flags, Mode::empty())?;
    let mut info = LoopInfo {
        device: 0,
        inode: 0,
        rest: [0; 27],
    };
    // SAFETY: the kernel fills the structure, which has the size that it expects.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) } != 0 {
        return Ok(false);
    }
    // The path is that of some mount namespace, perhaps of one that has ended, so any end of it
    // may be the path in the view.
    let mut below = path.as_path();
    loop {
        if let Ok(stat) = statat(&root, below, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && stat.st_ino == info.inode
        {
            return Ok(stat.st_dev == info.device);
        }
        let mut parts = below.components();
        if parts.next().is_none() || parts.as_path().as_os_str().is_empty() {
            return Ok(false);
        }
        below = parts.as_path();
    }
}

/// Relative to the root directory of its mount namespace.
fn backing_file(devices: &OwnedFd, name: &str) -> rustix::io::Result<Option<PathBuf>> {
    let file = Path::new(name).join("loop/backing_file");
    let opened = match openat(
        devices,
        &file,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = [0; 4096];
    let length = rustix::io::read(&opened, &mut text)?;
    let path = text[..length].trim_ascii_end();
    let path = path.strip_prefix(b"/").unwrap_or(path);
    Ok(Some(PathBuf::from(OsStr::from_bytes(path))))
}
