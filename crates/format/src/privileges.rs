//! A recovery's note of the set-id bits and capabilities that it temporarily takes from files.

use atomdir_disk::{Identity, Owner};

use crate::record::AttributesChange;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivilegesNote {
    /// That of the log's last record when the note was written.
    pub sequence: u64,
    pub files: Vec<FilePrivileges>,
}

/// What gives a file its privileges back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePrivileges {
    pub file: Identity,
    pub attributes: AttributesChange,
    /// The owner that the file had then: see [`Update::owner`](crate::record::Update::owner).
    pub owner: Owner,
    /// Each is set to the value, or removed.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}
