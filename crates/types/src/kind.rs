use serde::{Deserialize, Serialize};

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::File,
        Kind::Directory,
        Kind::Symlink,
        Kind::Fifo,
        Kind::Socket,
        Kind::CharacterDevice,
        Kind::BlockDevice,
    ];

    /// The type bits of a mode, such as `st_mode`: see inode(7).
    pub const TYPE_MASK: u32 = 0o170_000;

    /// The kind that the type bits of a mode stand for.
    pub fn of_mode(mode: u32) -> Option<Kind> {
        let bits = mode & Kind::TYPE_MASK;
        Kind::ALL.into_iter().find(|kind| kind.type_bits() == bits)
    }

    /// The type bits of this kind's modes.
    pub fn type_bits(self) -> u32 {
        match self {
            Kind::Fifo => 0o010_000,
            Kind::CharacterDevice => 0o020_000,
            Kind::Directory => 0o040_000,
            Kind::BlockDevice => 0o060_000,
            Kind::File => 0o100_000,
            Kind::Symlink => 0o120_000,
            Kind::Socket => 0o140_000,
        }
    }
}
