//! Where a store is: found by walking up, as git does.

pub(crate) mod pointer;
pub(crate) mod view;

use crate::FindError;
use atomdir_protocol::TransactionId;
use pointer::Pointer;
use rustix::fs::{AtFlags, CWD, FileType, stat, statat};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// In a store's root: its control directory, or a file that holds its path.
pub const CONTROL_NAME: &str = ".atomdir";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLocation {
    /// Absolute, without symbolic links.
    pub root: PathBuf,
    /// Absolute.
    pub control: PathBuf,
    /// Relative to the root: where the search began.
    pub start: PathBuf,
    /// The search began in this transaction's view, whose path means the
    /// transaction.
    pub transaction: Option<TransactionId>,
}

impl StoreLocation {
    /// The store whose root is `root`.
    pub fn at(root: &Path) -> Result<StoreLocation, FindError> {
        let root = absolute(root)?;
        match control_of(&root)? {
            Some(control) => Ok(StoreLocation {
                root,
                control,
                start: PathBuf::new(),
                transaction: None,
            }),
            None => Err(FindError::NoStore { start: root }),
        }
    }
}

/// The store that holds `start`, or whose view does.
pub fn find(start: &Path) -> Result<StoreLocation, FindError> {
    let absolute = absolute(start)?;
    if let Some(found) = view::store_of(&absolute)? {
        return Ok(found);
    }
    for root in absolute.ancestors() {
        if let Some(control) = control_of(root)? {
            return Ok(StoreLocation {
                start: absolute
                    .strip_prefix(root)
                    .unwrap_or(Path::new(""))
                    .to_owned(),
                root: root.to_owned(),
                control,
                transaction: None,
            });
        }
    }
    Err(FindError::NoStore { start: absolute })
}

/// Without symbolic links.
fn absolute(path: &Path) -> Result<PathBuf, FindError> {
    path.canonicalize().map_err(|error| FindError::Io {
        path: path.to_owned(),
        errno: Errno::from_io_error(&error).unwrap_or(Errno::IO),
    })
}

/// The control directory, if `root` is a store's root.
pub(crate) fn control_of(root: &Path) -> Result<Option<PathBuf>, FindError> {
    let path = root.join(CONTROL_NAME);
    let stat = match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        // A directory above that may not be searched is no reason to give up.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(None),
        Err(errno) => return Err(FindError::Io { path, errno }),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Some(path)),
        FileType::RegularFile => read_control_file(root, path, stat.st_uid).map(Some),
        _ => Err(FindError::NotAControl { path }),
    }
}

fn read_control_file(root: &Path, path: PathBuf, owner: u32) -> Result<PathBuf, FindError> {
    let io = |errno| FindError::Io {
        path: path.clone(),
        errno,
    };
    let pointer = Pointer::read(&path).map_err(io)?;
    let Some(pointer) = pointer else {
        return Err(FindError::NotAControl { path });
    };
    let control = root.join(&pointer.control);
    if stat(root).map_err(io)?.st_ino != pointer.root_inode {
        return Err(FindError::Copied {
            root: root.to_owned(),
            control,
        });
    }
    check_control(&control, owner).map_err(|reason| FindError::BadControl {
        path,
        control: control.clone(),
        reason,
    })?;
    Ok(control)
}

/// `owner`: of the file that names it.
fn check_control(control: &Path, owner: u32) -> Result<(), String> {
    let stat =
        statat(CWD, control, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| errno.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err("it is not a directory".to_owned());
    }
    // Else anyone could lend another's control directory to a tree of their own.
    if stat.st_uid != owner {
        return Err(format!(
            "it belongs to user {}, the file that names it to user {owner}",
            stat.st_uid
        ));
    }
    Ok(())
}
