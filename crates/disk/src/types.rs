use crate::{Errno, Name, Result};
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

/// The present boot, and the attachment of the disk that holds a file system. It is the same in
/// every mount namespace, by every path, and after the file system was mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    pub boot: [u8; 16],
    /// The kernel numbers the disks that are attached during one boot and uses no number again.
    /// 0 where the number cannot be found, or where no disk holds the file system.
    pub disk: u64,
}

impl Attachment {
    /// Whether no crash lies between the two: everything written is there, synced or not, since
    /// the kernel writes it when it unmounts the file system. A disk without a number counts as the
    /// same disk.
    pub fn continues(self, earlier: Attachment) -> bool {
        let is_same_disk = self.disk == earlier.disk || self.disk == 0 || earlier.disk == 0;
        self.boot == earlier.boot && is_same_disk
    }
}

/// What another program has locked of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartLock {
    /// Others may only lock what they read.
    Shared,
    Exclusive,
}

/// How other programs use a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileUsers {
    /// Somebody has it open or mapped for writing, or has locked it, or that cannot be known.
    pub is_in_use: bool,
    pub part_lock: Option<PartLock>,
}

/// What decides whether the kernel moves an object into a directory, besides permissions. It
/// refuses to move or link an object into a directory whose objects inherit its project if that of
/// the object is another one, and into an encrypted directory unless the object is encrypted in the
/// same way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    pub project: u32,
    pub inherits_project: bool,
    /// The policy; `None` if the object is not encrypted.
    pub encryption: Option<Vec<u8>>,
}

impl Placement {
    /// Whether an object with this placement can be moved or linked into the directory.
    pub fn fits(&self, directory: &Placement) -> bool {
        let fits_project = !directory.inherits_project || directory.project == self.project;
        let is_plain = directory.encryption.is_none();
        fits_project && (is_plain || directory.encryption == self.encryption)
    }
}

/// Extended attributes and their values. One that is removed while they are read is left out.
pub(crate) fn with_values(
    names: Vec<Vec<u8>>,
    read: impl Fn(&[u8]) -> Result<Vec<u8>>,
) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut xattrs = Vec::with_capacity(names.len());
    for name in names {
        match read(&name) {
            Err(Errno::NODATA) => {}
            value => xattrs.push((name, value?)),
        }
    }
    Ok(xattrs)
}
