//! What the kernel says in `/proc`: texts, and the locks of files.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::OwnedFd;

/// Longer texts are cut.
const TEXT_LENGTH_MAX: usize = 16 << 20;

/// A file of `/proc`; `None` if it cannot be read.
pub fn kernel_text(path: &str) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file: OwnedFd = openat(CWD, path, flags, Mode::empty()).ok()?;
    let mut bytes = Vec::new();
    let mut buffer = [0; 16 << 10];
    while bytes.len() < TEXT_LENGTH_MAX {
        match rustix::io::read(&file, &mut buffer).ok()? {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// One line of `/proc/locks`: a lock that a process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLock<'a> {
    /// `FLOCK`, `POSIX` and others.
    pub class: &'a str,
    pub process: u32,
    /// `MAJOR:MINOR` of the file system, in hexadecimal.
    pub device: &'a str,
    pub inode: u64,
    pub is_of_whole_file: bool,
}

impl FileLock<'_> {
    /// Parses, for example, `7: FLOCK  ADVISORY  WRITE 812 fd:01:1311 0 EOF`. Returns `None` for
    /// requests that still wait (`->`), and for locks that belong to no process or to one that is
    /// not visible here.
    pub fn parse(line: &str) -> Option<FileLock<'_>> {
        let mut fields = line.split_whitespace().skip(1);
        let class = fields.next().filter(|class| *class != "->")?;
        let process = fields.nth(2)?.parse().ok().filter(|process| *process > 0)?;
        let (device, inode) = fields.next()?.rsplit_once(':')?;
        Some(FileLock {
            class,
            process,
            device,
            inode: inode.parse().ok()?,
            is_of_whole_file: (fields.next(), fields.next()) == (Some("0"), Some("EOF")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::FileLock;

    #[test]
    fn only_locks_that_are_held_count() {
        let held = "7: FLOCK  ADVISORY  WRITE 812 fd:01:1311 0 EOF";
        let found = FileLock {
            class: "FLOCK",
            process: 812,
            device: "fd:01",
            inode: 1311,
            is_of_whole_file: true,
        };
        assert_eq!(FileLock::parse(held), Some(found));
        let part = "1: POSIX  ADVISORY  READ 812 08:01:1311 128 128";
        let found = FileLock {
            class: "POSIX",
            device: "08:01",
            is_of_whole_file: false,
            ..found
        };
        assert_eq!(FileLock::parse(part), Some(found));
        let whole = "2: POSIX  ADVISORY  WRITE 812 08:01:1311 0 EOF";
        assert!(FileLock::parse(whole).is_some_and(|found| found.is_of_whole_file));
        for other in [
            "7: -> FLOCK  ADVISORY  WRITE 812 fd:01:1311 0 EOF",
            "1: -> POSIX  ADVISORY  WRITE 813 08:01:1311 128 128",
            "7: FLOCK  ADVISORY  WRITE 0 fd:01:1311 0 EOF",
            "4: OFDLCK ADVISORY  READ  -1 08:01:1311 128 128",
            "",
        ] {
            assert_eq!(FileLock::parse(other), None, "{other}");
        }
    }
}
