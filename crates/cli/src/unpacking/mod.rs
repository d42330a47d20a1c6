//! Unpacks tar and zip archives.
//!
//! `archive` finds out what an archive is and decompresses it, `tar` and `zip` read its entries, and
//! `unpacker` creates what they describe. An archive is made by strangers, so
//!
//! 1. nothing is created, changed or linked outside the directory, by whatever names and links the
//!    archive, or the directory, contains: the kernel resolves each path beneath it;
//! 2. no file is written through a name that exists: it is removed, and a new one is made;
//! 3. device nodes are refused, and so is what we do not understand. Nothing is left out silently.

mod archive;
mod source;
mod tar;
mod unpacker;
mod xz_memory;
mod zip;

pub use archive::Archive;
pub use unpacker::Unpacker;

use rustix::fs::Timespec;
use std::io::{self, Read};

/// One entry of an archive.
pub struct Entry<'a> {
    pub path: Vec<u8>,
    pub item: Item,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// `None`: the archive does not say.
    pub owner: Option<Owner>,
    pub modified: Option<Timespec>,
    /// The contents of a file, and how long they must be.
    pub contents: &'a mut dyn Read,
    pub length: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    File,
    Directory,
    Symlink(Vec<u8>),
    /// Another name of what is at this path in the archive.
    Link(Vec<u8>),
    Fifo,
    /// What we cannot or will not create, with the reason.
    Refused(String),
}

/// A user and a group. Names that this machine knows come before numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
    pub user_name: Option<String>,
    pub group_name: Option<String>,
}

/// What is done with each entry. Its error ends the reading.
pub type Sink<'a> = dyn FnMut(&mut Entry<'_>) -> io::Result<()> + 'a;

fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.into())
}
