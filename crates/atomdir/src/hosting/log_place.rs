//! Reaching a store's log that is not in its control directory.
//!
//! Whoever can replace the log decides what recovery applies with the owner's rights. So the same
//! conditions hold for it as for a control directory (see `crate::trust`): nobody else can rename a
//! directory on the way to it or write in it, and no symbolic link is followed.

use crate::location::way::Way;
use crate::trust::Owned;
use atomdir_disk::{LinuxDisk, Name, reason};
use atomdir_engine::{LogAt, Store};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the engine reaches the log of the store with this control directory.
#[must_use]
pub fn log_at(control: &OwnedFd) -> LogAt<LinuxDisk> {
    match log_path(control) {
        Some(path) => match reach(&path) {
            Ok((directory, name)) => LogAt::Elsewhere { directory, name },
            Err(reason) => LogAt::Unreachable { reason },
        },
        None => LogAt::Inside,
    }
}

/// The path of the log, if it is not in the control directory. `None` also if that cannot be read,
/// which whoever opens the store reports.
#[must_use]
pub fn log_path(control: &OwnedFd) -> Option<PathBuf> {
    let path = Store::log_path(&LinuxDisk::new(), control).ok().flatten();
    path.map(|path| PathBuf::from(OsStr::from_bytes(&path)))
}

/// The directory of a log that is there, and its name in it; or why it is not to be used.
fn reach(path: &Path) -> Result<(OwnedFd, Name), String> {
    let (directory, name) = directory_of(path)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(
        &directory,
        OsStr::from_bytes(name.as_bytes()),
        flags,
        Mode::empty(),
    ) {
        // The engine says so.
        Err(Errno::NOENT) => return Ok((directory, name)),
        file => file.map_err(reason)?,
    };
    let stat = fstat(&file).map_err(reason)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is not a regular file".to_owned());
    }
    let owned = Owned::new(path, &file).map_err(reason)?;
    owned
        .check_closed()
        .map_err(|distrust| distrust.to_string())?;
    Ok((directory, name))
}

/// The directory in which a log is or will be, if nobody else can replace anything on the way.
pub(crate) fn directory_of(path: &Path) -> Result<(OwnedFd, Name), String> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it is not the path of a file".to_owned());
    };
    let name = Name::new(name.as_bytes()).map_err(|_| "its name cannot be used".to_owned())?;
    let way = Way::to(parent).map_err(|(at, errno)| match errno {
        Errno::NOENT => format!(
            "'{}' is not there; is its file system mounted?",
            at.display()
        ),
        errno => format!("'{}': {}", at.display(), reason(errno)),
    })?;
    let checked = way.check_above(way.steps.len());
    checked.map_err(|distrust| distrust.to_string())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(&way.end, ".", flags, Mode::empty()).map_err(reason)?;
    Ok((directory, name))
}
