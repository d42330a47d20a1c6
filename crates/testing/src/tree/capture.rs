//! Reads a tree into memory. It goes through directory descriptors, since a tree may be
//! deeper than the longest path that the kernel accepts.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::contents::Contents;
use super::entry::{Entry, Kind, Moment, Tree};

#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// Names directly in the captured directory that are left out.
    pub without: Vec<OsString>,
    /// Whether to read contents. If not, every file is captured as having no data.
    pub contents: bool,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            without: vec![OsString::from(".atomdir")],
            contents: true,
        }
    }
}

/// Captures the tree beneath `root`, and `root` itself as the empty path.
/// Access times are left alone where the caller may do so.
pub fn capture(root: &Path, options: &CaptureOptions) -> io::Result<Tree> {
    raise_descriptor_limit()?;
    let mut walk = Walk {
        options,
        entries: BTreeMap::new(),
        first_names: HashMap::new(),
    };
    let directory = rustix::fs::openat(CWD, root, DIRECTORY, Mode::empty())
        .map_err(|error| failed(root, "open", error))?;
    let stat = rustix::fs::fstat(&directory).map_err(|error| failed(root, "stat", error))?;
    walk.add(
        Path::new(""),
        directory.as_fd(),
        c".",
        &stat,
        Kind::Directory,
    )?;
    walk.descend(Path::new(""), &directory)?;
    Ok(Tree {
        entries: walk.entries,
    })
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

struct Walk<'a> {
    options: &'a CaptureOptions,
    entries: BTreeMap<PathBuf, Entry>,
    first_names: HashMap<(u64, u64), PathBuf>,
}

impl Walk<'_> {
    fn descend(&mut self, path: &Path, directory: &OwnedFd) -> io::Result<()> {
        for name in names(directory).map_err(|error| failed(path, "list", error))? {
            let bytes = OsStr::from_bytes(name.to_bytes());
            if path.as_os_str().is_empty() && self.options.without.iter().any(|out| out == bytes) {
                continue;
            }
            let path = path.join(bytes);
            let stat = rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| failed(&path, "stat", error))?;
            let kind = self.kind(directory.as_fd(), &name, &path, &stat)?;
            let is_directory = kind == Kind::Directory;
            self.add(&path, directory.as_fd(), &name, &stat, kind)?;
            if is_directory {
                let child =
                    rustix::fs::openat(directory, name.as_c_str(), DIRECTORY, Mode::empty())
                        .map_err(|error| failed(&path, "open", error))?;
                self.descend(&path, &child)?;
            }
        }
        Ok(())
    }

    fn kind(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
        stat: &Stat,
    ) -> io::Result<Kind> {
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File(self.contents(parent, name, path, stat)?),
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink(
                rustix::fs::readlinkat(parent, name, Vec::new())
                    .map_err(|error| failed(path, "read the link", error))?
                    .into_bytes(),
            ),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharacterDevice(stat.st_rdev),
            FileType::BlockDevice => Kind::BlockDevice(stat.st_rdev),
            FileType::Unknown => {
                return Err(io::Error::other(format!(
                    "{}: of no known type",
                    path.display()
                )));
            }
        })
    }

    fn contents(
        &self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        path: &Path,
        stat: &Stat,
    ) -> io::Result<Contents> {
        let length = u64::try_from(stat.st_size).map_err(io::Error::other)?;
        if !self.options.contents {
            return Ok(Contents {
                length,
                pages: BTreeMap::new(),
                holes: Vec::new(),
            });
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| rustix::fs::openat(parent, name, flags, Mode::empty()))
            .map_err(|error| failed(path, "open", error))?;
        Contents::read(file.as_fd(), length).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot read {}: {error}", path.display()),
            )
        })
    }

    fn add(
        &mut self,
        path: &Path,
        parent: BorrowedFd<'_>,
        name: &CStr,
        stat: &Stat,
        kind: Kind,
    ) -> io::Result<()> {
        let same_as = if kind == Kind::Directory {
            path.to_owned()
        } else {
            self.first_names
                .entry((stat.st_dev, stat.st_ino))
                .or_insert_with(|| path.to_owned())
                .clone()
        };
        let entry = Entry {
            kind,
            mode: stat.st_mode & 0o7777,
            user: stat.st_uid,
            group: stat.st_gid,
            links: stat.st_nlink,
            same_as,
            inode: stat.st_ino,
            xattrs: xattrs(parent, name)
                .map_err(|error| failed(path, "read the xattrs of", error))?,
            accessed: moment(stat.st_atime, stat.st_atime_nsec),
            modified: moment(stat.st_mtime, stat.st_mtime_nsec),
        };
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }
}

/// Sorted, so that "the first path" of a hard-linked object is the same in two equal
/// trees, in whatever order their directories are listed.
fn names(directory: &OwnedFd) -> Result<Vec<std::ffi::CString>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let entry = entry?;
        if entry.file_name() != c"." && entry.file_name() != c".." {
            names.push(entry.file_name().to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Reads the attributes by a path through `/proc/self/fd`, which is as short as the name:
/// Linux has no `getxattrat` before 6.13.
fn xattrs(parent: BorrowedFd<'_>, name: &CStr) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Errno> {
    let mut path = format!("/proc/self/fd/{}/", parent.as_raw_fd()).into_bytes();
    path.extend_from_slice(name.to_bytes());
    let path = OsStr::from_bytes(&path);
    let listed = match read_growing(|buffer| rustix::fs::llistxattr(path, buffer)) {
        Err(Errno::OPNOTSUPP) => return Ok(BTreeMap::new()),
        listed => listed?,
    };
    let mut found = BTreeMap::new();
    for name in listed
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let value = read_growing(|buffer| rustix::fs::lgetxattr(path, name, buffer))?;
        found.insert(name.to_owned(), value);
    }
    Ok(found)
}

fn read_growing(read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 1024];
    loop {
        match read(&mut buffer[..]) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => buffer.resize(buffer.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Capturing keeps one descriptor open for each level of the tree.
fn raise_descriptor_limit() -> io::Result<()> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

fn moment(seconds: i64, nanoseconds: u64) -> Moment {
    Moment {
        seconds,
        nanoseconds: nanoseconds as u32,
    }
}

fn failed(path: &Path, action: &str, error: Errno) -> io::Error {
    let kind = io::Error::from(error).kind();
    io::Error::new(kind, format!("cannot {action} {}: {error}", path.display()))
}
