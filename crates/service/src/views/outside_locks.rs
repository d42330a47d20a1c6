//! Finds a file of the store of which a program outside has locked a part, as databases do as long as
//! they use it.
//!
//! A program in a view does not see such locks. In an exact view the removal of such a file is refused,
//! so that a database keeps its files. Overlayfs does not ask before it removes one.
//!
//! A lock whose owner this process may not look at, and an OFD lock, which names no process, is not
//! found. If it matters, the commit finds it.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atomdir::hosting::{FileLock, kernel_text};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, open, readlinkat, stat, statat};
use rustix::io::Errno;

/// The path of the first one found.
pub(crate) fn find(root: &Path) -> Option<Vec<u8>> {
    let text = kernel_text("/proc/locks")?;
    let locks = text.lines().filter_map(FileLock::parse);
    let parts = locks.filter(|lock| lock.class == "POSIX" && !lock.is_of_whole_file);
    // A process may have locked several parts of a file.
    let files: BTreeSet<(u32, u64)> = parts.map(|lock| (lock.process, lock.inode)).collect();
    let device = stat(root).ok()?.st_dev;
    let mut files = files.into_iter();
    files.find_map(|(process, inode)| path_below(root, process, (device, inode)).ok()?)
}

/// The path by which a process has opened the file, if that is below `root`.
fn path_below(root: &Path, process: u32, file: (u64, u64)) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open_files = open(format!("/proc/{process}/fd"), flags, Mode::empty())?;
    for entry in Dir::read_from(&open_files)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_file = statat(&open_files, name, AtFlags::empty())
            .is_ok_and(|found| (found.st_dev, found.st_ino) == file);
        if !is_file {
            continue;
        }
        let path = readlinkat(&open_files, name, Vec::new())?.into_bytes();
        let below = Path::new(std::ffi::OsStr::from_bytes(&path)).strip_prefix(root);
        if let Ok(below) = below {
            return Ok(Some(below.as_os_str().as_bytes().to_vec()));
        }
    }
    Ok(None)
}
