use super::flags::{self, opcode};
use super::init::Init;
use super::reader::{Malformed, Reader};

/// The header of every request (fuse_in_header).
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
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Vec<ForgetOne>),
    GetAttributes,
    SetAttributes(SetAttributesIn),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode {
        name: &'a [u8],
        mode: u32,
        device: u32,
        umask: u32,
    },
    MakeDirectory {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    TemporaryFile {
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: u64,
        new_name: &'a [u8],
        flags: u32,
    },
    Link {
        from: u64,
        name: &'a [u8],
    },
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        data: &'a [u8],
        flags: u32,
        /// The flags with which the program has opened the file.
        open_flags: u32,
    },
    Status,
    /// FS_IOC_GETFLAGS.
    GetFlags,
    /// Asks for nothing of a file system that serves no opens.
    Open {
        flags: u32,
    },
    /// Creates a file and opens it.
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: u32,
    },
    /// A descriptor is being closed (FLUSH).
    Closing,
    /// The last descriptor of an open has been closed.
    Release {
        handle: u64,
    },
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        extended_flags: u32,
    },
    GetXattr {
        name: &'a [u8],
        length_max: u32,
    },
    ListXattr {
        length_max: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    ReadDirectory {
        offset: u64,
        length_max: u32,
        plus: bool,
    },
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    CopyRange {
        offset: u64,
        to: u64,
        to_offset: u64,
        length: u64,
    },
    SyncFileSystem,
    /// FSYNC and FSYNCDIR.
    Flush,
    /// A signal has come to the program that waits for the answer to this request.
    Interrupt {
        unique: u64,
    },
    /// An operation that this file system leaves to the kernel, by its opcode.
    Other(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForgetOne {
    pub node: u64,
    pub count: u64,
}

/// fuse_setattr_in; `valid` says which fields count.
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
/// It cuts off extensions at the end (security contexts, groups): we ask for none.
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
        opcode::INTERRUPT => {
            let unique = reader.u64()?;
            Operation::Interrupt { unique }
        }
        opcode::FORGET => {
            let count = reader.u64()?;
            Operation::Forget { count }
        }
        opcode::BATCH_FORGET => Operation::BatchForget(batch_forget(reader)?),
        opcode::GETATTR => Operation::GetAttributes,
        opcode::SETATTR => Operation::SetAttributes(set_attributes(reader)?),
        opcode::READLINK => Operation::ReadLink,
        opcode::READ => {
            let (offset, length) = span_of_read(reader)?;
            Operation::Read { offset, length }
        }
        opcode::READDIR => read_directory(reader, false)?,
        opcode::READDIRPLUS => read_directory(reader, true)?,
        opcode::WRITE => write(reader)?,
        opcode::FALLOCATE => allocate(reader)?,
        opcode::LSEEK => seek(reader)?,
        opcode::COPY_FILE_RANGE => copy_range(reader)?,
        opcode::STATFS => Operation::Status,
        opcode::IOCTL => control(reader)?,
        opcode::SYNCFS => Operation::SyncFileSystem,
        opcode::FSYNC | opcode::FSYNCDIR => Operation::Flush,
        opcode::OPEN => {
            let flags = reader.u32()?;
            Operation::Open { flags }
        }
        opcode::FLUSH => Operation::Closing,
        opcode::RELEASE | opcode::RELEASEDIR => {
            let handle = reader.u64()?;
            Operation::Release { handle }
        }
        opcode::TMPFILE => temporary_file(reader)?,
        opcode::SETXATTR => set_xattr(reader)?,
        opcode::GETXATTR => get_xattr(reader)?,
        opcode::LISTXATTR => {
            let length_max = length_of_xattr(reader)?;
            Operation::ListXattr { length_max }
        }
        opcode::REMOVEXATTR => {
            let name = reader.string()?;
            Operation::RemoveXattr { name }
        }
        _ => decode_on_name(opcode, reader)?,
    })
}

/// Operations on a name in a directory.
fn decode_on_name<'a>(opcode: u32, reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    Ok(match opcode {
        opcode::LOOKUP => {
            let name = reader.name()?;
            Operation::Lookup { name }
        }
        opcode::SYMLINK => {
            let (name, target) = (reader.name()?, reader.string()?);
            Operation::Symlink { name, target }
        }
        opcode::MKNOD => make_node(reader)?,
        opcode::CREATE => create(reader)?,
        opcode::MKDIR => {
            let (mode, umask) = (reader.u32()?, reader.u32()?);
            let name = reader.name()?;
            Operation::MakeDirectory { name, mode, umask }
        }
        opcode::UNLINK => {
            let name = reader.name()?;
            Operation::Unlink { name }
        }
        opcode::RMDIR => {
            let name = reader.name()?;
            Operation::RemoveDirectory { name }
        }
        opcode::RENAME => rename(reader, false)?,
        opcode::RENAME2 => rename(reader, true)?,
        opcode::LINK => {
            let (from, name) = (reader.u64()?, reader.name()?);
            Operation::Link { from, name }
        }
        other => Operation::Other(other),
    })
}

