//! The files below a directory that is open, used through the kernel. For the view of a
//! transaction, and in tests for a plain directory.
//!
//! The kernel resolves every path beneath the directory (openat2(2) with RESOLVE_BENEATH), and it
//! checks permissions. Objects are then used by descriptors, which stay on the object that was
//! found, whatever happens to the path.

use super::file::KernelFile;
use super::reads::Reads;
use crate::api::session::{AttributeChange, Files, Links, OpenFile, Result};
use crate::api::{DirEntry, Metadata, OpenOptions};
use crate::process::Opener;
use atomdir_disk::{Errno, RenameMode};
use atomdir_engine::SetTime;
use atomdir_types::sync;
use atomdir_types::{Kind, Timestamp};
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid, XattrFlags,
};
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, RwLock};

/// The longest value and the longest list of names of extended attributes.
const XATTR_LENGTH_MAX: usize = 64 << 10;

pub(crate) struct Directory {
    root: RwLock<Arc<OwnedFd>>,
    opener: Opener,
    /// Set if the transaction declares its reads.
    reads: Option<Arc<Reads>>,
}

impl Directory {
    pub(crate) fn new(root: OwnedFd) -> Directory {
        Directory {
            root: RwLock::new(Arc::new(root)),
            opener: Opener::this_process(),
            reads: None,
        }
    }

    pub(super) fn noting(root: OwnedFd, reads: Option<Arc<Reads>>) -> Directory {
        Directory {
            reads,
            ..Directory::new(root)
        }
    }

    /// Notes that the attributes of an object are about to be read.
    fn note_attributes(&self, object: OwnedFd) -> Result<Arc<OwnedFd>> {
        let object = Arc::new(object);
        if let Some(reads) = &self.reads {
            let inode = rustix::fs::fstat(&object)?.st_ino;
            reads.noted(inode).attributes(&object)?;
        }
        Ok(object)
    }

    /// From now on paths are found below another directory.
    pub(super) fn replace(&self, root: OwnedFd) {
        *sync::write(&self.root) = Arc::new(root);
    }

    fn root(&self) -> Arc<OwnedFd> {
        sync::read(&self.root).clone()
    }

    /// The directory itself, for the caller to use with openat(2).
    pub(crate) fn open_root(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.open_at(Path::new(""), flags, Mode::empty())
    }

    fn open_at(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
        self.opener.require_for_files()?;
        // Without an absolute part, as for the engine.
        if path.is_absolute() {
            return Err(Errno::XDEV);
        }
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let root = self.root();
        loop {
            let flags = flags | OFlags::CLOEXEC;
            match rustix::fs::openat2(&*root, path, flags, mode, resolve) {
                // A directory on the way was renamed while the kernel looked.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => return opened,
            }
        }
    }

    fn find(&self, path: &Path, links: Links) -> Result<OwnedFd> {
        let flags = match links {
            Links::Follow => OFlags::PATH,
            Links::Keep => OFlags::PATH | OFlags::NOFOLLOW,
        };
        let path: PathBuf = path.components().collect();
        self.open_at(&path, flags, Mode::empty())
    }

    /// The directory that has the path's last name, and that name. A path without one fails
    /// with `errno`.
    fn place<'a>(&self, path: &'a Path, errno: Errno) -> Result<(OwnedFd, &'a OsStr)> {
        let mut above = path.components();
        let name = match above.next_back() {
            Some(Component::Normal(name)) => name,
            Some(Component::RootDir) => return Err(Errno::XDEV),
            _ => {
                self.find(path, Links::Keep)?;
                return Err(errno);
            }
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let directory = self.open_at(above.as_path(), flags, Mode::empty())?;
        Ok((directory, name))
    }

    pub(super) fn open_file(&self, path: &Path, options: &OpenOptions) -> Result<KernelFile> {
        options.check()?;
        // Fails for a path without a last name.
        self.place(path, Errno::ISDIR)?;
        // Opening a pipe must not wait for its other end.
        let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        flags |= match (options.read, options.writes()) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        flags.set(OFlags::CREATE, options.create || options.create_new);
        flags.set(OFlags::EXCL, options.create_new);
        flags.set(OFlags::TRUNC, options.truncate);
        flags.set(OFlags::APPEND, options.append);
        flags.set(OFlags::NOFOLLOW, !options.follow);
        let mode = match flags.contains(OFlags::CREATE) {
            true => Mode::from_raw_mode(options.mode & 0o7777),
            false => Mode::empty(),
        };
        let path: PathBuf = path.components().collect();
        let file = self.open_at(&path, flags, mode)?;
        let stat = rustix::fs::fstat(&file)?;
        let noted = self.reads.as_ref().map(|reads| reads.noted(stat.st_ino));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(KernelFile::new(file, noted)),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::OPNOTSUPP),
        }
    }
}

