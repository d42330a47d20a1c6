//! Passes a decoded request to the file system, and encodes its answer as a reply.

mod decode;
mod directory;
mod names;

use std::sync::Arc;

use atomdir_disk::{Errno, Name};
use rustix::fs::OFlags;

use crate::barrier;
use crate::filesystem::{
    Entry, Filesystem, NodeAttributes, Opened, Request, Result, Seek, Validity,
};
use crate::listings::Listings;
use crate::shared::Shared;
use crate::waiting::Deferred;
use crate::wire::{DATA_LENGTH_MAX, Header, Operation, ReplyWriter, STATEFUL, flags};

/// How many bytes one request copies at most, so that it does not keep its thread for long.
const COPIED_BYTES_MAX: u64 = 4 << 20;

/// What a worker needs to build a reply, used again for each request.
pub struct Scratch {
    /// A reply, without contents of files.
    pub reply: Vec<u8>,
    /// Contents of a file.
    pub data: Box<[u8]>,
    /// Nodes whose lookup count this reply raises.
    pub given: Vec<u64>,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch {
            reply: Vec::new(),
            data: vec![0; DATA_LENGTH_MAX].into_boxed_slice(),
            given: Vec::new(),
        }
    }
}

/// Where to find the bytes of a successful answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// In `Scratch::reply`.
    Reply,
    /// The first bytes of `Scratch::data`.
    Data(usize),
    /// The kernel expects none.
    Silence,
}

pub struct Dispatcher<F> {
    filesystem: Arc<F>,
    listings: Arc<Listings>,
    shared: Arc<Shared>,
}

