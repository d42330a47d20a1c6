//! Metadata of files and directories, as a transaction shows it.

use atomdir_protocol::Kind;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

/// The metadata of an object, as stat(2) reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// A file, a directory, or another kind of object.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, without the file type.
    pub mode: u32,
    /// The length in bytes.
    pub length: u64,
    /// How many names the object has.
    pub links: u32,
    /// The numeric id of the owner.
    pub user: u32,
    /// The numeric id of the owning group.
    pub group: u32,
    /// The inode number in this transaction. An object that the transaction has created gets
    /// another one when it is committed.
    pub inode: u64,
    /// The device number of a device node, as makedev(3) packs it.
    pub device_number: u64,
    /// The storage it takes, in units of 512 bytes.
    pub blocks: u64,
    /// When it was last read; the base's file system may not keep this up to date.
    pub accessed: SystemTime,
    /// When its contents last changed.
    pub modified: SystemTime,
    /// When its contents or attributes last changed.
    pub changed: SystemTime,
}

impl Metadata {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Symlink
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirectoryEntry {
    /// The name, without the directory's path.
    pub name: OsString,
    /// The kind of the object that it names.
    pub kind: Kind,
    /// The object's inode number, as in [`Metadata::inode`].
    pub inode: u64,
}

pub(crate) fn kind(kind: atomdir_disk::Kind) -> Kind {
    match kind {
        atomdir_disk::Kind::File => Kind::File,
        atomdir_disk::Kind::Directory => Kind::Directory,
        atomdir_disk::Kind::Symlink => Kind::Symlink,
        atomdir_disk::Kind::Fifo => Kind::Fifo,
        atomdir_disk::Kind::Socket => Kind::Socket,
        atomdir_disk::Kind::CharacterDevice => Kind::CharacterDevice,
        atomdir_disk::Kind::BlockDevice => Kind::BlockDevice,
    }
}

pub(crate) fn system_time(time: atomdir_disk::Timestamp) -> SystemTime {
    let fraction = Duration::from_nanos(time.nanoseconds.into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(seconds),
        false => SystemTime::UNIX_EPOCH.checked_add(seconds),
    };
    whole
        .and_then(|whole| whole.checked_add(fraction))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

pub(crate) fn timestamp(time: SystemTime) -> atomdir_disk::Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => atomdir_disk::Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(error) => {
            let before = error.duration();
            let fraction = before.subsec_nanos();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match fraction {
                0 => atomdir_disk::Timestamp {
                    seconds: -seconds,
                    nanoseconds: 0,
                },
                fraction => atomdir_disk::Timestamp {
                    seconds: -seconds - 1,
                    nanoseconds: 1_000_000_000 - fraction,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_fraction() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 999_999_999), (-3, 0), (-3, 1)] {
            let time = atomdir_disk::Timestamp {
                seconds,
                nanoseconds,
            };
            assert_eq!(timestamp(system_time(time)), time);
        }
    }
}
