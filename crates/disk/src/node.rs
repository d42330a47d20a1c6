//! Arguments and results of operations on trees that programs use through the engine's views and
//! over FUSE.

use crate::{Kind, Name, Owner, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeAttributes {
    pub inode: u64,
    pub kind: Kind,
    /// Permission bits with set-id and sticky bits, without the file type.
    pub mode: u32,
    pub links: u32,
    pub owner: Owner,
    /// The number of a device node, as `makedev` packs it.
    pub device_number: u64,
    pub length: u64,
    /// In 512-byte units.
    pub blocks: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

impl NodeAttributes {
    /// Updates the link count for a subdirectory that was added or removed. Where the file system
    /// does not count subdirectories (Btrfs, and ext4 beyond 65 000), every directory has one link
    /// and keeps it.
    pub fn count_subdirectory(&mut self, is_new: bool) {
        match is_new {
            _ if self.links <= 1 => {}
            true => self.links += 1,
            false => self.links -= 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub length: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
    /// Clear set-user-id, set-group-id (of a group-executable file) and file
    /// capabilities. A change of owner does so in any case, except on directories.
    pub kill_set_id: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListEntry {
    pub name: Name,
    pub inode: u64,
    pub kind: Kind,
}
