//! Reads whole files for showing them, and writes merged ones.

use atomdir::client::compare::Listed;
use rustix::buffer::spare_capacity;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Names and values.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// The kernel's limit for a value and for the list of names.
const XATTR_LENGTH_MAX: usize = 64 << 10;

/// Does not follow a symbolic link at the last name.
pub fn read_at(directory: impl AsFd, path: impl rustix::path::Arg) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, path, flags, Mode::empty())?;
    let mut contents = Vec::new();
    loop {
        contents.reserve(64 << 10);
        let read = || rustix::io::read(&file, spare_capacity(&mut contents));
        if retry_on_intr(read)? == 0 {
            return Ok(contents);
        }
    }
}

pub fn write_all_at(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = retry_on_intr(|| rustix::io::pwrite(&file, bytes, offset))?;
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Extended attributes by name; for a symbolic link, its own.
pub fn xattrs_at(directory: &OwnedFd, name: &OsStr) -> Result<Xattrs, Errno> {
    // The calls that take a descriptor require it to be open for reading.
    let mut path = format!("/proc/self/fd/{}", directory.as_raw_fd()).into_bytes();
    if !name.is_empty() {
        path.push(b'/');
        path.extend(name.as_bytes());
    }
    // With an empty name the path itself is a symbolic link, which must be followed.
    let follows = name.is_empty();
    let list = |buffer: &mut [u8]| match follows {
        true => rustix::fs::listxattr(&*path, buffer),
        false => rustix::fs::llistxattr(&*path, buffer),
    };
    let names = match grown(list) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        names => names?,
    };
    let mut xattrs = Vec::new();
    for name in names
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let get = |buffer: &mut [u8]| match follows {
            true => rustix::fs::getxattr(&*path, name, buffer),
            false => rustix::fs::lgetxattr(&*path, name, buffer),
        };
        match grown(get) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            Err(Errno::NODATA | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// Repeats the call with longer buffers until one is long enough.
fn grown(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) if buffer.len() < XATTR_LENGTH_MAX => {
                buffer.resize(buffer.len() * 4, 0)
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Lists a directory below a root.
pub fn list(root: BorrowedFd<'_>, path: &[u8]) -> Result<Vec<Listed>, Errno> {
    let (parent, name) = open_parent(root, path)?;
    let name = if name.is_empty() {
        OsStr::new(".")
    } else {
        name
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(&parent, name, flags, Mode::empty())?;
    let mut entries = Vec::new();
    for entry in rustix::fs::Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            entries.push(Listed {
                name: name.to_vec(),
                inode: entry.ino(),
                is_directory: entry.file_type() == FileType::Directory,
            });
        }
    }
    Ok(entries)
}

/// Opens the parent directory of `path`, and returns it with the last name.
/// Paths may be longer than the kernel accepts at once. The root's own name is
/// empty.
pub fn open_parent<'a>(
    root: BorrowedFd<'_>,
    path: &'a [u8],
) -> Result<(OwnedFd, &'a OsStr), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::io::fcntl_dupfd_cloexec(root, 0)?;
    let mut names = path
        .split(|byte| *byte == b'/')
        .map(OsStr::from_bytes)
        .peekable();
    let mut name = OsStr::new("");
    while let Some(next) = names.next() {
        name = next;
        if names.peek().is_some() {
            directory = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
        }
    }
    Ok((directory, name))
}
