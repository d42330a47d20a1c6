//! Makes the control directory: in the store's root, or elsewhere on its file system, with
//! a file in the root that holds its path.

#[cfg(test)]
mod tests;

use super::{Root, nesting};
use crate::accounts::describe_user;
use crate::location::pointer::Pointer;
use crate::{CONTROL_NAME, InitError, Trust};
use atomdir_disk::reason;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, fstat, fsync, mkdirat, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Other users pass through it to the socket; everything else in it is private.
pub(super) const MODE: u32 = 0o711;
const POINTER_MODE: u32 = 0o644;
const POINTER_NAME_NEW: &str = "pointer.new";

/// The control directory of an existing store; `wanted` must not be another one.
pub(super) fn existing(
    root: &Root,
    existing: &Path,
    wanted: Option<&Path>,
) -> Result<OwnedFd, InitError> {
    let handle = open(existing)?;
    if let Some(wanted) = wanted {
        let same = match (fstat(&handle), rustix::fs::stat(wanted)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        };
        if !same {
            return Err(InitError::OtherControl {
                path: root.path.clone(),
                control: existing.to_owned(),
            });
        }
    }
    Ok(handle)
}

pub(super) fn make(root: &Root, wanted: Option<&Path>, trust: Trust) -> Result<OwnedFd, InitError> {
    make_by(root, wanted, trust, set_mode)
}

/// `close` closes the directory to others.
fn make_by(
    root: &Root,
    wanted: Option<&Path>,
    trust: Trust,
    close: impl FnOnce(&Path, &OwnedFd) -> Result<(), InitError>,
) -> Result<OwnedFd, InitError> {
    let Some(wanted) = wanted else {
        mkdirat(&root.handle, CONTROL_NAME, Mode::from_raw_mode(MODE))
            .map_err(root.failed("making the control directory"))?;
        let path = root.path.join(CONTROL_NAME);
        let handle = open_at(&root.handle, CONTROL_NAME).map_err(unfit(&path))?;
        take_over(root, &path, &handle, close)?;
        return Ok(handle);
    };
    let path = resolve(wanted)?;
    if path.starts_with(&root.path) || root.path.starts_with(&path) {
        return Err(InitError::ControlInside {
            path: root.path.clone(),
            control: path,
        });
    }
    if let Some(store) = nesting::store_above(&path) {
        let reason = format!("it lies inside the store '{}'", store.display());
        return Err(InitError::ControlUnfit {
            control: path,
            reason,
        });
    }
    if trust == Trust::Listed {
        root.check_trust(path.parent())?;
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(unfit(&path)(Errno::EXIST));
    };
    let above = open(parent)?;
    match mkdirat(&above, name, Mode::from_raw_mode(MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(unfit(&path)(errno)),
    }
    let handle = open_at(&above, name).map_err(unfit(&path))?;
    take_over(root, &path, &handle, close)?;
    // The path that is written to the pointer must still lead to this directory.
    if !is_same(&handle, &open(&path)?).map_err(unfit(&path))? {
        return Err(unfit(&path)(Errno::AGAIN));
    }
    point_to(root, &path, &handle)?;
    Ok(handle)
}

/// Others may have been able to write in the directory until its mode was set, so the
/// second check decides. The first one leaves the mode of an unfit directory unchanged.
fn take_over(
    root: &Root,
    path: &Path,
    handle: &OwnedFd,
    close: impl FnOnce(&Path, &OwnedFd) -> Result<(), InitError>,
) -> Result<(), InitError> {
    check(root, path, handle)?;
    close(path, handle)?;
    check(root, path, handle)
}

fn is_same(one: &OwnedFd, other: &OwnedFd) -> Result<bool, Errno> {
    let (one, other) = (fstat(one)?, fstat(other)?);
    Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
}

/// Removes what [`make`] has made, if nothing else is in it.
pub(super) fn unmake(root: &Root, wanted: Option<&Path>) {
    // A leftover empty directory does no harm, and the error under way matters more.
    let _ = match wanted {
        None => unlinkat(&root.handle, CONTROL_NAME, AtFlags::REMOVEDIR),
        Some(_) => unlinkat(&root.handle, CONTROL_NAME, AtFlags::empty()),
    };
}

/// Resolves symbolic links; the last name need not exist.
fn resolve(wanted: &Path) -> Result<PathBuf, InitError> {
    let failed = |error: std::io::Error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        unfit(wanted)(errno)
    };
    match wanted.canonicalize() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        found => return found.map_err(failed),
    }
    let absolute = std::path::absolute(wanted).map_err(failed)?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(unfit(wanted)(Errno::NOENT));
    };
    Ok(parent.canonicalize().map_err(failed)?.join(name))
}

