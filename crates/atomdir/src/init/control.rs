//! The control directory: in the store's root, or elsewhere on its file
//! system, with a file in the root that holds its path.

use super::Root;
use crate::{CONTROL_NAME, InitError};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, fsync, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Others pass through it to the socket; all else in it is private.
const MODE: u32 = 0o711;
const POINTER_MODE: u32 = 0o644;
const POINTER_NAME_NEW: &str = "pointer.new";

/// Of what is a store already; `wanted` must not be another one.
pub(super) fn existing(
    root: &Root,
    existing: PathBuf,
    wanted: Option<&Path>,
) -> Result<(PathBuf, OwnedFd), InitError> {
    let handle = open(&existing)?;
    if let Some(wanted) = wanted {
        let same = match (fstat(&handle), rustix::fs::stat(wanted)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            _ => false,
        };
        if !same {
            return Err(InitError::OtherControl {
                path: root.path.clone(),
                control: existing,
            });
        }
    }
    Ok((existing, handle))
}

pub(super) fn make(root: &Root, wanted: Option<&Path>) -> Result<(PathBuf, OwnedFd), InitError> {
    let Some(wanted) = wanted else {
        mkdirat(&root.handle, CONTROL_NAME, Mode::from_raw_mode(MODE))
            .map_err(root.failed("making the control directory"))?;
        let path = root.path.join(CONTROL_NAME);
        let handle = open(&path)?;
        set_mode(&path, &handle)?;
        return Ok((path, handle));
    };
    let path = make_elsewhere(wanted)?;
    let handle = open(&path)?;
    let stat = fstat(&handle).map_err(unfit(&path))?;
    if path.starts_with(&root.path) || root.path.starts_with(&path) {
        return Err(InitError::ControlInside {
            path: root.path.clone(),
            control: path,
        });
    }
    if stat.st_dev != root.device {
        return Err(InitError::ControlElsewhere {
            path: root.path.clone(),
            control: path,
        });
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        let reason = format!("it belongs to user {}", stat.st_uid);
        return Err(InitError::ControlUnfit {
            control: path,
            reason,
        });
    }
    set_mode(&path, &handle)?;
    Ok((path, handle))
}

/// The path without symbolic links, of a directory that holds nothing.
fn make_elsewhere(wanted: &Path) -> Result<PathBuf, InitError> {
    match rustix::fs::mkdir(wanted, Mode::from_raw_mode(MODE)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(unfit(wanted)(errno)),
    }
    wanted
        .canonicalize()
        .map_err(|error| unfit(wanted)(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

fn open(path: &Path) -> Result<OwnedFd, InitError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty()).map_err(unfit(path))
}

/// Also where the umask took bits away.
fn set_mode(path: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    fchmod(handle, Mode::from_raw_mode(MODE)).map_err(unfit(path))
}

/// The store exists from here on. The file is made in the control directory
/// and renamed into the root: what cannot be done with this file could not be
/// done with any other, either.
pub(super) fn point_to(root: &Root, control: &Path, handle: &OwnedFd) -> Result<(), InitError> {
    if control.parent() == Some(&root.path) {
        return Ok(());
    }
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(
        handle,
        POINTER_NAME_NEW,
        flags,
        Mode::from_raw_mode(POINTER_MODE),
    )
    .map_err(unfit(control))?;
    fchmod(&file, Mode::from_raw_mode(POINTER_MODE)).map_err(unfit(control))?;
    let contents = [control.as_os_str().as_bytes(), b"\n"].concat();
    let mut rest = &contents[..];
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest).map_err(unfit(control))?;
        rest = &rest[count..];
    }
    fsync(&file).map_err(unfit(control))?;
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

fn unfit(control: &Path) -> impl Fn(Errno) -> InitError {
    let control = control.to_owned();
    move |errno| match errno {
        Errno::ACCESS | Errno::PERM => InitError::NotPermitted {
            path: control.clone(),
        },
        errno => InitError::ControlUnfit {
            control: control.clone(),
            reason: errno.to_string(),
        },
    }
}

/// Whether this entry makes its directory a store's root.
pub(super) fn is_control(kind: FileType) -> bool {
    matches!(kind, FileType::Directory | FileType::RegularFile)
}
