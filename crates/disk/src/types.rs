use crate::Name;

/// Which object: never the same for two that exist at once, and, thanks to the
/// birth time, hardly ever for two that existed one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub inode: u64,
    /// Nanoseconds since 1970; 0 where the file system keeps no birth time.
    pub birth: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
}

/// Since 1970, of the system's real-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub accessed: Timestamp,
    pub modified: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

/// What can be set on an object besides contents and extended attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits with set-id and sticky bits, without the file type.
    pub mode: u32,
    pub owner: Owner,
    pub times: Times,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub identity: Identity,
    /// Which file system; differs from the store's where another is mounted.
    pub device: u64,
    pub kind: Kind,
    pub attributes: Attributes,
    pub changed: Timestamp,
    pub links: u32,
    pub length: u64,
    /// In 512-byte units.
    pub blocks: u64,
    /// Of a device node, as `makedev` packs it.
    pub device_number: u64,
    /// chattr +i or +a: entries or contents cannot be changed freely.
    pub immutable: bool,
    /// Something is mounted here: the name cannot be moved or removed.
    pub mount_point: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: Name,
    pub inode: u64,
    /// `None` where the file system does not say.
    pub kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// For stat, attributes and extended attributes only; any kind of object.
    Path,
    Directory,
    Read,
    ReadWrite,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewNode {
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharacterDevice(u64),
    BlockDevice(u64),
}

impl NewNode {
    /// Of a kind that takes nothing but a number, which is a device's.
    pub fn special(kind: Kind, device_number: u64) -> Option<NewNode> {
        match kind {
            Kind::Fifo => Some(NewNode::Fifo),
            Kind::Socket => Some(NewNode::Socket),
            Kind::CharacterDevice => Some(NewNode::CharacterDevice(device_number)),
            Kind::BlockDevice => Some(NewNode::BlockDevice(device_number)),
            Kind::File | Kind::Directory | Kind::Symlink => None,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            NewNode::Directory => Kind::Directory,
            NewNode::Symlink(_) => Kind::Symlink,
            NewNode::Fifo => Kind::Fifo,
            NewNode::Socket => Kind::Socket,
            NewNode::CharacterDevice(_) => Kind::CharacterDevice,
            NewNode::BlockDevice(_) => Kind::BlockDevice,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// What has the new name is replaced; a directory only if empty.
    Replace,
    /// `EEXIST` when the new name is taken.
    NoReplace,
    /// The two objects change places.
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemStatus {
    pub block_size: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_length_max: u32,
    pub read_only: bool,
    /// An overlay. An object of a lower layer becomes another one when it is first
    /// changed: its birth time changes, and perhaps its inode and its hard links.
    pub layered: bool,
}

/// From one boot and one mount to the other end of them. Where it is the same,
/// no crash lies between: everything written is there, synced or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounting {
    pub boot: [u8; 16],
    /// Never given twice during one boot.
    pub mount: u64,
}