/// The directory must be this user's, on the store's file system and empty, since its
/// entries may be another store's.
fn check(root: &Root, path: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    let stat = fstat(handle).map_err(unfit(path))?;
    if stat.st_dev != root.device {
        return Err(InitError::ControlElsewhere {
            path: root.path.clone(),
            control: path.to_owned(),
        });
    }
    let reason = if stat.st_uid != rustix::process::geteuid().as_raw() {
        format!("it belongs to {}", describe_user(stat.st_uid))
    } else if !is_empty(handle).map_err(unfit(path))? {
        "it is not empty".to_owned()
    } else {
        return Ok(());
    };
    Err(InitError::ControlUnfit {
        control: path.to_owned(),
        reason,
    })
}

/// Ignores what an interrupted init left.
fn is_empty(directory: &OwnedFd) -> Result<bool, Errno> {
    let ours: [&[u8]; 3] = [b".", b"..", POINTER_NAME_NEW.as_bytes()];
    for entry in Dir::read_from(directory)? {
        if !ours.contains(&entry?.file_name().to_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn open(path: &Path) -> Result<OwnedFd, InitError> {
    open_at(CWD, path).map_err(unfit(path))
}

fn open_at(above: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(above, name, flags, Mode::empty())
}

/// Sets the mode again, since the umask may have removed bits.
fn set_mode(path: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    fchmod(handle, Mode::from_raw_mode(MODE)).map_err(unfit(path))
}

/// Makes the file in the control directory and renames it into the root. Where that fails,
/// later renames between the two would fail as well.
fn point_to(root: &Root, control: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    let pointer = Pointer {
        control: control.to_owned(),
        root_inode: root.inode,
    };
    write(handle, &pointer.encode()).map_err(unfit(control))?;
    renameat(handle, POINTER_NAME_NEW, &root.handle, CONTROL_NAME).map_err(|errno| {
        let _ = unlinkat(handle, POINTER_NAME_NEW, AtFlags::empty());
        match errno {
            Errno::XDEV => InitError::ControlElsewhere {
                path: root.path.clone(),
                control: control.to_owned(),
            },
            errno => root.failed("naming its control directory")(errno),
        }
    })
}

/// Lets the file in the root, if there is one, name this root: it may be the original's.
pub(super) fn point_again(root: &Root, control: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    let found = statat(&root.handle, CONTROL_NAME, AtFlags::SYMLINK_NOFOLLOW);
    let found = found.map_err(root.failed("looking at its control directory"))?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => point_to(root, control, handle),
        _ => Ok(()),
    }
}

fn write(control: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    // An existing one may be a link to another file of ours.
    match unlinkat(control, POINTER_NAME_NEW, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(POINTER_MODE);
    let file = openat(control, POINTER_NAME_NEW, flags, mode)?;
    // Ignore the umask: other users must find the store.
    fchmod(&file, mode)?;
    while !bytes.is_empty() {
        let count = rustix::io::write(&file, bytes)?;
        bytes = &bytes[count..];
    }
    fsync(&file)
}

fn unfit(control: &Path) -> impl Fn(Errno) -> InitError {
    let control = control.to_owned();
    move |errno| match errno {
        Errno::ACCESS | Errno::PERM => InitError::NotPermitted {
            path: control.clone(),
        },
        errno => InitError::ControlUnfit {
            control: control.clone(),
            reason: reason(errno),
        },
    }
}

/// Whether this entry makes its directory a store's root.
pub(super) fn is_control(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::RegularFile)
}
