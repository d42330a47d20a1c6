//! Random changes that give the same result in any directory: contents come from a seed, and each
//! change of a file sets its modification time.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use atomdir_testing::Random;
use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps, XattrFlags};

/// A commit changes files of more than 1 MiB in place if most of their contents stays.
const LONG_FILE_LENGTH: u64 = 3 << 20;
const LONG_FILE: &str = "long";

/// One change; paths are relative to the directory it is made in.
#[derive(Debug, Clone)]
pub enum Change {
    WriteFile {
        path: PathBuf,
        length: usize,
        seed: u64,
    },
    Overwrite {
        path: PathBuf,
        offset: u64,
        length: usize,
        seed: u64,
    },
    SetLength {
        path: PathBuf,
        length: u64,
    },
    MakeDirectory(PathBuf),
    MakeTree {
        path: PathBuf,
        files: u64,
    },
    RemoveFile(PathBuf),
    RemoveTree(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Exchange {
        one: PathBuf,
        other: PathBuf,
    },
    Link {
        from: PathBuf,
        to: PathBuf,
    },
    Symlink {
        path: PathBuf,
        target: String,
    },
    SetMode {
        path: PathBuf,
        mode: u32,
    },
    SetXattr {
        path: PathBuf,
        value: String,
    },
    SetTime {
        path: PathBuf,
        number: u64,
    },
}

/// Fills a new directory.
pub fn populate(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    for number in 0..6 {
        let path = directory.join(format!("old{number}"));
        write(&path, 3000 * number, number as u64)?;
    }
    fs::create_dir(directory.join("sub"))?;
    write(&directory.join("sub/deep"), 4, 1)?;
    write(&directory.join(LONG_FILE), LONG_FILE_LENGTH as usize, 2)
}

/// Makes up to `count` random changes in `directory` and returns them.
pub fn change_at_random(
    directory: &Path,
    count: usize,
    random: &mut Random,
) -> io::Result<Vec<Change>> {
    let mut made = Vec::new();
    for _ in 0..count {
        if let Some(change) = choose(directory, random)? {
            make(directory, &change)?;
            made.push(change);
        }
    }
    Ok(made)
}

/// Makes a change in a directory that has the same contents as the one for which it was chosen.
pub fn make(directory: &Path, change: &Change) -> io::Result<()> {
    let at = |path: &Path| directory.join(path);
    match change {
        Change::WriteFile { path, length, seed } => write(&at(path), *length, *seed),
        Change::Overwrite {
            path,
            offset,
            length,
            seed,
        } => {
            let file = File::options().write(true).open(at(path))?;
            file.write_all_at(&bytes(*length, *seed), *offset)?;
            set_time(&at(path), *seed)
        }
        Change::SetLength { path, length } => {
            File::options()
                .write(true)
                .open(at(path))?
                .set_len(*length)?;
            set_time(&at(path), *length)
        }
        Change::MakeDirectory(path) => fs::create_dir(at(path)),
        Change::MakeTree { path, files } => {
            fs::create_dir_all(at(path).join("inner"))?;
            for number in 0..*files {
                write(&at(path).join(format!("inner/{number}")), 500, number)?;
            }
            make_symlink(&at(path).join("first"), "inner/0")
        }
        Change::RemoveFile(path) => fs::remove_file(at(path)),
        Change::RemoveTree(path) => fs::remove_dir_all(at(path)),
        Change::Rename { from, to } => fs::rename(at(from), at(to)),
        Change::Exchange { one, other } => {
            let (one, other) = (at(one), at(other));
            let outcome = rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE);
            Ok(outcome?)
        }
        Change::Link { from, to } => fs::hard_link(at(from), at(to)),
        Change::Symlink { path, target } => make_symlink(&at(path), target),
        Change::SetMode { path, mode } => {
            fs::set_permissions(at(path), Permissions::from_mode(*mode))
        }
        Change::SetXattr { path, value } => {
            let value = value.as_bytes();
            Ok(rustix::fs::setxattr(
                at(path),
                "user.crash",
                value,
                XattrFlags::empty(),
            )?)
        }
        Change::SetTime { path, number } => set_time(&at(path), *number),
    }
}

