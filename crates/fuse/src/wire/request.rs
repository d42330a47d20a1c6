use super::flags::opcode;
use super::init::Init;
use super::reader::{Malformed, Reader};

/// What every request starts with (fuse_in_header).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
    pub user: u32,
    pub group: u32,
    pub process: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation<'a> {
    Init(Init),
    Destroy,
    Lookup { name: &'a [u8] },
    Forget { count: u64 },
    BatchForget(Vec<ForgetOne>),
    GetAttributes,
    SetAttributes(SetAttributesIn),
    ReadLink,
    Symlink { name: &'a [u8], target: &'a [u8] },
    MakeNode { name: &'a [u8], mode: u32, device: u32, umask: u32 },
    MakeDirectory { name: &'a [u8], mode: u32, umask: u32 },
    TemporaryFile { mode: u32, umask: u32 },
    Unlink { name: &'a [u8] },
    RemoveDirectory { name: &'a [u8] },
    Rename { name: &'a [u8], new_parent: u64, new_name: &'a [u8], flags: u32 },
    Link { from: u64, name: &'a [u8] },
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: &'a [u8], flags: u32 },
    Status,
    Release,
    SetXattr { name: &'a [u8], value: &'a [u8], flags: u32, extended_flags: u32 },
    GetXattr { name: &'a [u8], length_max: u32 },
    ListXattr { length_max: u32 },
    RemoveXattr { name: &'a [u8] },
    ReadDirectory { offset: u64, length_max: u32, plus: bool },
    Allocate { offset: u64, length: u64, mode: u32 },
    Seek { offset: u64, whence: u32 },
    SyncFileSystem,
    /// Anything this file system leaves to the kernel, by its opcode.
    Other(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgetOne {
    pub node: u64,
    pub count: u64,
}

/// fuse_setattr_in; which fields count is in `valid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetAttributesIn {
    pub valid: u32,
    pub length: u64,
    pub accessed_seconds: u64,
    pub modified_seconds: u64,
    pub accessed_nanoseconds: u32,
    pub modified_nanoseconds: u32,
    pub mode: u32,
    pub user: u32,
    pub group: u32,
}

/// Splits a request into its header and the operation's own bytes.
/// Extensions at the end (security contexts, groups) are cut off: none is asked for.
pub fn decode_header(bytes: &[u8]) -> Result<(Header, &[u8]), Malformed> {
    let mut reader = Reader::new(bytes);
    let length = reader.u32()? as usize;
    let header = Header {
        opcode: reader.u32()?,
        unique: reader.u64()?,
        node: reader.u64()?,
        user: reader.u32()?,
        group: reader.u32()?,
        process: reader.u32()?,
    };
    let extension_length = usize::from(reader.u16()?) * 8;
    reader.skip(2)?;
    if length != bytes.len() || extension_length > reader.remaining() {
        return Err(Malformed);
    }
    let body_length = reader.remaining() - extension_length;
    Ok((header, reader.take(body_length)?))
}

pub fn decode_operation<'a>(opcode: u32, body: &'a [u8]) -> Result<Operation<'a>, Malformed> {
    let mut reader = Reader::new(body);
    let reader = &mut reader;
    Ok(match opcode {
        opcode::INIT => Operation::Init(Init::decode(reader)?),
        opcode::DESTROY => Operation::Destroy,
        opcode::LOOKUP => Operation::Lookup { name: reader.name()? },
        opcode::FORGET => Operation::Forget { count: reader.u64()? },
        opcode::BATCH_FORGET => Operation::BatchForget(batch_forget(reader)?),
        opcode::GETATTR => Operation::GetAttributes,
        opcode::SETATTR => Operation::SetAttributes(set_attributes(reader)?),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => {
            Operation::Symlink { name: reader.name()?, target: reader.string()? }
        }
        opcode::MKNOD => make_node(reader)?,
        opcode::MKDIR => {
            let (mode, umask) = (reader.u32()?, reader.u32()?);
            Operation::MakeDirectory { name: reader.name()?, mode, umask }
        }
        opcode::TMPFILE => temporary_file(reader)?,
        opcode::UNLINK => Operation::Unlink { name: reader.name()? },
        opcode::RMDIR => Operation::RemoveDirectory { name: reader.name()? },
        opcode::RENAME | opcode::RENAME2 => rename(reader, opcode == opcode::RENAME2)?,
        opcode::LINK => Operation::Link { from: reader.u64()?, name: reader.name()? },
        opcode::READ => {
            let (offset, length) = span_of_read(reader)?;
            Operation::Read { offset, length }
        }
        opcode::READDIR | opcode::READDIRPLUS => {
            let (offset, length_max) = span_of_read(reader)?;
            let plus = opcode == opcode::READDIRPLUS;
            Operation::ReadDirectory { offset, length_max, plus }
        }
        opcode::WRITE => write(reader)?,
        opcode::STATFS => Operation::Status,
        opcode::RELEASE | opcode::RELEASEDIR => Operation::Release,
        opcode::SETXATTR => set_xattr(reader)?,
        opcode::GETXATTR => {
            let length_max = length_of_xattr(reader)?;
            Operation::GetXattr { name: reader.string()?, length_max }
        }
        opcode::LISTXATTR => Operation::ListXattr { length_max: length_of_xattr(reader)? },
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: reader.string()? },
        opcode::FALLOCATE => allocate(reader)?,
        opcode::LSEEK => {
            reader.skip(8)?;
            Operation::Seek { offset: reader.u64()?, whence: reader.u32()? }
        }
        opcode::SYNCFS => Operation::SyncFileSystem,
        other => Operation::Other(other),
    })
}

fn batch_forget(reader: &mut Reader<'_>) -> Result<Vec<ForgetOne>, Malformed> {
    let count = reader.u32()? as usize;
    reader.skip(4)?;
    if count.checked_mul(16).ok_or(Malformed)? > reader.remaining() {
        return Err(Malformed);
    }
    (0..count).map(|_| Ok(ForgetOne { node: reader.u64()?, count: reader.u64()? })).collect()
}

fn set_attributes(reader: &mut Reader<'_>) -> Result<SetAttributesIn, Malformed> {
    let valid = reader.u32()?;
    // padding, file handle
    reader.skip(12)?;
    let length = reader.u64()?;
    // lock owner
    reader.skip(8)?;
    let (accessed_seconds, modified_seconds) = (reader.u64()?, reader.u64()?);
    // change time: only with the writeback cache
    reader.skip(8)?;
    let (accessed_nanoseconds, modified_nanoseconds) = (reader.u32()?, reader.u32()?);
    reader.skip(4)?;
    let mode = reader.u32()?;
    reader.skip(4)?;
    let (user, group) = (reader.u32()?, reader.u32()?);
    Ok(SetAttributesIn {
        valid,
        length,
        accessed_seconds,
        modified_seconds,
        accessed_nanoseconds,
        modified_nanoseconds,
        mode,
        user,
        group,
    })
}

fn make_node<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (mode, device, umask) = (reader.u32()?, reader.u32()?, reader.u32()?);
    reader.skip(4)?;
    Ok(Operation::MakeNode { name: reader.name()?, mode, device, umask })
}

fn temporary_file<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    // open flags
    reader.skip(4)?;
    Ok(Operation::TemporaryFile { mode: reader.u32()?, umask: reader.u32()? })
}

fn rename<'a>(reader: &mut Reader<'a>, with_flags: bool) -> Result<Operation<'a>, Malformed> {
    let new_parent = reader.u64()?;
    let mut flags = 0;
    if with_flags {
        flags = reader.u32()?;
        reader.skip(4)?;
    }
    Ok(Operation::Rename { name: reader.name()?, new_parent, new_name: reader.name()?, flags })
}

/// fuse_read_in: offset and length.
fn span_of_read(reader: &mut Reader<'_>) -> Result<(u64, u32), Malformed> {
    reader.skip(8)?;
    Ok((reader.u64()?, reader.u32()?))
}

fn write<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    reader.skip(8)?;
    let (offset, length, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
    // lock owner, open flags, padding
    reader.skip(16)?;
    Ok(Operation::Write { offset, data: reader.take(length as usize)?, flags })
}

fn set_xattr<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (length, flags, extended_flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
    reader.skip(4)?;
    let name = reader.string()?;
    let value = reader.take(length as usize)?;
    Ok(Operation::SetXattr { name, value, flags, extended_flags })
}

fn length_of_xattr(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let length = reader.u32()?;
    reader.skip(4)?;
    Ok(length)
}

fn allocate<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    reader.skip(8)?;
    Ok(Operation::Allocate { offset: reader.u64()?, length: reader.u64()?, mode: reader.u32()? })
}
