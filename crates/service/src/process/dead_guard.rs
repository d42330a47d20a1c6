//! A store over which the guard of a killed service still lies.
//!
//! Calls in it fail, also those of the next service, unless the kernel knows the answer. If the store's settings want a guard, that
//! service puts a new one in its place. Until it has recovered the store, programs shall not find the
//! plain directory, in which a commit may have landed half.
//!
//! So the service looks at the store in a mount namespace of its own, from which it has removed the
//! guard. Then it takes the dead guard away for as long as it needs to open the store's directories,
//! and puts it back over them. All that it does until it mounts the new guard begins at these.

use crate::ServiceError;
use crate::process::store::{self, Directories};
use atomdir::StoreLocation;
use atomdir::client::{GuardChoice, Settings, mounts};
use atomdir::hosting::StartLock;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount_change, move_mount,
    open_tree, unmount,
};
use rustix::process::{chroot, fchdir, geteuid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A store under a dead guard.
pub(crate) struct Beneath {
    pub location: StoreLocation,
    control: OwnedFd,
}

/// The store at this path, if a dead guard lies over it and its settings want one. The process must
/// have only one thread.
pub(crate) fn find(store: &Path) -> Option<Beneath> {
    let point = std::path::absolute(store).ok()?;
    if !geteuid().is_root() || mounts::dead_guard(&point)? != point {
        return None;
    }
    match without_guard(&point, || look(&point)) {
        Ok(found) => found,
        Err(errno) => {
            tracing::warn!("cannot look beneath the guard of a killed service: {errno}");
            None
        }
    }
}

fn look(point: &Path) -> Option<Beneath> {
    let location = store::locate(point).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let control = openat(CWD, &location.control, flags, Mode::empty()).ok()?;
    let choice = Settings::read(&control).ok()?.guard();
    // A value that is not known is reported when the guard is to be mounted.
    (choice != Ok(GuardChoice::Off)).then_some(Beneath { location, control })
}

/// Runs this where the guard is not mounted.
fn without_guard<T>(point: &Path, look: impl FnOnce() -> T) -> Result<T, Errno> {
    let open = |path: &str| openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let (own, root) = (open("/proc/self/ns/mnt")?, open("/")?);
    // SAFETY: the process has one thread, and shares its directories with no other.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    let removed = mount_change("/", private)
        .and_then(|()| unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW));
    let found = removed.map(|()| look());
    // Entering a namespace also changes the root directory.
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Mount))?;
    fchdir(&root)?;
    chroot(c".")?;
    found
}

impl Beneath {
    /// Opens the store's directories. Afterwards the dead guard lies over them again, unless another
    /// process has removed it.
    pub fn open(self) -> Result<(Directories, StartLock), ServiceError> {
        let root = self.location.root.clone();
        let failed = |operation| {
            let store = root.clone();
            move |errno| ServiceError::Serve {
                store,
                operation,
                errno,
            }
        };
        let start_lock = StartLock::wait(&self.control).map_err(failed("taking the start lock"))?;
        if !mounts::is_dead(&root) {
            // `umount` has removed it, or another service has put one in its place.
            return match mounts::guard_at(&root) {
                None => Ok((Directories::open(self.location)?, start_lock)),
                Some(_) => Err(ServiceError::AlreadyRunning { store: root }),
            };
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        let guard = open_tree(CWD, &root, flags).map_err(failed("looking at its dead guard"))?;
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        unmount(&root, flags).map_err(failed("removing its dead guard"))?;
        let opened = Directories::open(self.location);
        let back = move_mount(
            &guard,
            c"",
            CWD,
            &root,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        );
        let directories = opened?;
        back.map_err(failed("closing it until it is recovered"))?;
        Ok((directories, start_lock))
    }
}
