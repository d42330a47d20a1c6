//! Metadata of files and directories, as a transaction shows it.

use atomdir_protocol::Kind;
use std::ffi::OsString;
use std::time::SystemTime;

/// The metadata of an object, as stat(2) reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metadata {
    /// A file, a directory, or another kind of object.
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, without the file type.
    pub mode: u32,
    /// The length in bytes.
    pub len: u64,
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

/// Permission bits with set-id and sticky bits, as [`std::fs::Permissions`] on Unix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions(u32);

impl Permissions {
    /// Those of chmod(2), without a file type.
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions(mode)
    }

    /// As given to [`from_mode`](Permissions::from_mode).
    pub fn mode(self) -> u32 {
        self.0
    }
}

impl Metadata {
    /// The permission bits, for [`set_permissions`](crate::Transaction::set_permissions).
    pub fn permissions(&self) -> Permissions {
        Permissions(self.mode)
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
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
pub struct DirEntry {
    /// The name, without the directory's path.
    pub file_name: OsString,
    /// The kind of the object that it names.
    pub kind: Kind,
    /// The object's inode number, as in [`Metadata::inode`].
    pub inode: u64,
}
