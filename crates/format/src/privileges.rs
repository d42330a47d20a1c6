//! A recovery's note of the set-id bits and capabilities that it temporarily takes from files.

use atomdir_disk::Identity;

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
    /// Each is set to the value, or removed.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}