impl<F> Clone for Dispatcher<F> {
    fn clone(&self) -> Dispatcher<F> {
        Dispatcher {
            filesystem: Arc::clone(&self.filesystem),
            listings: Arc::clone(&self.listings),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<F: Filesystem> Dispatcher<F> {
    pub fn new(filesystem: Arc<F>, listings: Arc<Listings>, shared: Arc<Shared>) -> Dispatcher<F> {
        Dispatcher {
            filesystem,
            listings,
            shared,
        }
    }

    pub fn answer(
        &self,
        header: &Header,
        operation: Operation<'_>,
        scratch: &mut Scratch,
    ) -> Result<Answer> {
        scratch.reply.clear();
        scratch.given.clear();
        if header.node == barrier::NODE {
            return self.answer_barrier(&operation, scratch);
        }
        match operation {
            Operation::Lookup { name }
                if self
                    .shared
                    .barrier
                    .is_asked_for(header.node, name, header.process) =>
            {
                ReplyWriter::new(&mut scratch.reply).entry(&self.shared.barrier.entry());
                return Ok(Answer::Reply);
            }
            Operation::Interrupt { unique } => {
                if let Some(request) = self.shared.waiting.interrupt(unique) {
                    self.give_up(&request);
                }
                return Ok(Answer::Silence);
            }
            _ => {}
        }
        let call = Call {
            filesystem: &*self.filesystem,
            listings: &self.listings,
            request: Request {
                unique: header.unique,
                user: header.user,
                group: header.group,
                process: header.process,
            },
            node: header.node,
        };
        let barrier = &self.shared.barrier;
        let is_look = matches!(operation, Operation::Lookup { .. });
        match call.answer(operation, scratch) {
            Err(Errno::NOENT) if is_look && barrier.asks_in_root(header.node, header.process) => {
                Err(Errno::STALE)
            }
            answer => answer,
        }
    }

    /// Answers for the session's own file. It reads as zeros, and each write to it tells the
    /// barrier that a worker has arrived.
    fn answer_barrier(&self, operation: &Operation<'_>, scratch: &mut Scratch) -> Result<Answer> {
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        match operation {
            Operation::GetAttributes | Operation::SetAttributes(_) => {
                writer.attributes_reply(&self.shared.barrier.attributes(), Validity::Forever);
            }
            Operation::Read { length, .. } => {
                scratch
                    .data
                    .get_mut(..*length as usize)
                    .ok_or(Errno::INVAL)?
                    .fill(0);
                return Ok(Answer::Data(*length as usize));
            }
            Operation::Write { data, .. } => {
                self.shared.barrier.arrive();
                writer.u32(data.len() as u32);
                writer.u32(0);
            }
            Operation::GetXattr { .. } => return Err(Errno::NODATA),
            Operation::Forget { .. } | Operation::BatchForget(_) => return Ok(Answer::Silence),
            Operation::Open { .. } if self.filesystem.serves_opens() => {
                writer.open(Opened::Plainly);
            }
            Operation::Closing if self.filesystem.serves_opens() => {}
            Operation::Release { .. } | Operation::Flush => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Reply)
    }

    /// Answers a request that waits and that was interrupted.
    pub fn give_up(&self, request: &Deferred) {
        let unique = request.unique();
        self.filesystem.gave_up(unique);
        let _ = request.addressee.answer(unique, Err(Errno::INTR));
    }

    /// Undoes the lookup counts that an answer raised, if nobody received it.
    pub fn withdraw(&self, scratch: &mut Scratch) {
        for node in scratch.given.drain(..) {
            self.filesystem.forget(node, 1);
        }
    }
}

/// One request.
struct Call<'a, F> {
    filesystem: &'a F,
    listings: &'a Listings,
    request: Request,
    node: u64,
}

impl<F: Filesystem> Call<'_, F> {
    fn answer(&self, operation: Operation<'_>, scratch: &mut Scratch) -> Result<Answer> {
        match operation {
            Operation::Lookup { name } => self.lookup(name, scratch)?,
            Operation::Forget { count } => return Ok(self.forget(self.node, count)),
            Operation::BatchForget(list) => {
                for one in list {
                    self.forget(one.node, one.count);
                }
                return Ok(Answer::Silence);
            }
            Operation::GetAttributes => {
                let found = self.filesystem.attributes(&self.request, self.node)?;
                reply_attributes(found, scratch);
            }
            Operation::SetAttributes(change) => {
                let change = decode::change(&change);
                let found = self
                    .filesystem
                    .set_attributes(&self.request, self.node, change)?;
                reply_attributes(found, scratch);
            }
            Operation::ReadLink => {
                scratch.reply = self.filesystem.read_link(&self.request, self.node)?;
            }
            Operation::Read { offset, length } => return self.read(offset, length, scratch),
            Operation::Write {
                offset,
                data,
                flags,
                open_flags,
            } => self.write(offset, data, (flags, open_flags), scratch)?,
            Operation::ReadDirectory {
                offset,
                length_max,
                plus,
            } => {
                self.read_directory(offset, length_max, plus, scratch)?;
            }
            Operation::Allocate {
                offset,
                length,
                mode,
            } => {
                self.filesystem
                    .allocate(&self.request, self.node, mode, offset, length)?;
            }
            Operation::Seek { offset, whence } => self.seek(offset, whence, scratch)?,
            Operation::CopyRange {
                offset,
                to,
                to_offset,
                length,
            } => self.copy_range(offset, (to, to_offset), length, scratch)?,
            Operation::Status => self.status(scratch)?,
            Operation::GetFlags => {
                self.filesystem.before_copy_up(&self.request, self.node)?;
                return Err(Errno::NOSYS);
            }
            Operation::Flush => self.filesystem.flush(&self.request, self.node)?,
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. } => self.xattr(operation, scratch)?,
            Operation::Open { .. } | Operation::Create { .. } | Operation::Closing
                if !self.filesystem.serves_opens() =>
            {
                return Err(Errno::NOSYS);
            }
            Operation::Open { flags } => {
                let flags = OFlags::from_bits_retain(flags);
                let opened = self.filesystem.open(&self.request, self.node, flags)?;
                ReplyWriter::new(&mut scratch.reply).open(opened);
            }
            Operation::Closing => self.filesystem.closing(&self.request, self.node)?,
            Operation::Release { handle: STATEFUL } => self.filesystem.closed(self.node),
            // It belongs to an open that carries no state.
            Operation::Release { .. } | Operation::SyncFileSystem | Operation::Destroy => {}
            Operation::Init(_) => return Err(Errno::IO),
            // After ENOSYS the kernel does these by itself and does not ask again:
            // OPEN (above), OPENDIR (every open succeeds and caches are kept), CREATE
            // (MKNOD and an open that needs no release), FLUSH (success, after
            // dirty pages were written), ACCESS (permissions were checked),
            // COPY_FILE_RANGE_64 (COPY_FILE_RANGE), POLL, STATX.
            Operation::Other(_) => return Err(Errno::NOSYS),
            change_of_names => self.change_names(change_of_names, scratch)?,
        }
        Ok(Answer::Reply)
    }

    fn forget(&self, node: u64, count: u64) -> Answer {
        if node != barrier::NODE {
            // Another directory may get this number next.
            self.listings.finished(node);
            self.filesystem.forget(node, count);
        }
        Answer::Silence
    }

    fn lookup(&self, name: &[u8], scratch: &mut Scratch) -> Result<()> {
        match self
            .filesystem
            .lookup(&self.request, self.node, checked(name)?)?
        {
            Some(entry) => give(&entry, scratch),
            None => ReplyWriter::new(&mut scratch.reply).missing(Validity::Forever),
        }
        Ok(())
    }

    fn read(&self, offset: u64, length: u32, scratch: &mut Scratch) -> Result<Answer> {
        let buffer = scratch
            .data
            .get_mut(..length as usize)
            .ok_or(Errno::INVAL)?;
        let count = self
            .filesystem
            .read(&self.request, self.node, offset, buffer)?;
        Ok(Answer::Data(count.min(buffer.len())))
    }

