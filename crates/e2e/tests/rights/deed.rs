//! What a transaction does in a cell, and how somebody else changes rights there meanwhile.
//!
//! A cell is a directory with the file `f` and the directory `d`, which has the file `d/x`.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};

/// For `security.capability`: cap_net_raw, effective and permitted.
const CAPABILITY: [u8; 20] = [
    1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// For `system.posix_acl_access`: user::rw-, user:7:---, group::r--, mask::r--, other::r--.
const LIST: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 0, 0, 7, 0, 0, 0, 4, 0, 4, 0, 255, 255, 255,
    255, 0x10, 0, 4, 0, 255, 255, 255, 255, 0x20, 0, 4, 0, 255, 255, 255, 255,
];

pub const OLD: &str = "old";
/// What the transaction writes.
pub const MINE: &str = "mine";

/// A file outside the store, as a cell's names lead to it.
pub const VICTIM: &str = "../../../victim";

pub fn make(cell: &Path) -> io::Result<()> {
    fs::create_dir_all(cell.join("d"))?;
    fs::write(cell.join("f"), OLD)?;
    fs::write(cell.join("d/x"), OLD)
}

/// What the transaction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Write,
    Append,
    Replace,
    Remove,
    Move,
    Link,
    OpenToAll,
    SetUserId,
    SetGroupId,
    /// Root takes a file over that programs are then to trust.
    TakeOver,
    TakeOverAndSetUserId,
    SetXattr,
    MakeIn,
    MakeDirectoryIn,
    /// Closes the directory and makes a file in it.
    CloseAndMakeIn,
    WriteIn,
    RemoveIn,
    MoveOut,
    MoveIn,
    OpenDirectory,
    RemoveDirectory,
    MoveDirectory,
    ReplaceDirectory,
}

impl Deed {
    pub const ALL: [Deed; 23] = [
        Deed::Write,
        Deed::Append,
        Deed::Replace,
        Deed::Remove,
        Deed::Move,
        Deed::Link,
        Deed::OpenToAll,
        Deed::SetUserId,
        Deed::SetGroupId,
        Deed::TakeOver,
        Deed::TakeOverAndSetUserId,
        Deed::SetXattr,
        Deed::MakeIn,
        Deed::MakeDirectoryIn,
        Deed::CloseAndMakeIn,
        Deed::WriteIn,
        Deed::RemoveIn,
        Deed::MoveOut,
        Deed::MoveIn,
        Deed::OpenDirectory,
        Deed::RemoveDirectory,
        Deed::MoveDirectory,
        Deed::ReplaceDirectory,
    ];

    pub fn is_for(self, is_root: bool) -> bool {
        is_root || !matches!(self, Deed::TakeOver | Deed::TakeOverAndSetUserId)
    }

    pub fn act(self, cell: &Path) -> io::Result<()> {
        let [f, d, new] = ["f", "d", "new"].map(|name| cell.join(name));
        match self {
            Deed::Write => fs::write(f, MINE),
            Deed::Append => append(&f),
            Deed::Replace => {
                fs::write(&new, MINE)?;
                fs::rename(new, f)
            }
            Deed::Remove => fs::remove_file(f),
            Deed::Move => fs::rename(f, new),
            Deed::Link => fs::hard_link(f, new),
            Deed::OpenToAll => set_mode(&f, 0o666),
            Deed::SetUserId => set_mode(&f, 0o4755),
            Deed::SetGroupId => set_mode(&f, 0o2755),
            Deed::TakeOver => lchown(f, Some(0), Some(0)),
            Deed::TakeOverAndSetUserId => {
                lchown(&f, Some(0), Some(0))?;
                set_mode(&f, 0o4755)
            }
            Deed::SetXattr => set_xattr(&f, "user.mine", b"mine"),
            Deed::MakeIn => fs::write(d.join("new"), MINE),
            Deed::MakeDirectoryIn => fs::create_dir(d.join("new")),
            Deed::CloseAndMakeIn => {
                set_mode(&d, 0o700)?;
                fs::write(d.join("new"), MINE)
            }
            Deed::WriteIn => fs::write(d.join("x"), MINE),
            Deed::RemoveIn => fs::remove_file(d.join("x")),
            Deed::MoveOut => fs::rename(d.join("x"), new),
            Deed::MoveIn => fs::rename(f, d.join("new")),
            Deed::OpenDirectory => set_mode(&d, 0o777),
            Deed::RemoveDirectory => fs::remove_dir_all(d),
            Deed::MoveDirectory => fs::rename(d, new),
            Deed::ReplaceDirectory => {
                fs::remove_dir_all(&d)?;
                fs::create_dir(&d)?;
                fs::write(d.join("new"), MINE)
            }
        }
    }
}

/// What somebody else does to the rights in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    Nothing,
    /// The modes of file and directory let nobody write, or read.
    Unwritable,
    Closed,
    OpenToAll,
    /// The file, or the directory, or the cell, gets another owner, and only that one may write.
    FileTaken,
    FileTakenAndClosed,
    FileTakenButWritable,
    DirectoryTaken,
    DirectoryTakenAndClosed,
    InsideTaken,
    CellTaken,
    CellTakenAndClosed,
    /// Others may add names, but not remove those of others.
    CellTakenAndSticky,
    AllTakenAndSticky,
    OtherGroup,
    DirectoryOfOtherGroup,
    SetUserId,
    SetGroupId,
    TakenAndSetUserId,
    Capability,
    List,
    Written,
    Replaced,
    ReplacedByLink,
    MadeIn,
    DirectoryReplaced,
}

