//! Making a directory a store.

mod control;
mod ignore;
mod nesting;

use crate::InitError;
use crate::location::{StoreLocation, control_of, view};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Store, StoreError};
use rustix::fs::{CWD, Mode, OFlags, fstat, fsync, openat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOutcome {
    pub store: StoreLocation,
    /// Else it was a store before.
    pub created: bool,
}

/// Makes `directory` a store, with its control directory at `control` or else
/// inside it. Harmless when it is one already, and when this was interrupted.
pub fn init(directory: &Path, control: Option<&Path>) -> Result<InitOutcome, InitError> {
    let root = Root::open(directory)?;
    check_place(&root)?;
    nesting::check_above(&root)?;
    let existing = control_of(&root.path).map_err(|error| root.bad_control(&error))?;
    let created = existing.is_none();
    let (control, handle) = match existing {
        Some(existing) => control::existing(&root, existing, control)?,
        None => {
            nesting::check_below(&root)?;
            control::make(&root, control)?
        }
    };
    format(&root, &handle)?;
    ignore::write(&handle).map_err(root.failed("writing .gitignore"))?;
    fsync(&root.handle).map_err(root.failed("making it durable"))?;
    Ok(InitOutcome {
        store: StoreLocation {
            root: root.path,
            control,
            start: PathBuf::new(),
            transaction: None,
        },
        created,
    })
}

/// Where no store can be.
fn check_place(root: &Root) -> Result<(), InitError> {
    let path = || root.path.clone();
    if root.path == Path::new("/") {
        return Err(InitError::FileSystemRoot { path: path() });
    }
    if view::is_in_view(&root.path) {
        return Err(InitError::InView { path: path() });
    }
    Ok(())
}

fn format(root: &Root, control: &OwnedFd) -> Result<(), InitError> {
    let mut id = [0; 16];
    getrandom(&mut id, GetRandomFlags::empty()).map_err(root.failed("choosing its id"))?;
    Store::create(&LinuxDisk::new(), control, id).map_err(|error| match error {
        StoreError::Control { errno, step } => root.failed(step)(errno),
        StoreError::ReadOnly => root.failed("formatting it")(Errno::ROFS),
        error => root.bad_control(&error),
    })
}

/// The directory that shall be a store.
struct Root {
    /// Absolute, without symbolic links.
    path: PathBuf,
    handle: OwnedFd,
    device: u64,
    inode: u64,
}

impl Root {
    fn open(directory: &Path) -> Result<Root, InitError> {
        let given = directory.to_owned();
        let path = match directory.canonicalize() {
            Ok(path) => path,
            Err(error) => match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::NOENT => return Err(InitError::NotFound { path: given }),
                Errno::NOTDIR => return Err(InitError::NotADirectory { path: given }),
                errno => return Err(failed(&given, "finding it")(errno)),
            },
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match openat(CWD, &path, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::NOTDIR) => return Err(InitError::NotADirectory { path }),
            Err(errno) => return Err(failed(&path, "opening it")(errno)),
        };
        let stat = fstat(&handle).map_err(failed(&path, "reading what it is"))?;
        Ok(Root {
            path,
            handle,
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Errno) -> InitError {
        failed(&self.path, operation)
    }

    fn bad_control(&self, error: &dyn std::error::Error) -> InitError {
        InitError::Format {
            path: self.path.clone(),
            message: error.to_string(),
        }
    }
}

fn failed(path: &Path, operation: &'static str) -> impl Fn(Errno) -> InitError {
    let path = path.to_owned();
    move |errno| match errno {
        Errno::ACCESS | Errno::PERM => InitError::NotPermitted { path: path.clone() },
        Errno::ROFS => InitError::ReadOnly { path: path.clone() },
        errno => InitError::Io {
            path: path.clone(),
            operation,
            errno,
        },
    }
}
