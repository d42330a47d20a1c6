//! Makes a store an ordinary directory again.
//!
//! The store is opened for that, which recovers it, and closed: then its files are as the last
//! commit left them. What would be lost besides the history is refused unless the caller gives it
//! up. The start lock is held until the control directory is gone, so nobody opens it meanwhile. It
//! gets another name first: a store has its control directory whole, or is none any more.

use super::Root;
use crate::accounts::describe_user;
use crate::hosting::{StartLock, log_at, store_options, with_remedy};
use crate::location::StoreLocation;
use crate::{CONTROL_NAME, InitError, Trust};
use atomdir_disk::{LinuxDisk, Name};
use atomdir_engine::{Left, Store};
use rustix::fs::{AtFlags, RenameFlags, fstat, fsync, renameat_with, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Few descriptors are needed: nothing is open in the store.
const DESCRIPTORS_RESERVED: u64 = 64;
/// A control directory gets this name in the root, with a random number, while it is being removed. A
/// process that dies meanwhile leaves it.
const REMOVED: &str = ".atomdir.removed-";

/// A directory that was a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeinitOutcome {
    /// The directory, formerly the store's root.
    pub root: PathBuf,
    /// How many commits could have been undone.
    pub commits: u64,
}

/// Makes the store whose root is `directory` an ordinary directory again. Fails while a program has it
/// open. If something would be lost besides its history, it fails unless `gives_up` is true.
pub fn deinit_with(
    directory: &Path,
    gives_up: bool,
    trust: Trust,
) -> Result<DeinitOutcome, InitError> {
    let (root, location, control) = own_store(directory, trust)?;
    let _lock = StartLock::wait(&control).map_err(root.failed("taking the start lock"))?;
    let commits = close_for_good(&root, &control, gives_up)?;
    let log = log_at(&control);
    let failed = root.failed("removing its control directory");
    let disk = LinuxDisk::new();
    let remove = |parent: &OwnedFd, name: &[u8]| {
        let name = Name::new(name).map_err(|_| Errno::INVAL)?;
        Store::remove_control(&disk, parent, &name)
    };
    if location.control == root.path.join(CONTROL_NAME) {
        let mut number = [0; 8];
        getrandom(&mut number, GetRandomFlags::empty()).map_err(&failed)?;
        let removed = format!("{REMOVED}{:016x}", u64::from_ne_bytes(number));
        let (from, to) = (
            (&root.handle, CONTROL_NAME),
            (&root.handle, removed.as_str()),
        );
        renameat_with(from.0, from.1, to.0, to.1, RenameFlags::NOREPLACE).map_err(&failed)?;
        fsync(&root.handle).map_err(&failed)?;
        remove(&root.handle, removed.as_bytes()).map_err(&failed)?;
    } else {
        unlinkat(&root.handle, CONTROL_NAME, AtFlags::empty()).map_err(&failed)?;
        fsync(&root.handle).map_err(&failed)?;
        remove_elsewhere(&location.control, &remove).map_err(&failed)?;
    }
    fsync(&root.handle).map_err(&failed)?;
    super::log::remove(&log).map_err(root.failed("removing its log"))?;
    Ok(DeinitOutcome {
        root: root.path.clone(),
        commits,
    })
}

/// Fails if [`deinit_with`] would refuse this store because it is another user's. To be asked before
/// the service is stopped for it.
pub fn check_deinit(directory: &Path, trust: Trust) -> Result<(), InitError> {
    own_store(directory, trust).map(drop)
}

/// The root, place and control directory of a store of this user's.
pub(super) fn own_store(
    directory: &Path,
    trust: Trust,
) -> Result<(Root, StoreLocation, OwnedFd), InitError> {
    let root = Root::open(directory)?;
    let location = StoreLocation::at_with(&root.path, trust)?;
    let control = super::control::existing(&root, &location.control, None)?;
    let stat = fstat(&control).map_err(root.failed("finding whose it is"))?;
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(InitError::OthersStore {
            path: root.path.clone(),
            owner: describe_user(stat.st_uid),
        });
    }
    Ok((root, location, control))
}

fn remove_elsewhere(
    control: &Path,
    remove: &impl Fn(&OwnedFd, &[u8]) -> Result<(), Errno>,
) -> Result<(), Errno> {
    use std::os::unix::ffi::OsStrExt;
    let (Some(parent), Some(name)) = (control.parent(), control.file_name()) else {
        return Err(Errno::INVAL);
    };
    let parent = LinuxDisk::open_root(parent)?;
    remove(&parent, name.as_bytes())?;
    fsync(&parent)
}

/// Recovers the store and closes it. Returns how many commits could be undone.
fn close_for_good(root: &Root, control: &OwnedFd, gives_up: bool) -> Result<u64, InitError> {
    let keep = |directory: &OwnedFd| {
        fcntl_dupfd_cloexec(directory, 3).map_err(root.failed("keeping it open"))
    };
    let options = store_options(control, DESCRIPTORS_RESERVED);
    let options = options.map_err(root.failed("reading its file system"))?;
    let hidden = Name::new(CONTROL_NAME.as_bytes()).ok();
    let handles = (keep(&root.handle)?, keep(control)?);
    let control_and_log = (handles.1, log_at(control));
    let opened = Store::open_with_log(
        LinuxDisk::new(),
        handles.0,
        control_and_log,
        hidden,
        options,
    );
    let (store, _) = opened.map_err(|error| root.refused(error))?;
    let left = store.left().map_err(root.failed("looking what it keeps"))?;
    if !gives_up && left != Left::default() {
        return Err(InitError::HasMore {
            path: root.path.clone(),
            what: described(&left),
        });
    }
    let commits = store.status().history.map_or(0, |history| history.commits);
    for transaction in store.transactions() {
        store.abort(&transaction);
    }
    store
        .close()
        .map_err(|error| root.bad_control(with_remedy(&error)))?;
    Ok(commits)
}

fn described(left: &Left) -> String {
    let mut what = Vec::new();
    if left.transactions > 0 {
        what.push(format!("open transactions: {}", left.transactions));
    }
    for (commit, _) in &left.unconfirmed {
        what.push(format!("commit {commit} waits to be confirmed"));
    }
    for name in &left.displaced {
        what.push(format!(
            "a file that was in the way of a commit, in its control directory: limbo/{name}"
        ));
    }
    what.join("; ")
}