impl Meanwhile {
    pub const ALL: [Meanwhile; 26] = [
        Meanwhile::Nothing,
        Meanwhile::Unwritable,
        Meanwhile::Closed,
        Meanwhile::OpenToAll,
        Meanwhile::FileTaken,
        Meanwhile::FileTakenAndClosed,
        Meanwhile::FileTakenButWritable,
        Meanwhile::DirectoryTaken,
        Meanwhile::DirectoryTakenAndClosed,
        Meanwhile::InsideTaken,
        Meanwhile::CellTaken,
        Meanwhile::CellTakenAndClosed,
        Meanwhile::CellTakenAndSticky,
        Meanwhile::AllTakenAndSticky,
        Meanwhile::OtherGroup,
        Meanwhile::DirectoryOfOtherGroup,
        Meanwhile::SetUserId,
        Meanwhile::SetGroupId,
        Meanwhile::TakenAndSetUserId,
        Meanwhile::Capability,
        Meanwhile::List,
        Meanwhile::Written,
        Meanwhile::Replaced,
        Meanwhile::ReplacedByLink,
        Meanwhile::MadeIn,
        Meanwhile::DirectoryReplaced,
    ];

    /// Only root can give objects away.
    pub fn is_for(self, is_root: bool) -> bool {
        let own = [
            Meanwhile::Nothing,
            Meanwhile::Unwritable,
            Meanwhile::Closed,
            Meanwhile::OpenToAll,
            Meanwhile::SetUserId,
            Meanwhile::SetGroupId,
            Meanwhile::List,
            Meanwhile::Written,
            Meanwhile::Replaced,
            Meanwhile::ReplacedByLink,
            Meanwhile::MadeIn,
            Meanwhile::DirectoryReplaced,
        ];
        is_root || own.contains(&self)
    }

    pub fn act(self, cell: &Path) -> io::Result<()> {
        let [f, d, theirs] = ["f", "d", "theirs"].map(|name| cell.join(name));
        let inside = d.join("x");
        let set = |file: u32, directory: u32| {
            set_mode(&f, file)?;
            set_mode(&d, directory)
        };
        match self {
            Meanwhile::Nothing => Ok(()),
            Meanwhile::Unwritable => set(0o444, 0o555),
            Meanwhile::Closed => set(0o000, 0o000),
            Meanwhile::OpenToAll => set(0o666, 0o777),
            Meanwhile::FileTaken => take(&f, 0o644),
            Meanwhile::FileTakenAndClosed => take(&f, 0o600),
            Meanwhile::FileTakenButWritable => take(&f, 0o666),
            Meanwhile::DirectoryTaken => take(&d, 0o755),
            Meanwhile::DirectoryTakenAndClosed => take(&d, 0o700),
            Meanwhile::InsideTaken => take(&inside, 0o600),
            Meanwhile::CellTaken => take(cell, 0o755),
            Meanwhile::CellTakenAndClosed => take(cell, 0o700),
            Meanwhile::CellTakenAndSticky => take(cell, 0o1777),
            Meanwhile::AllTakenAndSticky => {
                take(&f, 0o644)?;
                take(&d, 0o1777)?;
                take(&inside, 0o666)?;
                take(cell, 0o1777)
            }
            Meanwhile::OtherGroup => chown(&f, None, Some(0)),
            Meanwhile::DirectoryOfOtherGroup => {
                chown(&d, None, Some(0))?;
                set_mode(&d, 0o2775)
            }
            Meanwhile::SetUserId => set_mode(&f, 0o4777),
            Meanwhile::SetGroupId => set_mode(&f, 0o2777),
            Meanwhile::TakenAndSetUserId => take(&f, 0o4777),
            Meanwhile::Capability => set_xattr(&f, "security.capability", &CAPABILITY),
            Meanwhile::List => set_xattr(&f, "system.posix_acl_access", &LIST),
            Meanwhile::Written => {
                fs::write(&f, "theirs")?;
                fs::write(inside, "theirs")
            }
            Meanwhile::Replaced => {
                fs::write(&theirs, "theirs")?;
                set_mode(&theirs, 0o600)?;
                fs::rename(theirs, f)
            }
            Meanwhile::ReplacedByLink => {
                symlink(VICTIM, &theirs)?;
                fs::rename(&theirs, f)?;
                symlink(Path::new("..").join(VICTIM), &theirs)?;
                fs::rename(theirs, inside)
            }
            Meanwhile::MadeIn => {
                fs::write(d.join("theirs"), "theirs")?;
                set_mode(&d.join("theirs"), 0o600)
            }
            Meanwhile::DirectoryReplaced => {
                fs::rename(&d, &theirs)?;
                fs::create_dir(&d)?;
                fs::write(d.join("x"), "theirs")
            }
        }
    }
}

fn take(path: &Path, mode: u32) -> io::Result<()> {
    lchown(path, Some(0), Some(0))?;
    set_mode(path, mode)
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode))
}

fn append(path: &Path) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().append(true).open(path)?;
    file.write_all(MINE.as_bytes())
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    Ok(lsetxattr(path, name, value, XattrFlags::empty())?)
}
