use serde::{Deserialize, Serialize};

/// Something that overlayfs has done otherwise than a plain directory would, in a native view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deviation {
    /// Relative to the store's root.
    pub path: Vec<u8>,
    /// What was done.
    pub kind: DeviationKind,
}

/// What overlayfs has done otherwise than a plain directory would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DeviationKind {
    /// The file is a copy, made because overlayfs refused to move its directory. The names of the
    /// original in other directories do not lead to it.
    CopyWithoutNames,
    /// The object is a copy, made for the same reason, and has another owner or group than the
    /// original.
    CopyWithoutOwner,
    /// A program made the object immutable or append-only (`chattr +i`, `+a`). The commit does not.
    FlagsLost,
    /// A program set an extended attribute in overlayfs's own namespace. The commit does not.
    AttributeLost,
    /// Overlayfs refused to change the object, where a plain directory would not have. What the
    /// program did instead is not known.
    ChangeRefused,
    /// A program made something of the control directory's name, which an exclusive view does not have.
    /// The commit does not.
    ControlNameTaken,
    /// A new name of an old file. It showed another inode number than the file's other names, so
    /// programs may have taken them for two files. The commit makes them one.
    NameLookedApart,
}

impl DeviationKind {
    /// Whether a commit would leave the store otherwise than the same programs in a plain
    /// directory.
    pub fn changes_outcome(self) -> bool {
        self != DeviationKind::NameLookedApart
    }
}
