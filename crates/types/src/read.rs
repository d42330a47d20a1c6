use serde::{Deserialize, Serialize};

/// The parts of a file that a program has read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileRead {
    /// The file's inode number in the view.
    pub inode: u64,
    /// From the first byte to before the last, each.
    pub bytes: Vec<(u64, u64)>,
    /// The length, or the end of the contents.
    pub length: bool,
    /// Attributes, such as the time of the last change.
    pub attributes: bool,
}
