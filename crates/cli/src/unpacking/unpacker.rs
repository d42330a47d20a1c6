//! Creates what an archive describes, beneath a directory.

use super::{Entry, Item, Owner, invalid};
use crate::files;
use crate::output::quoted;
use atomdir::CONTROL_NAME;
use atomdir::client::{Account, Group};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// A run of zeros of this length becomes a hole.
const CHUNK: usize = 64 << 10;

/// How entries become files.
pub struct Unpacker {
    is_root: bool,
    umask: u32,
    users: HashMap<String, Option<u32>>,
    groups: HashMap<String, Option<u32>>,
    /// Directories get their attributes last, since entries in them still come.
    directories: Vec<(Vec<u8>, Attributes)>,
}

#[derive(Clone)]
struct Attributes {
    mode: u32,
    /// Only root can give files away.
    owner: Option<(u32, u32)>,
    modified: Option<Timespec>,
}

impl Unpacker {
    pub fn new() -> Unpacker {
        let umask = rustix::process::umask(Mode::empty());
        rustix::process::umask(umask);
        Unpacker {
            is_root: rustix::process::geteuid().is_root(),
            umask: umask.bits(),
            users: HashMap::new(),
            groups: HashMap::new(),
            directories: Vec::new(),
        }
    }

    /// Creates what the entry describes, in place of what has its name.
    pub fn create(&mut self, root: BorrowedFd<'_>, entry: &mut Entry<'_>) -> io::Result<()> {
        let path = checked(&entry.path)?;
        let attributes = self.attributes(entry);
        let Some((name, above)) = path.split_last() else {
            return match entry.item {
                Item::Directory => {
                    self.directories.push((Vec::new(), attributes));
                    Ok(())
                }
                _ => Err(invalid("an entry without a name")),
            };
        };
        let directory = self.directory(root, above)?;
        let name = OsStr::from_bytes(name);
        match &entry.item {
            Item::Directory => {
                make_directory(&directory, name, attributes.mode)?;
                self.directories.push((path.join(&b'/'), attributes));
                return Ok(());
            }
            Item::Link(target) => {
                let target = checked(target)?;
                let (old, above) = target.split_last().ok_or_else(|| invalid("an odd link"))?;
                let from = self.directory(root, above)?;
                let old = OsStr::from_bytes(old);
                let link = || rustix::fs::linkat(&from, old, &directory, name, AtFlags::empty());
                // To itself, for example.
                if is_same(&from, old, &directory, name)? {
                    return Ok(());
                }
                make_room(&directory, name)?;
                return Ok(link()?);
            }
            Item::Symlink(target) => {
                make_room(&directory, name)?;
                rustix::fs::symlinkat(OsStr::from_bytes(target), &directory, name)?;
            }
            Item::Fifo => {
                make_room(&directory, name)?;
                rustix::fs::mknodat(&directory, name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            }
            Item::Refused(why) => return Err(invalid(why.as_str())),
            Item::File => {
                make_room(&directory, name)?;
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                // Nobody else may open it until it has its owner.
                let mode = Mode::RUSR | Mode::WUSR;
                let file = rustix::fs::openat(&directory, name, flags, mode)?;
                if write(&file, entry.contents)? != entry.length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let is_link = matches!(entry.item, Item::Symlink(_));
        Ok(attributes.set(&directory, name, is_link)?)
    }

    /// Gives the directories their attributes, the deepest first. Returns the first error, after all
    /// were tried.
    pub fn finish(&mut self, root: BorrowedFd<'_>) -> io::Result<()> {
        let mut directories = std::mem::take(&mut self.directories);
        // If several entries are for one directory, the last is set after the others, so it holds.
        directories.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        let mut finished = Ok(());
        for (path, attributes) in directories {
            if let Err(errno) = set_directory(root, &path, &attributes) {
                let why = atomdir::client::reason(errno);
                let message = format!("the attributes of '{}': {why}", quoted(&path));
                finished = finished.and(Err(io::Error::other(message)));
            }
        }
        finished
    }

    /// Opens a directory beneath the root, and makes it if need be.
    fn directory(&self, root: BorrowedFd<'_>, path: &[&[u8]]) -> io::Result<OwnedFd> {
        let missing = match open_beneath(root, path) {
            Err(Errno::NOENT) => path,
            opened => return Ok(opened?),
        };
        let mut directory = open_beneath(root, &[])?;
        for length in 1..=missing.len() {
            let name = OsStr::from_bytes(missing[length - 1]);
            directory = match open_beneath(root, &missing[..length]) {
                Err(Errno::NOENT) => {
                    rustix::fs::mkdirat(&directory, name, Mode::RWXU | Mode::RWXG | Mode::RWXO)?;
                    open_beneath(root, &missing[..length])?
                }
                opened => opened?,
            };
        }
        Ok(directory)
    }

    fn attributes(&mut self, entry: &Entry<'_>) -> Attributes {
        let owner = entry.owner.as_ref().filter(|_| self.is_root);
        let mode = match (&entry.owner, self.is_root) {
            // As `tar` does for root.
            (Some(_), true) => entry.mode,
            (Some(_), false) => entry.mode & 0o777 & !self.umask,
            // A zip archive's mode may be one that nobody chose, so the umask applies to all.
            (None, _) => entry.mode & 0o777 & !self.umask,
        };
        let owner = owner.cloned();
        Attributes {
            mode,
            owner: owner.map(|owner| self.ids(&owner)),
            modified: entry.modified,
        }
    }

    fn ids(&mut self, owner: &Owner) -> (u32, u32) {
        let user = owner.user_name.as_ref().and_then(|name| {
            let known = self.users.entry(name.clone());
            *known.or_insert_with(|| Account::named(name).map(|account| account.user))
        });
        let group = owner.group_name.as_ref().and_then(|name| {
            let known = self.groups.entry(name.clone());
            *known.or_insert_with(|| Group::named(name).map(|group| group.group))
        });
        (user.unwrap_or(owner.user), group.unwrap_or(owner.group))
    }
}

impl Attributes {
    fn set(&self, directory: impl AsFd, name: &OsStr, is_link: bool) -> Result<(), Errno> {
        let directory = directory.as_fd();
        if let Some((user, group)) = self.owner {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(directory, name, Some(user), Some(group), flags)?;
        }
        // After the owner, which takes set-id bits away.
        if !is_link {
            let mode = Mode::from_bits_retain(self.mode);
            rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
        }
        if let Some(modified) = self.modified {
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
                last_modification: modified,
            };
            rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }
}

fn set_directory(root: BorrowedFd<'_>, path: &[u8], attributes: &Attributes) -> Result<(), Errno> {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let Some((name, above)) = parts.split_last().filter(|(name, _)| !name.is_empty()) else {
        return match attributes.set(root, OsStr::new("."), false) {
            // The directory was there, and may belong to somebody else.
            Err(Errno::PERM) => Ok(()),
            set => set,
        };
    };
    let Ok(directory) = open_beneath(root, above) else {
        // A later entry has taken its place.
        return Ok(());
    };
    let name = OsStr::from_bytes(name);
    match kind_of(&directory, name)? {
        Some(FileType::Directory) => attributes.set(&directory, name, false),
        _ => Ok(()),
    }
}

/// The names on the way to an entry, from the root on: a slash at the front counts for nothing.
fn checked(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    let parts = path.split(|byte| *byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    if parts.iter().any(|part| *part == b".." || part.contains(&0)) {
        return Err(invalid("a path with '..' is refused"));
    }
    // Whoever packed it must not make a store of what is unpacked.
    if parts.contains(&CONTROL_NAME.as_bytes()) {
        return Err(invalid(
            "a path with '.atomdir', which is a store's, is refused",
        ));
    }
    Ok(parts)
}

/// Follows symbolic links, as long as they stay beneath the root.
fn open_beneath(root: BorrowedFd<'_>, path: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut path = path.join(&b'/');
    if path.is_empty() {
        path.push(b'.');
    }
    rustix::fs::openat2(
        root,
        OsStr::from_bytes(&path),
        flags,
        Mode::empty(),
        resolve,
    )
}

fn kind_of(directory: &OwnedFd, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn is_same(one: &OwnedFd, name: &OsStr, two: &OwnedFd, other: &OsStr) -> Result<bool, Errno> {
    let stat = |directory, name| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW);
    let one = stat(one, name)?;
    match stat(two, other) {
        Ok(two) => Ok((one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// A directory that exists stays; whatever else has the name goes.
///
/// Until the directory gets its own mode, at the end, only its maker can change it.
fn make_directory(directory: &OwnedFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
    match kind_of(directory, name)? {
        Some(FileType::Directory) => return Ok(()),
        Some(_) => rustix::fs::unlinkat(directory, name, AtFlags::empty())?,
        None => {}
    }
    let others = Mode::from_bits_retain(mode & 0o055);
    rustix::fs::mkdirat(directory, name, Mode::RWXU | others)
}

/// Removes what has the name: anything but a directory that is not empty.
fn make_room(directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    let flags = match kind_of(directory, name)? {
        None => return Ok(()),
        Some(FileType::Directory) => AtFlags::REMOVEDIR,
        Some(_) => AtFlags::empty(),
    };
    rustix::fs::unlinkat(directory, name, flags)
}

/// Leaves holes where there are only zeros, so a sparse file stays one. Returns the length.
fn write(file: &OwnedFd, contents: &mut dyn Read) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut length: u64 = 0;
    let mut ends_with_hole = false;
    loop {
        let mut filled = 0;
        while filled < CHUNK {
            match contents.read(&mut chunk[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        let data = &chunk[..filled];
        if filled > 0 {
            ends_with_hole = filled == CHUNK && data.iter().all(|byte| *byte == 0);
            if !ends_with_hole {
                files::write_all_at(file, data, length)?;
            }
            length += filled as u64;
        }
        if filled < CHUNK {
            break;
        }
    }
    if ends_with_hole {
        rustix::fs::ftruncate(file, length)?;
    }
    Ok(length)
}