/// Returns `None` if the directory has nothing for the chosen kind of change.
fn choose(directory: &Path, random: &mut Random) -> io::Result<Option<Change>> {
    let found = Found::beneath(directory)?;
    let fresh = found.fresh_name(random);
    let file = found.any_file(random);
    let inner = found.any_directory(random);
    let seed = random.number();
    let lengths = [0, 1, 700, 4096, 5000, 20_000, 300_000];
    let length = *random.choose(&lengths);
    Ok(Some(match (random.below(16), file, inner) {
        (0..3, _, _) => Change::WriteFile {
            path: fresh,
            length,
            seed,
        },
        (3, Some(path), _) => Change::WriteFile { path, length, seed },
        (4..6, _, _) => Change::Overwrite {
            path: LONG_FILE.into(),
            offset: seed % LONG_FILE_LENGTH,
            length: 1 + length,
            seed,
        },
        (6, Some(path), _) if path != Path::new(LONG_FILE) => Change::SetLength {
            path,
            length: seed % 40_000,
        },
        (7, _, _) if seed.is_multiple_of(2) => Change::MakeDirectory(fresh),
        (7, _, _) => Change::MakeTree {
            path: fresh,
            files: 1 + seed % 30,
        },
        (8, Some(path), _) if path != Path::new(LONG_FILE) => Change::RemoveFile(path),
        (8, _, Some(path)) => Change::RemoveTree(path),
        (9, Some(from), _) if from != Path::new(LONG_FILE) => Change::Rename { from, to: fresh },
        (9 | 10, _, Some(from)) if !fresh.starts_with(&from) => Change::Rename { from, to: fresh },
        (11, Some(one), Some(other)) if one != Path::new(LONG_FILE) && !one.starts_with(&other) => {
            Change::Exchange { one, other }
        }
        (12, Some(from), _) if from != Path::new(LONG_FILE) => Change::Link { from, to: fresh },
        (13, _, _) => Change::Symlink {
            path: fresh,
            target: format!("to {seed}"),
        },
        (14, Some(path), _) => Change::SetMode {
            path,
            mode: 0o600 | (seed % 0o100) as u32,
        },
        (14, _, Some(path)) => Change::SetMode {
            path,
            mode: 0o700 | (seed % 0o100) as u32,
        },
        (15, Some(path), _) if seed.is_multiple_of(2) => Change::SetXattr {
            path,
            value: seed.to_string(),
        },
        (15, Some(path), _) => Change::SetTime { path, number: seed },
        _ => return Ok(None),
    }))
}

/// What is below a directory, by paths relative to it, in a fixed order.
struct Found {
    files: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Found {
    fn beneath(directory: &Path) -> io::Result<Self> {
        let mut found = Self {
            files: Vec::new(),
            directories: Vec::new(),
        };
        found.collect(directory, Path::new(""))?;
        found.files.sort();
        found.directories.sort();
        Ok(found)
    }

    fn collect(&mut self, directory: &Path, prefix: &Path) -> io::Result<()> {
        for entry in fs::read_dir(directory.join(prefix))? {
            let entry = entry?;
            let path = prefix.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.collect(directory, &path)?;
                self.directories.push(path);
            } else if kind.is_file() {
                self.files.push(path);
            }
        }
        Ok(())
    }

    fn any_file(&self, random: &mut Random) -> Option<PathBuf> {
        (!self.files.is_empty()).then(|| random.choose(&self.files).clone())
    }

    fn any_directory(&self, random: &mut Random) -> Option<PathBuf> {
        (!self.directories.is_empty()).then(|| random.choose(&self.directories).clone())
    }

    /// A free name in the directory or in one below it, not too deep.
    fn fresh_name(&self, random: &mut Random) -> PathBuf {
        const DEPTH_MAX: usize = 4;
        let parent = self.any_directory(random).filter(|_| random.chance(2));
        let parent = parent.filter(|parent| parent.components().count() < DEPTH_MAX);
        parent
            .unwrap_or_default()
            .join(format!("new{:x}", random.number() % (1 << 32)))
    }
}

fn write(path: &Path, length: usize, seed: u64) -> io::Result<()> {
    fs::write(path, bytes(length, seed))?;
    set_time(path, seed)
}

fn make_symlink(path: &Path, target: &str) -> io::Result<()> {
    symlink(target, path)?;
    set_time(path, target.len() as u64)
}

/// Sets a modification time that depends on the number. It is in the past: after recovery, an undo
/// takes a time in the future for an outside writer's.
fn set_time(path: &Path, number: u64) -> io::Result<()> {
    let time = Timespec {
        tv_sec: (number % 1_700_000_000) as i64,
        tv_nsec: (number % 1_000_000_000) as _,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(rustix::fs::utimensat(
        CWD,
        path,
        &times,
        AtFlags::SYMLINK_NOFOLLOW,
    )?)
}

fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::from_seed(seed);
    let mut bytes: Vec<u8> = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend(random.number().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
