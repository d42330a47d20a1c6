//! Makes a directory a store.

mod adopt;
mod control;
mod copy;
mod deinit;
mod file_system;
mod ignore;
mod log;
mod nesting;

pub use adopt::{AdoptOutcome, adopt_with};
pub use deinit::{DeinitOutcome, check_deinit, deinit_with};
pub use log::{give_up_log, log_of, move_log};

use self::log::Chosen;
use crate::hosting::{log_path, with_remedy};
use crate::location::way::Way;
use crate::location::{self, StoreLocation, view};
use crate::{CONTROL_NAME, FindError, InitError, Trust};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Layers, Store, StoreError};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fsync, openat, statat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The result of making a directory a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitOutcome {
    /// The store.
    pub store: StoreLocation,
    /// If false, it was a store before.
    pub created: bool,
}

/// Makes `directory` a store, with its control directory at `control`, by default
/// inside it. May be called again for a store, and after an interrupted call.
///
/// ```
/// # let scratch = atomdir_testing::Scratch::new("doc");
/// # let site = scratch.path().to_str().expect("a name that is text");
/// assert!(atomdir::init(site, None)?.created);
/// assert!(!atomdir::init(site, None)?.created);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn init(directory: impl AsRef<Path>, control: Option<&Path>) -> Result<InitOutcome, InitError> {
    init_with(directory, control, Trust::Listed)
}

/// Like [`init`], for a directory that may be somebody else's.
pub fn init_with(
    directory: impl AsRef<Path>,
    control: Option<&Path>,
    trust: Trust,
) -> Result<InitOutcome, InitError> {
    make(directory.as_ref(), (control, None), trust, Layers::Any)
}

/// Like [`init_with`], with the store's log, and only it, at `log`: a file that does not exist yet, on
/// another disk or file system.
pub fn init_with_log(
    directory: impl AsRef<Path>,
    control: Option<&Path>,
    log: &Path,
    trust: Trust,
) -> Result<InitOutcome, InitError> {
    make(directory.as_ref(), (control, Some(log)), trust, Layers::Any)
}

/// Like [`init_with`], for a directory on an overlay, as in a container's own root. There each object of
/// the directory is replaced by a copy of it, since a store can hold only what is in the overlay's
/// upper layer. Nothing may use the directory meanwhile. If this is interrupted, another call goes on.
pub fn init_copying(directory: impl AsRef<Path>, trust: Trust) -> Result<InitOutcome, InitError> {
    make(directory.as_ref(), (None, None), trust, Layers::Upper)
}

fn make(
    directory: &Path,
    (control, log): (Option<&Path>, Option<&Path>),
    trust: Trust,
    layers: Layers,
) -> Result<InitOutcome, InitError> {
    let root = Root::open(directory)?;
    check_place(&root)?;
    nesting::check_above(&root)?;
    let existing = match StoreLocation::at_with(&root.path, trust) {
        Ok(location) => Some(location.control),
        Err(FindError::NoStore { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let created = existing.is_none();
    let log = log.map(|log| Chosen::new(&root, log)).transpose()?;
    if let Some(log) = log.as_ref().filter(|_| created) {
        log.check_free()?;
    }
    if layers == Layers::Upper && !has_header(&root)? {
        if trust == Trust::Listed {
            root.check_trust(None)?;
        }
        if created {
            nesting::check_below(&root)?;
        }
        copy::to_upper_layer(&root)?;
    }
    let handle = match existing {
        Some(existing) => control::existing(&root, &existing, control)?,
        None => {
            if trust == Trust::Listed {
                root.check_trust(None)?;
            }
            nesting::check_below(&root)?;
            control::make(&root, control, trust)?
        }
    };
    if let Err(error) = format(&root, &handle, (layers, log.as_ref())) {
        if created && matches!(error, InitError::Unsuitable { .. }) {
            control::unmake(&root, control);
        }
        return Err(error);
    }
    ignore::write(&handle).map_err(root.failed("hiding it from git and Mercurial"))?;
    fsync(&root.handle).map_err(root.failed("making it durable"))?;
    Ok(InitOutcome {
        store: StoreLocation::at_with(&root.path, trust)?,
        created,
    })
}

/// Refuses places where no store can be.
fn check_place(root: &Root) -> Result<(), InitError> {
    if view::is_in_view(&root.path) {
        let path = root.path.clone();
        return Err(InitError::InView { path });
    }
    let kernel = file_system::of_kernel(&root.handle);
    match kernel.map_err(root.failed("looking at its file system"))? {
        None => Ok(()),
        Some(name) => Err(InitError::Unsuitable {
            path: root.path.clone(),
            reason: format!("{name} shows the kernel's state and stores no files"),
        }),
    }
}

/// Whether it is a store, with its control directory in it, or only what an interrupted call has made.
fn has_header(root: &Root) -> Result<bool, InitError> {
    let header = Path::new(CONTROL_NAME).join("header");
    match statat(&root.handle, header, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(errno) => Err(root.failed("looking for its control directory")(errno)),
    }
}

fn format(
    root: &Root,
    control: &OwnedFd,
    (layers, log): (Layers, Option<&Chosen>),
) -> Result<(), InitError> {
    let mut id = [0; 16];
    getrandom(&mut id, GetRandomFlags::empty()).map_err(root.failed("choosing its id"))?;
    let new = log.map(Chosen::new_log);
    let how = (layers, new.as_ref());
    let created = Store::create_in(&LinuxDisk::new(), &root.handle, control, id, how);
    created.map_err(|error| root.refused(error))?;
    // It may have been a store before.
    match (log, log_path(control)) {
        (Some(log), present) if present.as_ref() != Some(&log.path) => Err(InitError::OtherLog {
            path: root.path.clone(),
        }),
        _ => Ok(()),
    }
}

/// The directory that becomes a store.
struct Root {
    /// Absolute and without symbolic links.
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

    /// Checks that the user who makes the store would trust it, with its control
    /// directory in `above` if that is not the root.
    fn check_trust(&self, above: Option<&Path>) -> Result<(), InitError> {
        let way_to = |directory| {
            Way::to(directory).map_err(|(path, errno)| failed(&path, "finding whose it is")(errno))
        };
        let way = way_to(&self.path)?;
        let checked = location::check_root(&way, way.steps.len() - 1);
        let checked = match (checked, above) {
            (Ok(()), Some(above)) => {
                let way = way_to(above)?;
                way.check_above(way.steps.len())
            }
            (checked, _) => checked,
        };
        checked.map_err(|reason| InitError::Untrusted {
            path: self.path.clone(),
            reason,
        })
    }

    fn refused(&self, error: StoreError) -> InitError {
        match error {
            StoreError::Control { errno, step } => self.failed(step)(errno),
            StoreError::Unsuitable { reason } => InitError::Unsuitable {
                path: self.path.clone(),
                reason,
            },
            StoreError::ReadOnly => self.failed("formatting it")(Errno::ROFS),
            StoreError::NewLog { path, reason } => InitError::LogUnfit {
                log: path.into(),
                reason,
            },
            error => self.bad_control(with_remedy(&error)),
        }
    }

    fn failed(&self, operation: &'static str) -> impl Fn(Errno) -> InitError {
        failed(&self.path, operation)
    }

    fn bad_control(&self, message: String) -> InitError {
        InitError::Format {
            path: self.path.clone(),
            message,
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