    fn write(
        &self,
        offset: u64,
        data: &[u8],
        (flags, open_flags): (u32, u32),
        scratch: &mut Scratch,
    ) -> Result<()> {
        let kill_set_id = flags & flags::WRITE_KILL_SET_ID != 0;
        let is_from_cache = flags & flags::WRITE_FROM_CACHE != 0;
        let appends = OFlags::from_bits_retain(open_flags).contains(OFlags::APPEND);
        let (filesystem, request, node) = (self.filesystem, &self.request, self.node);
        match appends {
            _ if is_from_cache => {
                filesystem.write_back(request, node, offset, data, kill_set_id)?;
            }
            true => filesystem.append(request, node, offset, data, kill_set_id)?,
            false => filesystem.write(request, node, offset, data, kill_set_id)?,
        }
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        writer.u32(data.len() as u32);
        writer.u32(0);
        Ok(())
    }

    /// Copies the range, or its beginning. The kernel lets the program ask for the rest, and so for
    /// the error, if there was one.
    fn copy_range(
        &self,
        offset: u64,
        (to, to_offset): (u64, u64),
        length: u64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let length = length.min(COPIED_BYTES_MAX);
        let mut copied = 0;
        while copied < length {
            let chunk_length = (length - copied).min(DATA_LENGTH_MAX as u64);
            let chunk = &mut scratch.data[..chunk_length as usize];
            match self.copy_chunk(offset + copied, (to, to_offset + copied), chunk) {
                Ok(0) => break,
                Ok(count) => copied += count as u64,
                Err(errno) if copied == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        writer.u32(copied as u32);
        writer.u32(0);
        Ok(())
    }

    fn copy_chunk(
        &self,
        offset: u64,
        (to, to_offset): (u64, u64),
        chunk: &mut [u8],
    ) -> Result<usize> {
        let (filesystem, request) = (self.filesystem, &self.request);
        let count = filesystem.read(request, self.node, offset, chunk)?;
        if count > 0 {
            // This request has no flag for it. Root's right to keep set-id bits is assumed.
            let kill_set_id = request.user != 0;
            filesystem.write(request, to, to_offset, &chunk[..count], kill_set_id)?;
        }
        Ok(count)
    }

    fn seek(&self, offset: u64, whence: u32, scratch: &mut Scratch) -> Result<()> {
        let what = match whence {
            flags::SEEK_DATA => Seek::Data,
            flags::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let found = self
            .filesystem
            .seek(&self.request, self.node, offset, what)?;
        ReplyWriter::new(&mut scratch.reply).u64(found);
        Ok(())
    }

    fn status(&self, scratch: &mut Scratch) -> Result<()> {
        let status = self.filesystem.status(&self.request, self.node)?;
        ReplyWriter::new(&mut scratch.reply).status(&status);
        Ok(())
    }

    fn xattr(&self, operation: Operation<'_>, scratch: &mut Scratch) -> Result<()> {
        let (filesystem, request, node) = (self.filesystem, &self.request, self.node);
        match operation {
            Operation::SetXattr {
                name,
                value,
                flags,
                extended_flags,
            } => {
                let kill = extended_flags & flags::SETXATTR_ACL_KILL_SET_GROUP_ID != 0;
                filesystem.set_xattr(request, node, name, value, flags, kill)
            }
            Operation::GetXattr { name, length_max } => {
                let value = filesystem.xattr(request, node, name)?;
                reply_sized(value, length_max, scratch)
            }
            Operation::ListXattr { length_max } => {
                let mut list = Vec::new();
                for name in filesystem.xattr_names(request, node)? {
                    list.extend_from_slice(&name);
                    list.push(0);
                }
                reply_sized(list, length_max, scratch)
            }
            Operation::RemoveXattr { name } => filesystem.remove_xattr(request, node, name),
            _ => Err(Errno::NOSYS),
        }
    }
}

fn checked(name: &[u8]) -> Result<&[u8]> {
    if name.len() > Name::LENGTH_MAX {
        Err(Errno::NAMETOOLONG)
    } else {
        Ok(name)
    }
}

fn give(entry: &Entry, scratch: &mut Scratch) {
    scratch.given.push(entry.node);
    ReplyWriter::new(&mut scratch.reply).entry(entry);
}

fn reply_attributes(found: (NodeAttributes, Validity), scratch: &mut Scratch) {
    ReplyWriter::new(&mut scratch.reply).attributes_reply(&found.0, found.1);
}

/// Replies with the value, or only with its length if `length_max` is 0.
fn reply_sized(value: Vec<u8>, length_max: u32, scratch: &mut Scratch) -> Result<()> {
    if length_max == 0 {
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        writer.u32(value.len() as u32);
        writer.u32(0);
    } else if value.len() > length_max as usize {
        return Err(Errno::RANGE);
    } else {
        scratch.reply = value;
    }
    Ok(())
}
