//! From a decoded request to the file system and back to a reply.

use std::sync::Arc;

use atomdir_disk::{Errno, Kind, Name, RenameMode, Timestamp};

use crate::filesystem::{
    Entry, Filesystem, NewNode, NodeAttributes, Request, Result, Seek, SetAttributes, SetTime,
    Validity,
};
use crate::listings::{Listing, Listings, OFFSET_AFTER_DOT, OFFSET_AFTER_DOTS};
use crate::settle::{self, Settle};
use crate::wire::{
    self, DATA_LENGTH_MAX, DirectoryWriter, Header, Operation, PlainEntry, ReplyWriter,
    SetAttributesIn, flags,
};

/// What `..` says as its inode number, which no open directory knows.
const INODE_UNKNOWN: u64 = 0xffff_ffff;

/// What a worker needs to build a reply, used again for each request.
pub struct Scratch {
    /// A reply but for contents of files.
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

/// Where a successful answer lies.
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
    settle: Arc<Settle>,
}

impl<F> Clone for Dispatcher<F> {
    fn clone(&self) -> Dispatcher<F> {
        Dispatcher {
            filesystem: Arc::clone(&self.filesystem),
            listings: Arc::clone(&self.listings),
            settle: Arc::clone(&self.settle),
        }
    }
}

impl<F: Filesystem> Dispatcher<F> {
    pub fn new(
        filesystem: Arc<F>,
        listings: Arc<Listings>,
        settle: Arc<Settle>,
    ) -> Dispatcher<F> {
        Dispatcher { filesystem, listings, settle }
    }

