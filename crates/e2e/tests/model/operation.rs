//! Operations of one or a few file-system calls each. They use few names, so they often work on
//! the same objects. Their errors are compared, too.

use std::path::{Path, PathBuf};

use atomdir_testing::Random;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;

#[derive(Debug, Clone)]
pub enum Operation {
    Create(PathBuf),
    MakeDirectory(PathBuf, u32),
    MakeFifo(PathBuf),
    Symlink(PathBuf, PathBuf),
    Link(PathBuf, PathBuf),
    Rename(PathBuf, PathBuf, Manner),
    Unlink(PathBuf),
    RemoveDirectory(PathBuf),
    Write {
        path: PathBuf,
        offset: u64,
        length: usize,
        byte: u8,
    },
    Append {
        path: PathBuf,
        length: usize,
        byte: u8,
    },
    Truncate(PathBuf, u64),
    Punch {
        path: PathBuf,
        offset: u64,
        length: u64,
    },
    SetMode(PathBuf, u32),
    SetOwner(PathBuf, u32),
    SetTime(PathBuf, i64),
    SetXattr(PathBuf, u8),
    RemoveXattr(PathBuf),
    /// Writes another file and renames it over this one, as editors do.
    Replace {
        path: PathBuf,
        length: usize,
        byte: u8,
    },
}

#[derive(Debug, Clone, Copy)]
pub enum Manner {
    Replacing,
    NotReplacing,
    Exchanging,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const DEPTH_MAX: usize = 4;
const LENGTH_MAX: usize = 20_000;

impl Operation {
    /// Two of five operations are renames, since those are hard.
    pub fn random(random: &mut Random, directory: &str) -> Self {
        let mut path = || -> PathBuf {
            let mut path = PathBuf::from(directory);
            for _ in 0..=random.below(DEPTH_MAX) {
                path.push(random.choose(&NAMES));
            }
            path
        };
        let (path, other) = (path(), path());
        let length = random.below(LENGTH_MAX);
        let offset = random.below(LENGTH_MAX) as u64;
        let byte = b'A' + random.below(26) as u8;
        match random.below(36) {
            0..=9 => Self::Rename(path, other, Manner::Replacing),
            10..=12 => Self::Rename(path, other, Manner::Exchanging),
            13 => Self::Rename(path, other, Manner::NotReplacing),
            14 => Self::Replace { path, length, byte },
            15..=17 => Self::Create(path),
            18..=21 => Self::MakeDirectory(path, *random.choose(&[0o755, 0o700, 0o1777])),
            22 => Self::Link(path, other),
            23 => Self::Symlink(other, path),
            24 => Self::Unlink(path),
            25 => Self::RemoveDirectory(path),
            26..=27 => Self::Write {
                path,
                offset,
                length: length / 8,
                byte,
            },
            28 => Self::Append {
                path,
                length: length / 4,
                byte,
            },
            29 => Self::Truncate(path, offset),
            30 => Self::Punch {
                path,
                offset,
                length: length as u64 + 1,
            },
            31 => Self::SetMode(path, *random.choose(&[0o600, 0o644, 0o4755, 0o2711])),
            32 => Self::SetOwner(path, random.below(3) as u32),
            33 => Self::SetTime(path, random.below(1_000_000_000) as i64),
            34 => Self::SetXattr(path, byte),
            _ if random.chance(2) => Self::RemoveXattr(path),
            _ => Self::MakeFifo(path),
        }
    }

    pub fn apply(&self, root: &Path) -> Result<(), Errno> {
        let at = |path: &PathBuf| root.join(path);
        match self {
            Self::Create(path) => create(&at(path)),
            Self::MakeDirectory(path, mode) => {
                rustix::fs::mkdir(at(path), Mode::from_raw_mode(*mode))
            }
            Self::MakeFifo(path) => {
                rustix::fs::mknodat(CWD, at(path), FileType::Fifo, Mode::from_raw_mode(0o640), 0)
            }
            Self::Symlink(target, path) => rustix::fs::symlink(target, at(path)),
            Self::Link(from, to) => rustix::fs::link(at(from), at(to)),
            Self::Rename(from, to, manner) => {
                rustix::fs::renameat_with(CWD, at(from), CWD, at(to), manner.flags())
            }
            Self::Unlink(path) => rustix::fs::unlink(at(path)),
            Self::RemoveDirectory(path) => rustix::fs::rmdir(at(path)),
            Self::Write {
                path,
                offset,
                length,
                byte,
            } => write(&at(path), *offset, *length, *byte),
            Self::Append { path, length, byte } => append(&at(path), *length, *byte),
            Self::Truncate(path, length) => {
                rustix::fs::ftruncate(open(&at(path), OFlags::WRONLY)?, *length)
            }
            Self::Punch {
                path,
                offset,
                length,
            } => {
                let manner = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(open(&at(path), OFlags::WRONLY)?, manner, *offset, *length)
            }
            Self::SetMode(path, mode) => {
                // A symlink has no mode of its own to set.
                let path = not_symlink(at(path))?;
                rustix::fs::chmod(path, Mode::from_raw_mode(*mode))
            }
            Self::SetOwner(path, user) => rustix::fs::chownat(
                CWD,
                at(path),
                Some(rustix::fs::Uid::from_raw(*user)),
                None,
                AtFlags::SYMLINK_NOFOLLOW,
            ),
            Self::SetTime(path, seconds) => set_time(&at(path), *seconds),
            Self::SetXattr(path, byte) => {
                let value = vec![*byte; usize::from(*byte)];
                rustix::fs::setxattr(
                    not_symlink(at(path))?,
                    "user.model",
                    &value,
                    XattrFlags::empty(),
                )
            }
            Self::RemoveXattr(path) => {
                rustix::fs::removexattr(not_symlink(at(path))?, "user.model")
            }
            Self::Replace { path, length, byte } => replace(&at(path), *length, *byte),
        }
    }
}

impl Manner {
    fn flags(self) -> RenameFlags {
        match self {
            Self::Replacing => RenameFlags::empty(),
            Self::NotReplacing => RenameFlags::NOREPLACE,
            Self::Exchanging => RenameFlags::EXCHANGE,
        }
    }
}

/// Opens without following links, and without blocking on a FIFO that has no reader.
fn open(path: &Path, flags: OFlags) -> Result<std::os::fd::OwnedFd, Errno> {
    let always = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags | always, Mode::from_raw_mode(0o644))
}

fn create(path: &Path) -> Result<(), Errno> {
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map(drop)
}

fn write(path: &Path, offset: u64, length: usize, byte: u8) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY)?;
    rustix::io::pwrite(file, &vec![byte; length], offset).map(drop)
}

fn append(path: &Path, length: usize, byte: u8) -> Result<(), Errno> {
    let file = open(path, OFlags::WRONLY | OFlags::APPEND)?;
    rustix::io::write(file, &vec![byte; length]).map(drop)
}

fn replace(path: &Path, length: usize, byte: u8) -> Result<(), Errno> {
    let new = path.with_extension("new");
    let file = open(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
    rustix::io::write(&file, &vec![byte; length])?;
    rustix::fs::fsync(&file)?;
    rustix::fs::rename(&new, path).or_else(|error| rustix::fs::unlink(&new).and(Err(error)))
}

fn set_time(path: &Path, seconds: i64) -> Result<(), Errno> {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: seconds % 1_000_000_000,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn not_symlink(path: PathBuf) -> Result<PathBuf, Errno> {
    let stat = rustix::fs::lstat(&path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(Errno::LOOP),
        _ => Ok(path),
    }
}
