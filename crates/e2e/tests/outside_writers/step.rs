//! What a transaction or an outside writer does to the object `n` of a cell, and the objects of a
//! cell before.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, RenameFlags, Timespec, Timestamps, XattrFlags, lremovexattr,
    lsetxattr, mknodat, renameat_with, utimensat,
};

/// What `n` is when the transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Absent,
    File,
    /// A file with an extended attribute.
    Marked,
    /// A file whose other name is `l`.
    TwoNames,
    Symlink,
    Fifo,
    Empty,
    /// A directory with the file `x`, the directory `s` and a file in that.
    Full,
}

impl Before {
    pub const ALL: [Before; 8] = [
        Before::Absent,
        Before::File,
        Before::Marked,
        Before::TwoNames,
        Before::Symlink,
        Before::Fifo,
        Before::Empty,
        Before::Full,
    ];

    pub fn make(self, cell: &Path) -> io::Result<()> {
        fs::create_dir(cell)?;
        for who in [Who::Transaction, Who::Outsider] {
            fs::write(cell.join(who.names("o")), who.names("other"))?;
            fs::create_dir(cell.join(who.names("e")))?;
        }
        let n = cell.join("n");
        match self {
            Before::Absent => Ok(()),
            Before::File => fs::write(&n, "old"),
            Before::Marked => {
                fs::write(&n, "old")?;
                Ok(lsetxattr(&n, "user.old", b"old", XattrFlags::empty())?)
            }
            Before::TwoNames => {
                fs::write(&n, "old")?;
                fs::hard_link(&n, cell.join("l"))
            }
            Before::Symlink => symlink("old", &n),
            Before::Fifo => make_fifo(&n),
            Before::Empty => fs::create_dir(&n),
            Before::Full => {
                fs::create_dir_all(n.join("s"))?;
                fs::write(n.join("x"), "old")?;
                fs::write(n.join("s/y"), "old")
            }
        }
    }

    fn is_file(self) -> bool {
        matches!(self, Before::File | Before::Marked | Before::TwoNames)
    }

    fn is_directory(self) -> bool {
        matches!(self, Before::Empty | Before::Full)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    Transaction,
    Outsider,
}

impl Who {
    /// A name that only this one uses.
    fn names(self, name: &str) -> String {
        match self {
            Who::Transaction => format!("{name}-tx"),
            Who::Outsider => format!("{name}-out"),
        }
    }

    fn text(self) -> String {
        self.names("text")
    }

