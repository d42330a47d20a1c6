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

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, open, readlinkat, stat, statat};
use rustix::io::{Errno, read};

/// The path of the first one found.
pub(crate) fn find(root: &Path) -> Option<Vec<u8>> {
    let text = contents("/proc/locks").ok()?;
    let locks: BTreeSet<PartLock> = text.lines().filter_map(PartLock::parse).collect();
    let device = stat(root).ok()?.st_dev;
    locks
        .iter()
        .find_map(|lock| lock.path_below(root, device).ok()?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PartLock {
    process: u32,
    inode: u64,
}

impl PartLock {
    /// A line like `1: POSIX  ADVISORY  READ 812 08:01:1311 128 128`, the last two being the range. A
    /// lock that is still waited for has an arrow after the number.
    fn parse(line: &str) -> Option<PartLock> {
        let mut fields = line.split_whitespace();
        let [_, class, _, _, process, file, first, last] =
            std::array::from_fn(|_| fields.next().unwrap_or_default());
        if class != "POSIX" || (first, last) == ("0", "EOF") {
            return None;
        }
        Some(PartLock {
            process: process.parse().ok()?,
            inode: file.rsplit(':').next()?.parse().ok()?,
        })
    }

    /// The path by which its owner has opened the file, if that is below `root`.
    fn path_below(&self, root: &Path, device: u64) -> Result<Option<Vec<u8>>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open_files = open(format!("/proc/{}/fd", self.process), flags, Mode::empty())?;
        for entry in Dir::read_from(&open_files)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_file = statat(&open_files, name, AtFlags::empty())
                .is_ok_and(|found| found.st_ino == self.inode && found.st_dev == device);
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
}

fn contents(path: &str) -> Result<String, Errno> {
    let file: OwnedFd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    loop {
        match read(&file, &mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            count => bytes.extend(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PartLock;

    #[test]
    fn locks_of_parts_are_told_from_others() {
        let lock = |line| PartLock::parse(line).map(|lock| (lock.process, lock.inode));
        let part = "1: POSIX  ADVISORY  READ 812 08:01:1311 128 128";
        assert_eq!(lock(part), Some((812, 1311)));
        for other in [
            "2: POSIX  ADVISORY  WRITE 812 08:01:1311 0 EOF",
            "3: FLOCK  ADVISORY  WRITE 812 08:01:1311 0 EOF",
            "1: -> POSIX  ADVISORY  WRITE 813 08:01:1311 128 128",
            "4: OFDLCK ADVISORY  READ  -1 08:01:1311 128 128",
            "",
        ] {
            assert_eq!(lock(other), None, "{other}");
        }
    }
}
