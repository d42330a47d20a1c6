use crate::Name;
use atomdir_types::{Kind, Timestamp};
use rustix::fs::RenameFlags;

/// Identifies an object. Two objects that exist at the same time never have the
/// same identity; thanks to the birth time, two that exist one after the other
/// hardly ever do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub inode: u64,
    /// Nanoseconds since 1970; 0 if the file system keeps no birth time.
    pub birth: u64,
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

/// The attributes that can be set, besides extended attributes.
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
    /// The file system; differs from the store's if another one is mounted there.
    pub device: u64,
    pub kind: Kind,
    pub attributes: Attributes,
    pub changed: Timestamp,
    pub links: u32,
    pub length: u64,
    /// In 512-byte units.
    pub blocks: u64,
    /// The device number of a device node, as `makedev` packs it.
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
    /// `None` if the file system does not report it.
    pub kind: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only for stat, attributes and extended attributes; works for any kind of
    /// object.
    Path,
    Directory,
    Read,
    ReadWrite,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewNode {
    File,
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    /// The device number, as `makedev` packs it.
    CharacterDevice(u64),
    BlockDevice(u64),
}

impl NewNode {
    /// Returns a node of a kind that needs at most a device number.
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
            NewNode::File => Kind::File,
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
    /// An existing object of the new name is replaced; a directory only if it is
    /// empty.
    Replace,
    /// Fails with `EEXIST` if the new name exists.
    NoReplace,
    /// The two objects change places.
    Exchange,
}

impl From<RenameMode> for RenameFlags {
    fn from(mode: RenameMode) -> RenameFlags {
        match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        }
    }
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
    /// Whether this is an overlay. When an object of a lower layer is first
    /// changed, it becomes another object: its birth time changes, and perhaps its
    /// inode and its hard links.
    pub layered: bool,
    pub id: FileSystemId,
}

/// What tells one file system from another, whatever it is mounted on and after a reboot.
/// Zeros where none is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileSystemId(pub [u8; 16]);

impl FileSystemStatus {
    /// The space that is left for ordinary users.
    pub fn bytes_available(&self) -> u64 {
        self.blocks_available.saturating_mul(self.block_size)
    }
}

/// One mount during one boot. If two of these are equal, no crash lies between
/// them: everything written is there, synced or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mounting {
    pub boot: [u8; 16],
    /// Never used again during the same boot.
    pub mount: u64,
}
