//! The locks of dpkg and apt, by which they keep others from installing packages. They are locks of files, and
//! one of a file in a view is not seen outside. So a view has the files themselves. We take the locks when
//! nobody in the view does.

use crate::error::Error;
use crate::explain::{ExitCode, Explain};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, fcntl_lock};
use rustix::io::Errno;
use rustix::process::{Flock, FlockType, fcntl_getlk};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// In the store `/var`. apt takes the first one before the second, as dpkg does.
const LOCKS: [&str; 2] = ["lib/dpkg/lock-frontend", "lib/dpkg/lock"];
const OTHER_LOCKS: [&str; 3] = [
    "lib/dpkg/triggers/Lock",
    "lib/apt/lists/lock",
    "cache/apt/archives/lock",
];

/// Another program has one of the locks.
#[derive(Debug, thiserror::Error)]
#[error(
    "another program{} installs packages: it holds '{}'",
    process.map(|process| format!(", process {process},")).unwrap_or_default(),
    path.display()
)]
pub struct PackagesInUse {
    path: PathBuf,
    process: Option<i32>,
}

impl Explain for PackagesInUse {
    fn exit_code(&self) -> ExitCode {
        ExitCode::Conflict
    }

    fn hint(&self) -> Option<String> {
        Some("try again when it has ended".to_owned())
    }
}

/// The files that the views share with the outside.
pub fn lock_files(roots: &[PathBuf]) -> Vec<PathBuf> {
    let var = roots.iter().filter(|root| root.ends_with("var"));
    let files = var.flat_map(|root| LOCKS.iter().chain(&OTHER_LOCKS).map(|lock| root.join(lock)));
    let is_file = |path: &PathBuf| {
        let stat = rustix::fs::lstat(path);
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file())
    };
    files.filter(is_file).collect()
}

/// Held until it is dropped.
pub struct PackagesLocked {
    _files: Vec<OwnedFd>,
}

impl PackagesLocked {
    /// Fails if somebody else has one of the locks.
    pub fn take(roots: &[PathBuf]) -> Result<PackagesLocked, Error> {
        let mut files = Vec::new();
        for root in roots.iter().filter(|root| root.ends_with("var")) {
            for lock in LOCKS {
                files.extend(locked(&root.join(lock))?);
            }
        }
        Ok(PackagesLocked { _files: files })
    }
}

/// `None`: there is no such file, or its place is not one of dpkg's.
fn locked(path: &Path) -> Result<Option<OwnedFd>, Error> {
    let failed = |errno| Error::Write {
        path: path.to_owned(),
        errno,
    };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        file => file.map_err(failed)?,
    };
    match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN | Errno::ACCESS) => {
            let holder = fcntl_getlk(&file, &Flock::from(FlockType::WriteLock)).ok();
            let process = holder.flatten().and_then(|holder| holder.pid);
            Err(PackagesInUse {
                path: path.to_owned(),
                process: process.map(|process| process.as_raw_nonzero().get()),
            }
            .into())
        }
        Err(errno) => Err(failed(errno)),
    }
}
