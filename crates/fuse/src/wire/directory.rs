use atomdir_disk::Kind;

use super::reply::{ReplyWriter, type_bits};
use crate::filesystem::Entry;

/// Length of fuse_entry_out, and of fuse_dirent before its name.
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
}

impl<'a> DirectoryWriter<'a> {
    pub fn new(buffer: &'a mut Vec<u8>, length_max: usize) -> DirectoryWriter<'a> {
        DirectoryWriter { buffer, length_max }
    }

    pub fn fits(&self, name: &[u8], plus: bool) -> bool {
        let head = if plus { ENTRY_LENGTH + HEAD_LENGTH } else { HEAD_LENGTH };
        self.buffer.len() + (head + name.len()).next_multiple_of(8) <= self.length_max
    }

    /// Call only if it [`fits`](Self::fits).
    pub fn push(&mut self, entry: &PlainEntry<'_>) {
        let mut writer = ReplyWriter::new(self.buffer);
        writer.u64(entry.inode);
        writer.u64(entry.offset);
        writer.u32(entry.name.len() as u32);
        // d_type is the type part of the mode, moved down
        writer.u32(type_bits(entry.kind) >> 12);
        writer.bytes(entry.name);
        self.buffer.resize(self.buffer.len().next_multiple_of(8), 0);
    }

    /// As [`push`](Self::push), with what a lookup of the name would answer;
    /// `None` tells the kernel to look it up itself when needed.
    pub fn push_with(&mut self, entry: &PlainEntry<'_>, found: Option<&Entry>) {
        match found {
            Some(found) => ReplyWriter::new(self.buffer).entry(found),
            None => self.buffer.resize(self.buffer.len() + ENTRY_LENGTH, 0),
        }
        self.push(entry);
    }
}
