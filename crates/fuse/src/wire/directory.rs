use atomdir_disk::Kind;

use super::reply::ReplyWriter;
use crate::filesystem::Entry;

/// The length of fuse_entry_out, and of fuse_dirent without its name.
const ENTRY_LENGTH: usize = 128;
const HEAD_LENGTH: usize = 24;

/// One name in a directory and the position that follows it.
#[derive(Debug, Clone, Copy)]
pub struct PlainEntry<'a> {
    pub name: &'a [u8],
    pub inode: u64,
    pub kind: Kind,
    pub offset: u64,
}

/// Fills a READDIR or READDIRPLUS reply up to the length the kernel has room for.
pub struct DirectoryWriter<'a> {
    buffer: &'a mut Vec<u8>,
    length_max: usize,
    /// Whether this is READDIRPLUS: each name then comes with the answer to its lookup.
    plus: bool,
}

impl<'a> DirectoryWriter<'a> {
    pub fn new(buffer: &'a mut Vec<u8>, length_max: usize, plus: bool) -> DirectoryWriter<'a> {
        DirectoryWriter {
            buffer,
            length_max,
            plus,
        }
    }

    pub fn fits(&self, name: &[u8]) -> bool {
        let head = if self.plus {
            ENTRY_LENGTH + HEAD_LENGTH
        } else {
            HEAD_LENGTH
        };
        self.buffer.len() + (head + name.len()).next_multiple_of(8) <= self.length_max
    }

    /// Call only if it [`fits`](Self::fits). Without `found`, the kernel looks
    /// the name up itself when needed.
    pub fn push(&mut self, entry: &PlainEntry<'_>, found: Option<&Entry>) {
        let mut writer = ReplyWriter::new(self.buffer);
        match found {
            Some(found) if self.plus => writer.entry(found),
            None if self.plus => writer.bytes(&[0; ENTRY_LENGTH]),
            _ => {}
        }
        writer.u64(entry.inode);
        writer.u64(entry.offset);
        writer.u32(entry.name.len() as u32);
        // d_type is the type part of the mode, moved down
        writer.u32(entry.kind.type_bits() >> 12);
        writer.bytes(entry.name);
        self.buffer.resize(self.buffer.len().next_multiple_of(8), 0);
    }
}
