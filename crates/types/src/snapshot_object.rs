//! The object at a path at one point in the commit order.

use serde::{Deserialize, Serialize};

use crate::{Kind, Timestamp};

/// An object in a transaction's snapshot, or in the newest state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotObject {
    /// The same number on both sides, also if a commit has given the file another inode. Valid
    /// as long as the transaction is open.
    pub object: u64,
    /// What it is.
    pub kind: Kind,
    /// The inode number that views show.
    pub inode: u64,
    /// How many names it has.
    pub links: u32,
    /// Permission bits with set-id and sticky bits.
    pub mode: u32,
    /// The owner's numeric id.
    pub user: u32,
    /// The group's numeric id.
    pub group: u32,
    /// In bytes.
    pub length: u64,
    /// The modification time.
    pub modified: Timestamp,
    /// The number of a device node, as `makedev` packs it.
    pub device_number: u64,
    /// The target of a symbolic link.
    pub target: Vec<u8>,
    /// The extended attributes that the reader may see, with their names.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// An outside writer may have changed it since the transaction began. Its state at the begin
    /// may then have been different.
    pub changed_outside: bool,
    /// The file is longer than the request allowed, so its contents were not sent.
    pub too_long: bool,
}
