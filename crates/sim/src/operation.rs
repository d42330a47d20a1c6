//! Operations of programs on a tree: in a transaction's view, or on the plain
//! disk.

use atomdir_disk::{Access, Disk, Errno, Name, Owner, RenameMode, Result, Times, Timestamp};
use atomdir_engine::{NewNode, NodeId, SetAttributes, SetTime, Transaction};

use crate::disk::{Handle, SimDisk};
use crate::tree::CALLER;

#[derive(Debug, Clone)]
pub enum Operation {
    /// A new file of this many bytes.
    File(String, u64),
    /// The offset, and the number of bytes to write there.
    Write(String, u64, u64),
    Truncate(String, u64),
    Make(String, Node),
    Mode(String, u32),
    Owner(String, u32, u32),
    /// The time is in seconds.
    Modified(String, i64),
    Xattr(String, Option<&'static str>),
    /// A capability that a program gets when the file is executed.
    Capability(String),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    Unlink(String),
    RemoveDirectory(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    Directory,
    Symlink,
    Fifo,
    Device,
}

pub(crate) const XATTR: &[u8] = b"user.note";
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
pub(crate) const CAPABILITY_VALUE: &[u8] = b"a capability";
const LINK_TARGET: &[u8] = b"some/target";
const DEVICE_NUMBER: u64 = 0x103;

/// Bytes that differ with their place and with the operation that writes them.
pub(crate) fn pattern(salt: u64, offset: u64, length: u64) -> Vec<u8> {
    let byte = |at: u64| {
        let mixed = ((at / 64) ^ (salt << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        1 + (mixed % 255) as u8
    };
    (offset..offset + length).map(byte).collect()
}

pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// A tree on which the operations can be done.
pub(crate) trait Target {
    fn act(&self, operation: &Operation, salt: u64) -> Result<()>;
}

impl Target for Transaction<SimDisk> {
    fn act(&self, operation: &Operation, salt: u64) -> Result<()> {
        let node = |path: &str| self.resolve(path.as_bytes())?.ok_or(Errno::NOENT);
        let place = |path| {
            let (parent, name): (&str, &'_ str) = split(path);
            Ok::<(NodeId, &[u8]), Errno>((node(parent)?, name.as_bytes()))
        };
        let set = |path: &str, change| self.set_attributes(node(path)?, change, CALLER).map(drop);
        let rename = |from, to, mode| {
            let ((from, name), (to, new_name)) = (place(from)?, place(to)?);
            self.rename(from, name, to, new_name, mode)
        };
        match operation {
            Operation::File(path, length) => {
                let (parent, name) = place(path)?;
                let file = self.create(parent, name, NewNode::File, 0o644, 0, CALLER)?;
                self.write(file.node, 0, &pattern(salt, 0, *length), false)?;
                self.forget(file.node, 1);
                Ok(())
            }
            Operation::Write(path, offset, length) => {
                let data = pattern(salt, *offset, *length);
                self.write(node(path)?, *offset, &data, true).map(drop)
            }
            Operation::Truncate(path, length) => set(
                path,
                SetAttributes {
                    length: Some(*length),
                    kill_set_id: true,
                    ..SetAttributes::default()
                },
            ),
            Operation::Make(path, what) => {
                let (parent, name) = place(path)?;
                let made = self.create(parent, name, what.new_node(), 0o755, 0, CALLER)?;
                self.forget(made.node, 1);
                Ok(())
            }
            Operation::Mode(path, mode) => set(
                path,
                SetAttributes {
                    mode: Some(*mode),
                    ..SetAttributes::default()
                },
            ),
            Operation::Owner(path, user, group) => set(
                path,
                SetAttributes {
                    user: Some(*user),
                    group: Some(*group),
                    ..SetAttributes::default()
                },
            ),
            Operation::Modified(path, seconds) => set(
                path,
                SetAttributes {
                    modified: Some(SetTime::At(at(*seconds))),
                    ..SetAttributes::default()
                },
            ),
            Operation::Xattr(path, Some(value)) => {
                self.set_xattr(node(path)?, XATTR, value.as_bytes(), 0, false)
            }
            Operation::Xattr(path, None) => self.remove_xattr(node(path)?, XATTR),
            Operation::Capability(path) => {
                self.set_xattr(node(path)?, CAPABILITY, CAPABILITY_VALUE, 0, false)
            }
            Operation::Rename(from, to) => rename(from, to, RenameMode::Replace),
            Operation::Exchange(from, to) => rename(from, to, RenameMode::Exchange),
            Operation::Link(from, to) => {
                let (parent, name) = place(to)?;
                let linked = self.link(node(from)?, parent, name)?;
                self.forget(linked.node, 1);
                Ok(())
            }
            Operation::Unlink(path) => {
                place(path).and_then(|(parent, name)| self.unlink(parent, name))
            }
            Operation::RemoveDirectory(path) => {
                place(path).and_then(|(parent, name)| self.remove_directory(parent, name))
            }
        }
    }
}

impl Target for SimDisk {
    fn act(&self, operation: &Operation, salt: u64) -> Result<()> {
        let place = |path: &str| {
            let (parent, name) = split(path);
            Ok::<(Handle, Name), Errno>((self.directory_at(parent)?, name_of(name)?))
        };
        let open = |path: &String, access| {
            if path.is_empty() {
                return Ok(self.root());
            }
            let (parent, name) = place(path)?;
            self.open(&parent, &name, access)
        };
        let rename = |from, to, mode| {
            let ((from, name), (to, new_name)) = (place(from)?, place(to)?);
            self.rename((&from, &name), (&to, &new_name), mode)
        };
        match operation {
            Operation::File(path, length) => {
                let (parent, name) = place(path)?;
                let file = self.create(&parent, &name, 0o644)?;
                self.write_at(&file, &pattern(salt, 0, *length), 0)
            }
            Operation::Write(path, offset, length) => {
                let data = pattern(salt, *offset, *length);
                self.write_at(&open(path, Access::ReadWrite)?, &data, *offset)
            }
            Operation::Truncate(path, length) => {
                self.set_length(&open(path, Access::ReadWrite)?, *length)
            }
            Operation::Make(path, what) => {
                let (parent, name) = place(path)?;
                self.make(&parent, &name, &what.new_node(), 0o755)
            }
            Operation::Mode(path, mode) => self.set_mode(&open(path, Access::Path)?, *mode),
            Operation::Owner(path, user, group) => {
                let owner = Owner {
                    user: *user,
                    group: *group,
                };
                self.set_owner(&open(path, Access::Path)?, owner)
            }
            Operation::Modified(path, seconds) => {
                let object = open(path, Access::Path)?;
                let accessed = self.stat(&object)?.attributes.times.accessed;
                let times = Times {
                    accessed,
                    modified: at(*seconds),
                };
                self.set_times(&object, times)
            }
            Operation::Xattr(path, Some(value)) => {
                self.set_xattr(&open(path, Access::Path)?, XATTR, value.as_bytes())
            }
            Operation::Xattr(path, None) => self.remove_xattr(&open(path, Access::Path)?, XATTR),
            Operation::Capability(path) => {
                self.set_xattr(&open(path, Access::Path)?, CAPABILITY, CAPABILITY_VALUE)
            }
            Operation::Rename(from, to) => rename(from, to, RenameMode::Replace),
            Operation::Exchange(from, to) => rename(from, to, RenameMode::Exchange),
            Operation::Link(from, to) => {
                let ((from, name), (to, new_name)) = (place(from)?, place(to)?);
                self.link((&from, &name), (&to, &new_name))
            }
            Operation::Unlink(path) => {
                let (parent, name) = place(path)?;
                self.unlink(&parent, &name)
            }
            Operation::RemoveDirectory(path) => {
                let (parent, name) = place(path)?;
                self.remove_directory(&parent, &name)
            }
        }
    }
}

impl SimDisk {
    pub(crate) fn directory_at(&self, path: &str) -> Result<Handle> {
        let mut directory = self.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            directory = self.open(&directory, &name_of(name)?, Access::Directory)?;
        }
        Ok(directory)
    }
}

impl Node {
    pub(crate) fn new_node(self) -> NewNode {
        match self {
            Node::Directory => NewNode::Directory,
            Node::Symlink => NewNode::Symlink(LINK_TARGET.to_vec()),
            Node::Fifo => NewNode::Fifo,
            Node::Device => NewNode::CharacterDevice(DEVICE_NUMBER),
        }
    }
}

pub(crate) fn name_of(name: &str) -> Result<Name> {
    Name::new(name.as_bytes()).map_err(|_| Errno::INVAL)
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanoseconds: 0,
    }
}