impl Files for Directory {
    fn open(&self, path: &Path, options: &OpenOptions) -> Result<Box<dyn OpenFile + '_>> {
        Ok(Box::new(self.open_file(path, options)?))
    }

    fn metadata(&self, path: &Path, links: Links) -> Result<Metadata> {
        let object = self.note_attributes(self.find(path, links)?)?;
        Ok(metadata(&rustix::fs::fstat(object)?))
    }

    fn set_attributes(&self, path: &Path, links: Links, change: &AttributeChange) -> Result<()> {
        set_attributes(&self.find(path, links)?, change)
    }

    fn create_directory(&self, path: &Path, mode: u32) -> Result<()> {
        let (directory, name) = self.place(path, Errno::EXIST)?;
        rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(mode & 0o1777))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<()> {
        let (directory, name) = self.place(path, Errno::EXIST)?;
        rustix::fs::symlinkat(target, directory, name)
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        let object = self.find(path, Links::Keep)?;
        let target = rustix::fs::readlinkat(&object, "", Vec::new());
        let target = target.map_err(|errno| match errno {
            // The object is no link.
            Errno::NOENT => Errno::INVAL,
            errno => errno,
        })?;
        Ok(OsString::from_vec(target.into_bytes()).into())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let object = self.find(from, Links::Keep)?;
        let (to, new_name) = self.place(to, Errno::EXIST)?;
        let (from, name) = match self.place(from, Errno::PERM) {
            // The path has no last name, so the object is a directory.
            Err(Errno::PERM) => (object, OsStr::new(".")),
            place => place?,
        };
        rustix::fs::linkat(from, name, to, new_name, AtFlags::empty())
    }

    fn rename(&self, from: &Path, to: &Path, mode: RenameMode) -> Result<()> {
        let (from, name) = self.place(from, Errno::BUSY)?;
        let (to, new_name) = self.place(to, Errno::BUSY)?;
        rustix::fs::renameat_with(from, name, to, new_name, mode.into())
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.place(path, Errno::ISDIR)?;
        rustix::fs::unlinkat(directory, name, AtFlags::empty())
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let (directory, name) = self.place(path, Errno::INVAL)?;
        rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let path: PathBuf = path.components().collect();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = self.open_at(&path, flags, Mode::empty())?;
        let listed = rustix::io::fcntl_dupfd_cloexec(&directory, 3)?;
        let mut entries = Vec::new();
        for entry in Dir::new(listed)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match Kind::of_mode(entry.file_type().as_raw_mode()) {
                Some(kind) => kind,
                None => {
                    let flags = AtFlags::SYMLINK_NOFOLLOW;
                    let stat = rustix::fs::statat(&directory, entry.file_name(), flags)?;
                    kind_of(stat.st_mode)
                }
            };
            entries.push(DirEntry {
                file_name: OsString::from_vec(name.to_vec()),
                kind,
                inode: entry.ino(),
            });
        }
        Ok(entries)
    }

    fn xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<Vec<u8>> {
        let object = self.note_attributes(self.find(path, links)?)?;
        let mut value = vec![0; XATTR_LENGTH_MAX];
        let name = OsStr::from_bytes(name);
        let length = rustix::fs::getxattr(by_descriptor(&object), name, &mut value[..])?;
        value.truncate(length);
        Ok(value)
    }

    fn xattr_names(&self, path: &Path, links: Links) -> Result<Vec<Vec<u8>>> {
        let object = self.note_attributes(self.find(path, links)?)?;
        let mut list = vec![0; XATTR_LENGTH_MAX];
        let length = rustix::fs::listxattr(by_descriptor(&object), &mut list[..])?;
        let names = list[..length].split(|byte| *byte == 0);
        let names = names.filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    fn set_xattr(&self, path: &Path, links: Links, name: &[u8], value: &[u8]) -> Result<()> {
        let object = self.find(path, links)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        rustix::fs::setxattr(by_descriptor(&object), name, value, XattrFlags::empty())
    }

    fn remove_xattr(&self, path: &Path, links: Links, name: &[u8]) -> Result<()> {
        let object = self.find(path, links)?;
        let name = CString::new(name).map_err(|_| Errno::INVAL)?;
        rustix::fs::removexattr(by_descriptor(&object), name)
    }
}

/// A path to the object itself, for calls that do not take an `O_PATH` descriptor.
fn by_descriptor(object: impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", object.as_fd().as_raw_fd()).into()
}

pub(super) fn set_attributes(object: &OwnedFd, change: &AttributeChange) -> Result<()> {
    if let Some(mode) = change.mode {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::chmod(by_descriptor(object), mode)?;
    }
    if change.user.is_some() || change.group.is_some() {
        let (user, group) = (
            change.user.map(Uid::from_raw),
            change.group.map(Gid::from_raw),
        );
        rustix::fs::chownat(object, "", user, group, AtFlags::EMPTY_PATH)?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        let times = Timestamps {
            last_access: time(change.accessed),
            last_modification: time(change.modified),
        };
        rustix::fs::utimensat(object, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn time(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        Some(SetTime::At(time)) => Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        },
    }
}

pub(super) fn metadata(stat: &Stat) -> Metadata {
    let time = |seconds, nanoseconds| Timestamp::of_fields(seconds, nanoseconds).into();
    Metadata {
        kind: kind_of(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        len: stat.st_size.unsigned_abs(),
        links: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
        user: stat.st_uid,
        group: stat.st_gid,
        inode: stat.st_ino,
        device_number: stat.st_rdev,
        blocks: stat.st_blocks.unsigned_abs(),
        accessed: time(stat.st_atime, stat.st_atime_nsec),
        modified: time(stat.st_mtime, stat.st_mtime_nsec),
        changed: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

fn kind_of(mode: u32) -> Kind {
    Kind::of_mode(mode).unwrap_or(Kind::File)
}