    fn mode(self) -> u32 {
        match self {
            Who::Transaction => 0o710,
            Who::Outsider => 0o701,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Nothing,
    Write,
    Append,
    /// Opens the file for writing and closes it.
    Open,
    /// Writes another file and renames it over this one.
    Replace,
    /// The same with equal contents and times.
    ReplaceByCopy,
    Remove,
    MoveAway,
    MoveAwayAndBack,
    RemoveAndMakeDirectory,
    RemoveAndCreate,
    RemoveAndLink,
    Create,
    MakeDirectory,
    MakeSymlink,
    LinkOtherHere,
    LinkElsewhere,
    RenameOtherHere,
    RenameDirectoryHere,
    Exchange,
    Mode,
    ModeAndBack,
    Owner,
    SetXattr,
    RemoveXattr,
    Touch,
    CreateIn,
    CreateSameIn,
    MakeDirectoryIn,
    MakeSameDirectoryIn,
    CreateAndRemoveIn,
    MoveOtherIn,
    WriteIn,
    ModeIn,
    RemoveIn,
    MoveOut,
    /// Of the directory that contains it.
    ModeAbove,
    SetXattrAbove,
}

impl Step {
    pub const ALL: [Step; 38] = [
        Step::Nothing,
        Step::Write,
        Step::Append,
        Step::Open,
        Step::Replace,
        Step::ReplaceByCopy,
        Step::Remove,
        Step::MoveAway,
        Step::MoveAwayAndBack,
        Step::RemoveAndMakeDirectory,
        Step::RemoveAndCreate,
        Step::RemoveAndLink,
        Step::Create,
        Step::MakeDirectory,
        Step::MakeSymlink,
        Step::LinkOtherHere,
        Step::LinkElsewhere,
        Step::RenameOtherHere,
        Step::RenameDirectoryHere,
        Step::Exchange,
        Step::Mode,
        Step::ModeAndBack,
        Step::Owner,
        Step::SetXattr,
        Step::RemoveXattr,
        Step::Touch,
        Step::CreateIn,
        Step::CreateSameIn,
        Step::MakeDirectoryIn,
        Step::MakeSameDirectoryIn,
        Step::CreateAndRemoveIn,
        Step::MoveOtherIn,
        Step::WriteIn,
        Step::ModeIn,
        Step::RemoveIn,
        Step::MoveOut,
        Step::ModeAbove,
        Step::SetXattrAbove,
    ];

    /// Whether it can be done to the object, by root or by its owner.
    pub fn applies(self, before: Before, is_root: bool) -> bool {
        let exists = before != Before::Absent;
        match self {
            Step::Nothing | Step::ModeAbove | Step::SetXattrAbove => true,
            Step::Write | Step::Append | Step::Open | Step::ReplaceByCopy => before.is_file(),
            Step::SetXattr => before.is_file() || before.is_directory(),
            Step::RemoveXattr => before == Before::Marked,
            Step::Create | Step::MakeDirectory | Step::MakeSymlink | Step::LinkOtherHere => !exists,
            Step::Replace | Step::RenameOtherHere => !before.is_directory(),
            Step::RenameDirectoryHere => before == Before::Empty || !exists,
            Step::LinkElsewhere => exists && !before.is_directory(),
            Step::Remove
            | Step::MoveAway
            | Step::MoveAwayAndBack
            | Step::RemoveAndMakeDirectory
            | Step::RemoveAndCreate
            | Step::RemoveAndLink
            | Step::Exchange
            | Step::Touch => exists,
            Step::Mode | Step::ModeAndBack => exists && before != Before::Symlink,
            Step::Owner => exists && is_root,
            Step::CreateIn
            | Step::CreateSameIn
            | Step::MakeDirectoryIn
            | Step::MakeSameDirectoryIn
            | Step::CreateAndRemoveIn
            | Step::MoveOtherIn => before.is_directory(),
            Step::WriteIn | Step::ModeIn | Step::RemoveIn | Step::MoveOut => before == Before::Full,
        }
    }

    pub fn act(self, cell: &Path, who: Who) -> io::Result<()> {
        let n = cell.join("n");
        let (other, away) = (cell.join(who.names("o")), cell.join(who.names("away")));
        let inside = |name: &str| n.join(name);
        match self {
            Step::Nothing => look(&n),
            Step::Write => write(&n, false, who),
            Step::Append => write(&n, true, who),
            Step::Open => OpenOptions::new().append(true).open(&n).map(drop),
            Step::Replace => {
                fs::write(&away, who.text())?;
                fs::rename(&away, &n)
            }
            Step::ReplaceByCopy => replace_by_copy(&n, &away),
            Step::Remove => remove(&n),
            Step::MoveAway => fs::rename(&n, &away),
            Step::MoveAwayAndBack => {
                fs::rename(&n, &away)?;
                fs::rename(&away, &n)
            }
            Step::RemoveAndMakeDirectory => {
                remove(&n)?;
                fs::create_dir(&n)
            }
            Step::RemoveAndCreate => {
                remove(&n)?;
                create(&n, who)
            }
            Step::RemoveAndLink => {
                remove(&n)?;
                symlink(who.text(), &n)
            }
            Step::Create => create(&n, who),
            Step::MakeDirectory => fs::create_dir(&n),
            Step::MakeSymlink => symlink(who.text(), &n),
            Step::LinkOtherHere => fs::hard_link(&other, &n),
            Step::LinkElsewhere => fs::hard_link(&n, &away),
            Step::RenameOtherHere => fs::rename(&other, &n),
            Step::RenameDirectoryHere => fs::rename(cell.join(who.names("e")), &n),
            Step::Exchange => {
                let flags = RenameFlags::EXCHANGE;
                Ok(renameat_with(CWD, &n, CWD, &other, flags)?)
            }
            Step::Mode => set_mode(&n, who.mode()),
            Step::ModeAndBack => {
                let old = fs::metadata(&n)?.permissions().mode();
                set_mode(&n, who.mode())?;
                set_mode(&n, old & 0o7777)
            }
            Step::Owner => {
                let group = if who == Who::Outsider { 1 } else { 2 };
                std::os::unix::fs::lchown(&n, None, Some(group))
            }
            Step::SetXattr => set_xattr(&n, who),
            Step::RemoveXattr => Ok(lremovexattr(&n, "user.old")?),
            Step::Touch => touch(&n, who),
            Step::CreateIn => create(&inside(&who.names("new")), who),
            Step::CreateSameIn => create(&inside("same"), who),
            Step::MakeDirectoryIn => fs::create_dir(inside(&who.names("new"))),
            Step::MakeSameDirectoryIn => fs::create_dir(inside("same")),
            Step::CreateAndRemoveIn => {
                create(&inside("passing"), who)?;
                fs::remove_file(inside("passing"))
            }
            Step::MoveOtherIn => fs::rename(&other, inside(&who.names("moved"))),
            Step::WriteIn => write(&inside("x"), false, who),
            Step::ModeIn => set_mode(&inside("x"), who.mode()),
            Step::RemoveIn => fs::remove_file(inside("x")),
            Step::MoveOut => fs::rename(inside("x"), &away),
            Step::ModeAbove => set_mode(cell, who.mode()),
            Step::SetXattrAbove => set_xattr(cell, who),
        }
    }
}

/// What any program does that looks at an object.
pub fn look(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(found) if found.is_dir() => {
            fs::read_dir(path)?.try_for_each(|entry| look(&entry?.path()))
        }
        Ok(found) if found.is_file() => fs::read(path).map(drop),
        Ok(_) => Ok(()),
    }
}

fn make_fifo(path: &Path) -> io::Result<()> {
    let mode = Mode::from_raw_mode(0o644);
    Ok(mknodat(CWD, path, FileType::Fifo, mode, 0)?)
}

fn create(path: &Path, who: Who) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(who.text().as_bytes())
}

fn write(path: &Path, appends: bool, who: Who) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = match appends {
        true => options.append(true).open(path)?,
        false => options.write(true).truncate(true).open(path)?,
    };
    file.write_all(who.text().as_bytes())
}

fn replace_by_copy(path: &PathBuf, copy: &PathBuf) -> io::Result<()> {
    fs::copy(path, copy)?;
    let found = fs::metadata(path)?;
    let times = fs::FileTimes::new()
        .set_accessed(found.accessed()?)
        .set_modified(found.modified()?);
    OpenOptions::new()
        .append(true)
        .open(copy)?
        .set_times(times)?;
    fs::rename(copy, path)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn set_xattr(path: &Path, who: Who) -> io::Result<()> {
    let name = format!("user.{}", who.names("new"));
    Ok(lsetxattr(path, name, b"new", XattrFlags::empty())?)
}

fn touch(path: &Path, who: Who) -> io::Result<()> {
    let time = Timespec {
        tv_sec: if who == Who::Outsider {
            1 << 29
        } else {
            1 << 30
        },
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
