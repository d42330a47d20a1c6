//! What a captured tree holds about each object.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::contents::Contents;

/// Every object below the captured directory, by its path from there. The directory
/// itself has the empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    /// Permission, set-id and sticky bits; the type is in `kind`.
    pub mode: u32,
    pub user: u32,
    pub group: u32,
    pub links: u64,
    /// The first path of the captured tree, in order, that names the same object. So two
    /// paths have the same value if and only if they are hard links of one object. A
    /// directory has its own path.
    pub same_as: PathBuf,
    pub inode: u64,
    /// POSIX ACLs and file capabilities are among them: the kernel shows them
    /// as `system.posix_acl_*` and `security.capability`.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub accessed: Moment,
    pub modified: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    File(Contents),
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharacterDevice(u64),
    BlockDevice(u64),
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Directory => "directory",
            Self::Symlink(_) => "symlink",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharacterDevice(_) => "character device",
            Self::BlockDevice(_) => "block device",
        }
    }
}

/// A time since 1970, as the file system reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds, self.nanoseconds)
    }
}

impl Tree {
    /// The length of all regular files together, in bytes, including holes.
    pub fn file_bytes(&self) -> u64 {
        self.entries
            .values()
            .filter_map(|entry| match &entry.kind {
                Kind::File(contents) => Some(contents.length),
                _ => None,
            })
            .sum()
    }
}
