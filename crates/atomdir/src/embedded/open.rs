//! Opening a store in this process.

use super::permission::Protection;
use super::{Embedded, convert};
use crate::api::OpenError;
use crate::hosting::{
    LockPatience, StartLock, heed_terms, log_at, privileges, store_options, tend_unconfirmed,
};
use crate::process::Opener;
use crate::{CONTROL_NAME, StoreLocation};
use atomdir_disk::{LinuxDisk, Name};
use atomdir_engine as engine;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// Left to the program: the engine keeps at most a third of the rest open.
const DESCRIPTORS_RESERVED: u64 = 256;
/// The command opens stores for a short time, to recover and check them.
const COMMAND: &str = "atomdir";

impl Embedded {
    /// Opens the store in this process and recovers it. `check` fails if a service serves it;
    /// none can start between that and the end of this call.
    pub(crate) fn open(
        location: &StoreLocation,
        check: impl FnOnce() -> Result<(), OpenError>,
    ) -> Result<Embedded, OpenError> {
        let failed = |operation| {
            let store = location.root.clone();
            move |errno: Errno| OpenError::Io {
                store,
                operation,
                cause: errno.into(),
            }
        };
        let control = open_control(location, &failed)?;
        let root = LinuxDisk::open_root(&location.root).map_err(failed("opening its root"))?;
        let start_lock = StartLock::wait(&control).map_err(failed("taking the start lock"))?;
        check()?;
        let privileges = privileges();
        let is_privileged = privileges.all;
        let user = engine::Credentials {
            user: privileges.user,
            groups: privileges.groups,
        };
        let store = open_engine(location, &control, &root, &failed)?;
        drop(start_lock);
        // Before the program sees the store, which it may close before the maintenance has begun.
        tend_unconfirmed(&store);
        let embedded = Embedded {
            store,
            user,
            is_privileged,
            protection: Protection::of_system(),
            umask: umask().map_err(failed("reading the umask"))?,
            opener: Opener::this_process(),
            control,
            ticks: Arc::default(),
            maintainer: Mutex::new(None),
            is_durable: Arc::default(),
        };
        embedded
            .start_maintenance()
            .map_err(|cause| OpenError::Io {
                store: location.root.clone(),
                operation: "starting a thread",
                cause,
            })?;
        Ok(embedded)
    }
}

/// Opens the control directory, which must belong to this process's user alone. Root must not
/// act with root's rights on control files that somebody else can write.
fn open_control<F: FnOnce(Errno) -> OpenError>(
    location: &StoreLocation,
    failed: &impl Fn(&'static str) -> F,
) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let control = openat(CWD, &location.control, flags, Mode::empty())
        .map_err(failed("opening the control directory"))?;
    let stat = fstat(&control).map_err(failed("reading the control directory's owner"))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(OpenError::NotOwner {
            store: location.root.clone(),
            owner: stat.st_uid,
        });
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(OpenError::WritableByOthers {
            control: location.control.clone(),
        });
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(&control, ".", flags, Mode::empty()).map_err(failed("opening the control directory"))
}

fn open_engine<F: FnOnce(Errno) -> OpenError>(
    location: &StoreLocation,
    control: &OwnedFd,
    root: &OwnedFd,
    failed: &impl Fn(&'static str) -> F,
) -> Result<engine::Store<LinuxDisk>, OpenError> {
    let mut patience = LockPatience::new();
    let keep = |directory: &OwnedFd| {
        rustix::io::fcntl_dupfd_cloexec(directory, 3).map_err(failed("keeping a directory"))
    };
    let ours = std::process::id();
    loop {
        let hidden = Name::new(CONTROL_NAME.as_bytes()).ok();
        let options = store_options(control, DESCRIPTORS_RESERVED)
            .map_err(failed("reading its file system"))?;
        let (root, control_kept) = (keep(root)?, keep(control)?);
        let (disk, log) = (LinuxDisk::new(), log_at(control));
        match engine::Store::open_with_log(disk, root, (control_kept, log), hidden, options) {
            Ok((store, _)) => {
                heed_terms(control, &store);
                return Ok(store);
            }
            Err(engine::StoreError::Locked) => {}
            Err(error) => {
                return Err(OpenError::Store {
                    store: location.root.clone(),
                    error: convert::store_error(error),
                });
            }
        }
        let is_brief =
            |holder: &crate::hosting::Holder| holder.program == COMMAND && holder.process != ours;
        let waited = patience.wait(control, is_brief);
        waited.map_err(|by| OpenError::Held {
            store: location.root.clone(),
            holder: by.holder,
            how: by.how,
        })?;
    }
}

/// Reads this process's umask. The system call that returns it also sets it, which another
/// thread could notice.
fn umask() -> Result<u32, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let status = openat(CWD, "/proc/self/status", flags, Mode::empty())?;
    let mut buffer = [0; 4096];
    let length = rustix::io::read(&status, &mut buffer)?;
    let text = String::from_utf8_lossy(&buffer[..length]);
    let mut lines = text.lines();
    let umask = lines.find_map(|line| line.strip_prefix("Umask:"));
    umask
        .and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok())
        .ok_or(Errno::NOSYS)
}
