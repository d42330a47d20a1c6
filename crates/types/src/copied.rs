use serde::{Deserialize, Serialize};

/// What a program in a native view has copied, and then removed, because overlayfs refused to move
/// the directory that contains it. In a plain directory it would have been moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedByMove {
    /// Where the copy is, relative to the store's root.
    pub path: Vec<u8>,
    /// What the copy lacks.
    pub lacks: CopyLacks,
}

/// What a copy lacks that the moved object would have kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyLacks {
    /// The names of the file in other directories, which still lead to the original.
    OtherNames,
    /// The original's owner and group.
    Owner,
}