fn read_directory<'a>(reader: &mut Reader<'a>, plus: bool) -> Result<Operation<'a>, Malformed> {
    let (offset, length_max) = span_of_read(reader)?;
    Ok(Operation::ReadDirectory {
        offset,
        length_max,
        plus,
    })
}

fn control<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    // file handle, flags
    reader.skip(12)?;
    Ok(match reader.u32()? {
        flags::GET_FLAGS => Operation::GetFlags,
        _ => Operation::Other(opcode::IOCTL),
    })
}

fn seek<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    // file handle
    reader.skip(8)?;
    let (offset, whence) = (reader.u64()?, reader.u32()?);
    Ok(Operation::Seek { offset, whence })
}

fn copy_range<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    // file handle
    reader.skip(8)?;
    let (offset, to) = (reader.u64()?, reader.u64()?);
    // file handle
    reader.skip(8)?;
    Ok(Operation::CopyRange {
        offset,
        to,
        to_offset: reader.u64()?,
        length: reader.u64()?,
    })
}

fn get_xattr<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let length_max = length_of_xattr(reader)?;
    let name = reader.string()?;
    Ok(Operation::GetXattr { name, length_max })
}

fn batch_forget(reader: &mut Reader<'_>) -> Result<Vec<ForgetOne>, Malformed> {
    let count = reader.u32()? as usize;
    reader.skip(4)?;
    if count.checked_mul(16).ok_or(Malformed)? > reader.remaining() {
        return Err(Malformed);
    }
    (0..count)
        .map(|_| {
            Ok(ForgetOne {
                node: reader.u64()?,
                count: reader.u64()?,
            })
        })
        .collect()
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
    Ok(Operation::MakeNode {
        name: reader.name()?,
        mode,
        device,
        umask,
    })
}

fn create<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (flags, mode, umask) = (reader.u32()?, reader.u32()?, reader.u32()?);
    // flags of FUSE's own
    reader.skip(4)?;
    Ok(Operation::Create {
        name: reader.name()?,
        mode,
        umask,
        flags,
    })
}

fn temporary_file<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    // open flags
    reader.skip(4)?;
    Ok(Operation::TemporaryFile {
        mode: reader.u32()?,
        umask: reader.u32()?,
    })
}

fn rename<'a>(reader: &mut Reader<'a>, with_flags: bool) -> Result<Operation<'a>, Malformed> {
    let new_parent = reader.u64()?;
    let mut flags = 0;
    if with_flags {
        flags = reader.u32()?;
        reader.skip(4)?;
    }
    Ok(Operation::Rename {
        name: reader.name()?,
        new_parent,
        new_name: reader.name()?,
        flags,
    })
}

/// fuse_read_in: offset and length.
fn span_of_read(reader: &mut Reader<'_>) -> Result<(u64, u32), Malformed> {
    reader.skip(8)?;
    Ok((reader.u64()?, reader.u32()?))
}

fn write<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    reader.skip(8)?;
    let (offset, length, flags) = (reader.u64()?, reader.u32()?, reader.u32()?);
    // lock owner
    reader.skip(8)?;
    let open_flags = reader.u32()?;
    // padding
    reader.skip(4)?;
    Ok(Operation::Write {
        offset,
        data: reader.take(length as usize)?,
        flags,
        open_flags,
    })
}

fn set_xattr<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    let (length, flags, extended_flags) = (reader.u32()?, reader.u32()?, reader.u32()?);
    reader.skip(4)?;
    let name = reader.string()?;
    let value = reader.take(length as usize)?;
    Ok(Operation::SetXattr {
        name,
        value,
        flags,
        extended_flags,
    })
}

fn length_of_xattr(reader: &mut Reader<'_>) -> Result<u32, Malformed> {
    let length = reader.u32()?;
    reader.skip(4)?;
    Ok(length)
}

fn allocate<'a>(reader: &mut Reader<'a>) -> Result<Operation<'a>, Malformed> {
    reader.skip(8)?;
    Ok(Operation::Allocate {
        offset: reader.u64()?,
        length: reader.u64()?,
        mode: reader.u32()?,
    })
}
