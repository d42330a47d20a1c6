//! Finds a store's two directories and opens the store.

use crate::ServiceError;
use crate::process::owner;
use atomdir::client::Connection;
use atomdir::hosting::{
    HeldBy, Holder, LockPatience, StartLock, log_at, store_options, with_remedy,
};
use atomdir::{CONTROL_NAME, ConnectError, StartService, StoreLocation, Trust};
use atomdir_disk::{LinuxDisk, Name};
use atomdir_engine::{Inspection, Recovery, Store, StoreError};
use atomdir_protocol::FailureKind;
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Reserved for connections, mounts and the few files that the engine always has open.
const DESCRIPTORS_RESERVED: u64 = 512;

/// A store's two directories. They belong to the user as whom the process runs.
pub(crate) struct Directories {
    pub(crate) location: StoreLocation,
    pub(crate) control: OwnedFd,
    root: OwnedFd,
}

impl Directories {
    /// Opens both, and becomes the store's owner before opening the second.
    pub(crate) fn open(location: StoreLocation) -> Result<Directories, ServiceError> {
        let serve = |operation| {
            let store = location.root.clone();
            move |errno| ServiceError::Serve {
                store,
                operation,
                errno,
            }
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path_flags = flags.difference(OFlags::RDONLY) | OFlags::PATH;
        // Without read access: an ordinary user first gets an error that names the owner.
        let control = openat(CWD, &location.control, path_flags, Mode::empty())
            .map_err(serve("opening the control directory"))?;
        let control_stat = fstat(&control).map_err(serve("reading its owner"))?;
        check_owner(&location, &control_stat)?;
        owner::become_owner(control_stat.st_uid, control_stat.st_gid)?;
        let control = openat(&control, ".", flags, Mode::empty())
            .map_err(serve("opening the control directory"))?;
        let root =
            LinuxDisk::open_root(&location.root).map_err(serve("opening the root directory"))?;
        Ok(Directories {
            location,
            control,
            root,
        })
    }

    /// Takes the lock and recovers. The caller must hold the start lock.
    pub(crate) fn open_store(&self) -> Result<(Store<LinuxDisk>, Recovery), ServiceError> {
        self.once_unlocked(|| self.try_open_store())
    }

    /// Takes the lock and inspects the store without changing it.
    pub(crate) fn inspect(&self) -> Result<Inspection, ServiceError> {
        self.once_unlocked(|| {
            let control = (self.keep(&self.control)?, log_at(&self.control));
            Ok(Store::inspect_with_log(
                &LinuxDisk::new(),
                &self.root,
                control,
            ))
        })
    }

    fn once_unlocked<T>(
        &self,
        mut attempt: impl FnMut() -> Result<Result<T, StoreError>, ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut patience = LockPatience::new();
        loop {
            let error = match attempt()? {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            // The command recovers and checks stores in processes of its own, which soon end.
            let is_brief = Holder::runs_our_program;
            if !matches!(error, StoreError::Locked) {
                return Err(self.open_error(&error));
            }
            let waited = patience.wait(&self.control, is_brief);
            waited.map_err(|by| self.locked_error(by))?;
        }
    }

    fn try_open_store(
        &self,
    ) -> Result<Result<(Store<LinuxDisk>, Recovery), StoreError>, ServiceError> {
        let root = self.keep(&self.root)?;
        let control = self.keep(&self.control)?;
        let options = store_options(&control, DESCRIPTORS_RESERVED);
        let options =
            options.map_err(|errno| self.serve_error("reading its file system", errno))?;
        let hidden = Name::new(CONTROL_NAME.as_bytes()).ok();
        Ok(Store::open_with_log(
            LinuxDisk::new(),
            root,
            (control, log_at(&self.control)),
            hidden,
            options,
        ))
    }

    /// Opens another descriptor of the control directory.
    pub(crate) fn control(&self) -> Result<OwnedFd, ServiceError> {
        self.keep(&self.control)
    }

    fn keep(&self, directory: &OwnedFd) -> Result<OwnedFd, ServiceError> {
        let kept = rustix::io::fcntl_dupfd_cloexec(directory, 3);
        kept.map_err(|errno| self.serve_error("keeping a directory", errno))
    }

    fn serve_error(&self, operation: &'static str, errno: Errno) -> ServiceError {
        ServiceError::Serve {
            store: self.location.root.clone(),
            operation,
            errno,
        }
    }

    fn locked_error(&self, by: HeldBy) -> ServiceError {
        let store = self.location.root.clone();
        let HeldBy { holder, how } = by;
        match holder {
            Some(holder) if holder.runs_our_program() => ServiceError::AlreadyRunning { store },
            holder => ServiceError::Held { store, holder, how },
        }
    }

    fn open_error(&self, error: &StoreError) -> ServiceError {
        let store = self.location.root.clone();
        let kind = match error {
            StoreError::ReadOnly => return ServiceError::ReadOnly { store },
            StoreError::Control {
                errno: Errno::NOENT,
                ..
            } => FailureKind::Misconfigured,
            _ => FailureKind::Io,
        };
        let message = with_remedy(error);
        ServiceError::Open {
            store,
            message,
            kind,
        }
    }
}

fn check_owner(location: &StoreLocation, control: &Stat) -> Result<(), ServiceError> {
    let user = rustix::process::geteuid();
    if !user.is_root() && user.as_raw() != control.st_uid {
        return Err(ServiceError::NotOwner {
            store: location.root.clone(),
            owner: control.st_uid,
        });
    }
    if control.st_mode & 0o022 != 0 {
        return Err(ServiceError::WritableByOthers {
            control: location.control.clone(),
        });
    }
    Ok(())
}

/// Accepts any owner: the service acts as the owner, and its starter has named the store.
pub(crate) fn locate(store: &Path) -> Result<StoreLocation, ServiceError> {
    Ok(StoreLocation::at_with(store, Trust::Everyone)?)
}

/// Takes the start lock, unless another service has the store.
pub(crate) fn wait_for_turn(directories: &Directories) -> Result<StartLock, ServiceError> {
    let store = || directories.location.root.clone();
    let start_lock = StartLock::wait(&directories.control).map_err(|errno| match errno {
        Errno::ROFS => ServiceError::ReadOnly { store: store() },
        errno => ServiceError::Serve {
            store: store(),
            operation: "taking the start lock",
            errno,
        },
    })?;
    check_nobody_serves(directories)?;
    Ok(start_lock)
}

/// Checks by connecting, as a client does. The caller holds the start lock.
fn check_nobody_serves(directories: &Directories) -> Result<(), ServiceError> {
    match Connection::open(&directories.location, &StartService::Never) {
        Err(ConnectError::NotRunning { .. }) => Ok(()),
        // Some service answers, even if it refuses.
        _ => Err(ServiceError::AlreadyRunning {
            store: directories.location.root.clone(),
        }),
    }
}
