//! Makes a copied store one of its own.
//!
//! A copy comes with the control directory of another store: from a backup or `cp -a` of the user's
//! own, but also from a clone or an archive of a stranger's. So the user names it. Its files keep what
//! commits replaced; nobody is admitted whom the original had admitted.

use super::control::{self, MODE};
use super::{Root, check_place, ignore, nesting};
use crate::accounts::describe_user;
use crate::hosting::{StartLock, log_at};
use crate::location::StoreLocation;
use crate::settings::Settings;
use crate::{InitError, Trust};
use atomdir_disk::LinuxDisk;
use atomdir_engine::{Adoption, Placed, Store};
use rustix::fs::{AtFlags, Dir, Mode, fchmod, fstat, fsync, statat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The result of adopting a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdoptOutcome {
    /// The store.
    pub store: StoreLocation,
    /// What was found of its past; `None`: it was in its place already.
    pub adoption: Option<Adoption>,
}

/// Makes a copy of a store one of its own. Does nothing to a store in its place.
pub fn adopt_with(directory: &Path, trust: Trust) -> Result<AdoptOutcome, InitError> {
    let root = Root::open(directory)?;
    check_place(&root)?;
    nesting::check_above(&root)?;
    let location = StoreLocation::at_any_place(&root.path, trust)?;
    let handle = control::existing(&root, &location.control, None)?;
    let disk = LinuxDisk::new();
    let placed = Store::placed(&disk, &root.handle, &handle);
    let adoption = match placed.map_err(|error| root.refused(error))? {
        Placed::Here => None,
        _ => {
            check_owners(&root, &location, &handle)?;
            fchmod(&handle, Mode::from_raw_mode(MODE)).map_err(root.failed("closing it"))?;
            let lock = StartLock::wait(&handle).map_err(root.failed("taking the start lock"))?;
            let settings = Settings::keep_of_copy(&handle, location.owner);
            settings.map_err(root.failed("leaving out settings"))?;
            let kept = fcntl_dupfd_cloexec(&handle, 3).map_err(root.failed("keeping it open"))?;
            let adopted = Store::adopt(&disk, &root.handle, (kept, log_at(&handle)));
            let adopted = adopted.map_err(|error| root.refused(error))?;
            drop(lock);
            adopted
        }
    };
    control::point_again(&root, &location.control, &handle)?;
    ignore::write(&handle).map_err(root.failed("writing .gitignore"))?;
    fsync(&root.handle).map_err(root.failed("making it durable"))?;
    Ok(AdoptOutcome {
        store: StoreLocation::at_with(&root.path, trust)?,
        adoption,
    })
}

/// Whoever owns a control file can change it. Only the owner acts on them: root must not follow what a
/// stranger has put there.
fn check_owners(root: &Root, location: &StoreLocation, control: &OwnedFd) -> Result<(), InitError> {
    let foreign = |name: String, user| {
        let reason = format!("'{name}' in it belongs to {}", describe_user(user));
        InitError::ControlUnfit {
            control: location.control.clone(),
            reason,
        }
    };
    let failed = root.failed("looking whose the control files are");
    let ours = rustix::process::geteuid().as_raw();
    let owner = fstat(control).map_err(&failed)?.st_uid;
    if owner != ours {
        return Err(foreign(".".to_owned(), owner));
    }
    for entry in Dir::read_from(control).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match statat(control, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if stat.st_uid != owner => {
                return Err(foreign(name.to_string_lossy().into_owned(), stat.st_uid));
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(())
}
