use serde::{Deserialize, Serialize};

/// A step on the way from the tree of a transaction with a native view to that of one nested in
/// it. Paths are relative to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MergeStep {
    /// Removes a name.
    Remove {
        /// The name's path.
        path: Vec<u8>,
        /// It names a directory, which is empty by then.
        is_directory: bool,
    },
    /// Moves an object out of the way.
    Park {
        /// Its path.
        path: Vec<u8>,
        /// The number of the place where it waits.
        place: u64,
    },
    /// Moves a parked object to its new path.
    Place {
        /// Its new path.
        path: Vec<u8>,
        /// The number of the place where it has waited.
        place: u64,
    },
    /// Gives a file another name.
    Link {
        /// The new name's path.
        path: Vec<u8>,
        /// A path of the file.
        to: Vec<u8>,
    },
    /// Copies an object from the nested view; a directory without what it contains.
    Create {
        /// Its path in both views.
        path: Vec<u8>,
    },
    /// Gives an object the times that it has in the nested view.
    Dress {
        /// Its path in both views.
        path: Vec<u8>,
        /// Its contents, too.
        contents: bool,
        /// Its mode, owner and extended attributes, too.
        attributes: bool,
    },
}
