//! Claims a place for a service's views, so that no other service uses the same one.
//!
//! The name of a place comes from the birth time and the inode of the store's control
//! directory. It is the same after a reboot, when the file system may have another device
//! number, and a copied store has another. An image or a snapshot of a whole file system has the
//! same: the second of two that are in use takes another name.
//!
//! Invariants
//! 1. A service mounts and listens only where it holds the lock of the file beside the place.
//! 2. That file names the control directory, so clients can see whose views are there.
//! 3. A file whose lock nobody holds is of a service that has ended.

use crate::views::mountpoint::{self, MountpointError};
use atomdir::client::mounts;
use atomdir_disk::{Disk, Identity, LinuxDisk, sync};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, ftruncate, openat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(crate) struct Claim {
    user: u32,
    place: PathBuf,
    /// The text of the file beside the place.
    text: String,
    /// That file, while this holds its lock.
    file: Mutex<Option<OwnedFd>>,
}

impl Claim {
    /// Takes the first place for this store that no other service has. If that fails, the service
    /// works without views; each attempt to mount tries again.
    pub(crate) fn take(user: u32, control: &OwnedFd) -> Result<Claim, Errno> {
        let identity = LinuxDisk::new().stat(control)?.identity;
        let text = mounts::claim(&fstat(control)?);
        let parent = mountpoint::parent(user);
        let mut number = 1;
        loop {
            let claim = Claim {
                user,
                place: parent.join(name(identity, number)),
                text: text.clone(),
                file: Mutex::default(),
            };
            match claim.hold() {
                Err(MountpointError::Taken { .. }) => number += 1,
                Err(error) => {
                    // Mounting will report this to each client that needs a view.
                    tracing::warn!("{error}");
                    return Ok(claim);
                }
                Ok(()) => return Ok(claim),
            }
        }
    }

    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Makes sure that no other service uses the place.
    pub(crate) fn hold(&self) -> Result<(), MountpointError> {
        let mut held = sync::lock(&self.file);
        if held.is_none() {
            let parent = mountpoint::prepare_parent(self.user)?;
            let path = mounts::claim_of(&self.place);
            let file = lock(&parent, &path, &self.text).map_err(|errno| match errno {
                Errno::WOULDBLOCK => MountpointError::Taken {
                    path: self.place.clone(),
                },
                errno => MountpointError::Make { path, errno },
            })?;
            *held = Some(file);
        }
        Ok(())
    }

    /// Another descriptor of the file beside the place, which shares its lock. `None`: it is not held.
    pub(crate) fn file(&self) -> Option<OwnedFd> {
        let held = sync::lock(&self.file);
        held.as_ref()?.try_clone().ok()
    }

    pub(crate) fn is_held(&self) -> bool {
        let held = sync::lock(&self.file);
        held.is_some()
    }

    /// Lets others have the place. Nothing of this service may be left there.
    pub(crate) fn end(&self) {
        let mut held = sync::lock(&self.file);
        if let Some(file) = held.take() {
            // Removed while it is locked: whoever locks it next sees that it is gone.
            let _ = rustix::fs::unlink(mounts::claim_of(&self.place));
            drop(file);
        }
    }
}

fn name(identity: Identity, number: u32) -> String {
    let birth = (identity.birth ^ (identity.birth >> 32)) & u64::from(u32::MAX);
    let name = format!("{birth:08x}-{:x}", identity.inode);
    match number {
        1 => name,
        _ => format!("{name}.{number}"),
    }
}

/// Makes the file, locks it and writes the text into it.
fn lock(parent: &OwnedFd, path: &Path, text: &str) -> Result<OwnedFd, Errno> {
    let name = path.file_name().unwrap_or_default();
    loop {
        let file = open(parent, name, OFlags::CREATE)?;
        let mut found = vec![0; text.len()];
        let length = pread(&file, &mut found, 0)?;
        // A killed service of this store may have a child that ends in a moment.
        let how = match found[..length] == *text.as_bytes() {
            true => FlockOperation::LockExclusive,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        retry_on_intr(|| flock(&file, how))?;
        if fstat(&file)?.st_nlink == 0 {
            continue;
        }
        ftruncate(&file, 0)?;
        pwrite(&file, text.as_bytes(), 0)?;
        return Ok(file);
    }
}

/// Locks the file of a service that has ended; `None`: the service has not.
pub(crate) fn lock_dead(parent: &OwnedFd, name: &OsStr) -> Option<OwnedFd> {
    let file = open(parent, name, OFlags::empty()).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

fn open(parent: &OwnedFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::RUSR | Mode::WUSR)
}

#[cfg(test)]
mod tests;
