//! The file `.atomdir` of a store whose control directory is elsewhere:
//!
//! ```text
//! /path/of/the/control/directory
//! root 1234567
//! ```
//!
//! The number is the inode of the store's root: a copied tree contains a copy
//! of this file, but must not share the control directory.

use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

const LENGTH_MAX: usize = 8192;
const ROOT_LINE: &[u8] = b"\nroot ";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) control: PathBuf,
    pub(crate) root_inode: u64,
}

impl Pointer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let inode = self.root_inode.to_string();
        [
            self.control.as_os_str().as_bytes(),
            ROOT_LINE,
            inode.as_bytes(),
            b"\n",
        ]
        .concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Pointer> {
        let bytes = bytes.strip_suffix(b"\n")?;
        // Search from the end: the path itself may contain such a line.
        let mut places = bytes.windows(ROOT_LINE.len());
        let at = places.rposition(|window| window == ROOT_LINE)?;
        let inode = std::str::from_utf8(&bytes[at + ROOT_LINE.len()..]).ok()?;
        let control = &bytes[..at];
        if control.is_empty() || control.contains(&0) {
            return None;
        }
        Some(Pointer {
            control: PathBuf::from(OsStr::from_bytes(control)),
            root_inode: inode.parse().ok()?,
        })
    }

    /// Returns what the file holds, and the file. `None`: its contents are not
    /// a pointer.
    pub(crate) fn read(root: &OwnedFd, name: &str) -> Result<(Option<Pointer>, OwnedFd), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(root, name, flags, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok((None, file));
        }
        let mut buffer = vec![0; LENGTH_MAX];
        let mut length = 0;
        while length < buffer.len() {
            match rustix::io::read(&file, &mut buffer[length..])? {
                0 => break,
                count => length += count,
            }
        }
        Ok((Pointer::decode(&buffer[..length]), file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_round_trips_and_malformed_ones_are_ignored() {
        for path in ["/a", "/new\nline", "/x\nroot 5", "relative"] {
            let pointer = Pointer {
                control: path.into(),
                root_inode: u64::MAX,
            };
            assert_eq!(Pointer::decode(&pointer.encode()), Some(pointer));
        }
        for bad in [
            "",
            "\n",
            "/a",
            "/a\n",
            "/a\nroot \n",
            "/a\nroot 1",
            "\nroot 1\n",
            "/a\0\nroot 1\n",
        ] {
            assert_eq!(Pointer::decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
