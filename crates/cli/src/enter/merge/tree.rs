//! A directory tree, in which paths lead neither out of it nor through links.

use super::{Failed, failed};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, mkdirat, openat, openat2,
    renameat, statat, unlinkat,
};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

pub(super) struct Tree<'a> {
    pub root: BorrowedFd<'a>,
}

impl<'a> Tree<'a> {
    pub fn new(root: BorrowedFd<'a>) -> Tree<'a> {
        Tree { root }
    }

    /// Opens a regular file. If another object has taken its place, this does not wait.
    pub fn open(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Failed> {
        self.resolve(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY)
            .map_err(failed("open", path))
    }

    pub fn directory(&self, path: &[u8]) -> Result<OwnedFd, Failed> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(failed("open", path))
    }

    /// Opens any object, also a symbolic link, for its attributes.
    pub fn object(&self, path: &[u8]) -> Result<OwnedFd, Failed> {
        let opened = self.resolve(path, OFlags::PATH);
        opened.map_err(failed("look at", path))
    }

    pub fn stat(&self, path: &[u8]) -> Result<Stat, Failed> {
        fstat(self.object(path)?).map_err(failed("look at", path))
    }

    /// The names in a directory. Other objects have none, and nor has one that is not there yet.
    pub fn names(&self, path: &[u8]) -> Result<Vec<OsString>, Failed> {
        match self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => names(&directory).map_err(failed("list", path)),
            // The names in a directory without permission are found when it is moved.
            Err(Errno::NOTDIR | Errno::NOENT | Errno::LOOP | Errno::ACCESS) => Ok(Vec::new()),
            Err(errno) => Err(failed("open", path)(errno)),
        }
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = match path {
            b"" => OsStr::new("."),
            path => OsStr::from_bytes(path),
        };
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        retry_on_intr(|| openat2(self.root, path, flags, Mode::empty(), resolve))
    }
}

pub(super) fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

pub(super) fn join(above: &[u8], name: &OsStr) -> Vec<u8> {
    match above {
        b"" => name.as_bytes().to_vec(),
        above => [above, b"/", name.as_bytes()].concat(),
    }
}

pub(super) fn shown(path: &[u8]) -> String {
    match path {
        b"" => ".".to_owned(),
        path => String::from_utf8_lossy(path).into_owned(),
    }
}

type EntryAt<'a> = (BorrowedFd<'a>, &'a OsStr);

/// Moves an object. Some overlays refuse that for old directories; then this function makes a new
/// directory and moves the entries of the old one there.
pub(super) fn rename(from: EntryAt<'_>, to: EntryAt<'_>) -> Result<(), Errno> {
    match renameat(from.0, from.1, to.0, to.1) {
        Err(Errno::XDEV) => {}
        renamed => return renamed,
    }
    let old = open_directory(from.0, from.1)?;
    mkdirat(to.0, to.1, Mode::RWXU)?;
    let new = open_directory(to.0, to.1)?;
    for name in names(&old)? {
        rename((old.as_fd(), &name), (new.as_fd(), &name))?;
    }
    super::copy::dress(old.as_fd(), new.as_fd(), true)?;
    unlinkat(from.0, from.1, AtFlags::REMOVEDIR)
}

/// Removes an object with all that is in it.
pub(super) fn remove(above: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    let stat = statat(above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return unlinkat(above, name, AtFlags::empty());
    }
    let directory = open_directory(above, name)?;
    for name in names(&directory)? {
        remove(directory.as_fd(), &name)?;
    }
    unlinkat(above, name, AtFlags::REMOVEDIR)
}

fn open_directory(above: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

fn names(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}
