//! Files of others that are as good as those that commits left.

use crate::Timestamp;
use serde::{Deserialize, Serialize};

/// A file that an outside writer has put in the place of one that a commit left, and that means the
/// same to the programs that use it: git's index, for example, with other times of files in it.
/// An undo replaces it as it would have replaced the other one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EqualFile {
    /// Relative to the store's root.
    pub path: Vec<u8>,
    /// Its inode number when it was compared.
    pub inode: u64,
    /// Its change time when it was compared. If it is another one by now, the file does not count.
    pub changed: Timestamp,
}