    pub fn answer(
        &self,
        header: &Header,
        operation: Operation<'_>,
        scratch: &mut Scratch,
    ) -> Result<Answer> {
        scratch.reply.clear();
        scratch.given.clear();
        if header.node == settle::NODE {
            return self.answer_settle(&operation, scratch);
        }
        if let Operation::Lookup { name } = operation
            && self.settle.is_asked_for(header.node, name, header.process)
        {
            ReplyWriter::new(&mut scratch.reply).entry(&self.settle.entry());
            return Ok(Answer::Reply);
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
        call.answer(operation, scratch)
    }

    /// The session's own file: zeros, and writes that meet.
    fn answer_settle(&self, operation: &Operation<'_>, scratch: &mut Scratch) -> Result<Answer> {
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        match operation {
            Operation::GetAttributes | Operation::SetAttributes(_) => {
                writer.attributes_reply(&self.settle.attributes(), Validity::Forever);
            }
            Operation::Read { length, .. } => {
                scratch.data.get_mut(..*length as usize).ok_or(Errno::INVAL)?.fill(0);
                return Ok(Answer::Data(*length as usize));
            }
            Operation::Write { data, .. } => {
                self.settle.arrive();
                writer.u32(data.len() as u32);
                writer.u32(0);
            }
            Operation::GetXattr { .. } => return Err(Errno::NODATA),
            Operation::Forget { .. } | Operation::BatchForget(_) => return Ok(Answer::Silence),
            Operation::Release => {}
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Reply)
    }

    /// Takes back what an answer gave that nobody received.
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
            Operation::Forget { count } => {
                self.filesystem.forget(self.node, count);
                return Ok(Answer::Silence);
            }
            Operation::BatchForget(list) => {
                for one in list.iter().filter(|one| one.node != settle::NODE) {
                    self.filesystem.forget(one.node, one.count);
                }
                return Ok(Answer::Silence);
            }
            Operation::GetAttributes => {
                let found = self.filesystem.attributes(&self.request, self.node)?;
                reply_attributes(found, scratch);
            }
            Operation::SetAttributes(change) => {
                let change = decode_change(&change);
                let found = self.filesystem.set_attributes(&self.request, self.node, change)?;
                reply_attributes(found, scratch);
            }
            Operation::ReadLink => {
                scratch.reply = self.filesystem.read_link(&self.request, self.node)?;
            }
            Operation::Read { offset, length } => return self.read(offset, length, scratch),
            Operation::Write { offset, data, flags } => self.write(offset, data, flags, scratch)?,
            Operation::ReadDirectory { offset, length_max, plus } => {
                self.read_directory(offset, length_max as usize, plus, scratch)?;
            }
            Operation::Allocate { offset, length, mode } => {
                self.filesystem.allocate(&self.request, self.node, mode, offset, length)?;
            }
            Operation::Seek { offset, whence } => self.seek(offset, whence, scratch)?,
            Operation::Status => {
                let status = self.filesystem.status(&self.request, self.node)?;
                ReplyWriter::new(&mut scratch.reply).status(&status);
            }
            Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. } => self.xattr(operation, scratch)?,
            // A release of an open that was answered without asking.
            Operation::Release | Operation::SyncFileSystem | Operation::Destroy => {}
            Operation::Init(_) => return Err(Errno::IO),
            // The kernel then does by itself, and does not ask again: OPEN,
            // OPENDIR (every open succeeds and caches are kept), CREATE
            // (MKNOD and an open that needs no release), FLUSH, FSYNC,
            // FSYNCDIR (success, after dirty pages were written), ACCESS
            // (permissions were checked), COPY_FILE_RANGE (reads and writes),
            // INTERRUPT, POLL, STATX.
            Operation::Other(_) => return Err(Errno::NOSYS),
            change_of_names => self.change_names(change_of_names, scratch)?,
        }
        Ok(Answer::Reply)
    }

    fn lookup(&self, name: &[u8], scratch: &mut Scratch) -> Result<()> {
        match self.filesystem.lookup(&self.request, self.node, checked(name)?)? {
            Some(entry) => give(&entry, scratch),
            None => ReplyWriter::new(&mut scratch.reply).missing(Validity::Forever),
        }
        Ok(())
    }

    fn change_names(&self, operation: Operation<'_>, scratch: &mut Scratch) -> Result<()> {
        match operation {
            Operation::Symlink { name, target } => {
                self.create(name, NewNode::Symlink(target), 0o777, 0, scratch)?;
            }
            Operation::MakeNode { name, mode, device, umask } => {
                self.create(name, decode_new(mode, device)?, mode, umask, scratch)?;
            }
            Operation::MakeDirectory { name, mode, umask } => {
                self.create(name, NewNode::Directory, mode, umask, scratch)?;
            }
            Operation::TemporaryFile { mode, umask } => {
                let entry =
                    self.filesystem.create_unnamed(&self.request, self.node, mode & 0o7777, umask)?;
                give(&entry, scratch);
                ReplyWriter::new(&mut scratch.reply).open();
            }
            Operation::Link { from, name } => {
                let name = checked(name)?;
                let entry = self.filesystem.link(&self.request, from, self.node, name)?;
                self.listings.changed(self.node);
                give(&entry, scratch);
            }
            Operation::Unlink { name } => {
                self.filesystem.unlink(&self.request, self.node, checked(name)?)?;
                self.listings.removed(self.node, name);
            }
            Operation::RemoveDirectory { name } => {
                self.filesystem.remove_directory(&self.request, self.node, checked(name)?)?;
                self.listings.removed(self.node, name);
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(name, (new_parent, new_name), flags)?;
            }
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }

    fn create(
        &self,
        name: &[u8],
        what: NewNode<'_>,
        mode: u32,
        umask: u32,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (name, mode) = (checked(name)?, mode & 0o7777);
        let entry =
            self.filesystem.create(&self.request, self.node, name, what, mode, umask)?;
        self.listings.changed(self.node);
        give(&entry, scratch);
        Ok(())
    }

    fn rename(&self, name: &[u8], to: (u64, &[u8]), flags: u32) -> Result<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            flags::RENAME_NOREPLACE => RenameMode::NoReplace,
            flags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = ((self.node, checked(name)?), (to.0, checked(to.1)?));
        self.filesystem.rename(&self.request, from, to, mode)?;
        if mode == RenameMode::Exchange {
            self.listings.changed(from.0);
        } else {
            self.listings.removed(from.0, name);
        }
        self.listings.changed(to.0);
        Ok(())
    }

    fn read(&self, offset: u64, length: u32, scratch: &mut Scratch) -> Result<Answer> {
        let buffer = scratch.data.get_mut(..length as usize).ok_or(Errno::INVAL)?;
        let count = self.filesystem.read(&self.request, self.node, offset, buffer)?;
        Ok(Answer::Data(count.min(buffer.len())))
    }

    fn write(&self, offset: u64, data: &[u8], flags: u32, scratch: &mut Scratch) -> Result<()> {
        let kill_set_id = flags & flags::WRITE_KILL_SET_ID != 0;
        self.filesystem.write(&self.request, self.node, offset, data, kill_set_id)?;
        let mut writer = ReplyWriter::new(&mut scratch.reply);
        writer.u32(data.len() as u32);
        writer.u32(0);
        Ok(())
    }

    fn seek(&self, offset: u64, whence: u32, scratch: &mut Scratch) -> Result<()> {
        let what = match whence {
            flags::SEEK_DATA => Seek::Data,
            flags::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let found = self.filesystem.seek(&self.request, self.node, offset, what)?;
        ReplyWriter::new(&mut scratch.reply).u64(found);
        Ok(())
    }

    fn xattr(&self, operation: Operation<'_>, scratch: &mut Scratch) -> Result<()> {
        let (filesystem, request, node) = (self.filesystem, &self.request, self.node);
        match operation {
            Operation::SetXattr { name, value, flags, extended_flags } => {
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

    fn read_directory(
        &self,
        offset: u64,
        length_max: usize,
        plus: bool,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Scratch { reply, given, .. } = scratch;
        let listing = self.listing()?;
        let mut writer = DirectoryWriter::new(reply, length_max.min(DATA_LENGTH_MAX));
        let mut push = |entry: &PlainEntry<'_>, found: Option<&Entry>| {
            if plus { writer.push_with(entry, found) } else { writer.push(entry) }
        };
        if offset < OFFSET_AFTER_DOTS {
            let inode = self.filesystem.attributes(&self.request, self.node)?.0.inode;
            let kind = Kind::Directory;
            if offset < OFFSET_AFTER_DOT {
                push(&PlainEntry { name: b".", inode, kind, offset: OFFSET_AFTER_DOT }, None);
            }
            let inode = INODE_UNKNOWN;
            push(&PlainEntry { name: b"..", inode, kind, offset: OFFSET_AFTER_DOTS }, None);
        }
        for (offset, item) in listing.after(offset) {
            let name = item.name.as_bytes();
            if !writer.fits(name, plus) {
                break;
            }
            let entry = PlainEntry { name, inode: item.inode, kind: item.kind, offset };
            if !plus {
                writer.push(&entry);
                continue;
            }
            match self.filesystem.lookup(&self.request, self.node, name) {
                Ok(Some(found)) => {
                    given.push(found.node);
                    writer.push_with(&entry, Some(&found));
                }
                // It went since the directory was listed.
                Ok(None) | Err(Errno::NOENT) => {}
                Err(_) => writer.push_with(&entry, None),
            }
        }
        if reply.is_empty() {
            self.listings.finished(self.node);
        }
        Ok(())
    }

    fn listing(&self) -> Result<Arc<Listing>> {
        if let Some(listing) = self.listings.kept(self.node) {
            return Ok(listing);
        }
        let moment = self.listings.moment(self.node);
        let listing = self.listings.sort(self.filesystem.list(&self.request, self.node)?);
        self.listings.keep(self.node, &listing, moment);
        Ok(listing)
    }
}

fn checked(name: &[u8]) -> Result<&[u8]> {
    if name.len() > Name::LENGTH_MAX { Err(Errno::NAMETOOLONG) } else { Ok(name) }
}

fn give(entry: &Entry, scratch: &mut Scratch) {
    scratch.given.push(entry.node);
    ReplyWriter::new(&mut scratch.reply).entry(entry);
}

fn reply_attributes(found: (NodeAttributes, Validity), scratch: &mut Scratch) {
    ReplyWriter::new(&mut scratch.reply).attributes_reply(&found.0, found.1);
}

/// The value, or with a `length_max` of 0 only its length.
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

fn decode_new(mode: u32, device: u32) -> Result<NewNode<'static>> {
    let device = wire::decode_device(device);
    match wire::kind_of_mode(mode) {
        Some(Kind::File) => Ok(NewNode::File),
        Some(Kind::Fifo) => Ok(NewNode::Fifo),
        Some(Kind::Socket) => Ok(NewNode::Socket),
        Some(Kind::CharacterDevice) => Ok(NewNode::CharacterDevice(device)),
        Some(Kind::BlockDevice) => Ok(NewNode::BlockDevice(device)),
        Some(Kind::Directory | Kind::Symlink) | None => Err(Errno::INVAL),
    }
}

fn decode_change(change: &SetAttributesIn) -> SetAttributes {
    let has = |bit| change.valid & bit != 0;
    let time = |bit, now, seconds: u64, nanoseconds| {
        if has(now) {
            Some(SetTime::Now)
        } else {
            let at = Timestamp { seconds: seconds as i64, nanoseconds };
            has(bit).then_some(SetTime::At(at))
        }
    };
    SetAttributes {
        mode: has(flags::set::MODE).then_some(change.mode & 0o7777),
        user: has(flags::set::USER).then_some(change.user),
        group: has(flags::set::GROUP).then_some(change.group),
        length: has(flags::set::LENGTH).then_some(change.length),
        accessed: time(
            flags::set::ACCESSED,
            flags::set::ACCESSED_NOW,
            change.accessed_seconds,
            change.accessed_nanoseconds,
        ),
        modified: time(
            flags::set::MODIFIED,
            flags::set::MODIFIED_NOW,
            change.modified_seconds,
            change.modified_nanoseconds,
        ),
        kill_set_id: has(flags::set::KILL_SET_ID),
    }
}
