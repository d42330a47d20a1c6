//! A private mount namespace in which the view is at the path of the store.
//!
//! [`Namespace::enter`] runs between fork and exec, where only system calls are allowed:
//! it allocates nothing, and all that it needs is made before the fork.

use super::private_root::PrivateRoot;
use super::seal::{self, Seal};
use super::{AlsoBound, Step, Tree};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, mount_bind, mount_change, move_mount};
use rustix::thread::UnshareFlags;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::path::Path;

enum View {
    /// A directory of the old mount namespace.
    Directory(RawFd),
    /// A detached mount.
    Mount(RawFd),
}

impl View {
    fn of(view: &Tree) -> View {
        match view {
            Tree::Exact(root) => View::Directory(root.as_raw_fd()),
            Tree::Native(overlay) => View::Mount(overlay.as_fd().as_raw_fd()),
        }
    }
}

pub(super) struct Namespace {
    base: CString,
    view: View,
    /// Set if the store is the root directory.
    private_root: Option<PrivateRoot>,
    others: Vec<Other>,
    maps: UserMaps,
}

/// A view that is bound over another store.
struct Other {
    base: CString,
    /// Where an exact view is.
    path: CString,
    /// A directory as it was checked.
    view: View,
}

/// What a sealed command gets in addition.
#[derive(Clone, Copy)]
pub(super) struct Sealed<'a> {
    pub(super) seal: &'a Seal,
    /// A process namespace for the children of this process.
    pub(super) processes: bool,
}

/// Maps for a user namespace that contains only the user.
struct UserMaps {
    user: Vec<u8>,
    group: Vec<u8>,
}

/// Lets this process mount. If it may not yet, it enters a user namespace and a mount
/// namespace, and so do the processes that it starts.
pub(super) fn enter_as_mounter() -> Result<(), (Step, Errno)> {
    UserMaps::own().unshare(UnshareFlags::empty())?;
    hold_mounts(MountPropagationFlags::DOWNSTREAM)
}

impl Namespace {
    pub(super) fn new(base: &Path, view: &Tree, also: &[AlsoBound]) -> io::Result<Namespace> {
        let other = |one: &AlsoBound| {
            Ok(Other {
                base: super::c_path(&one.base)?,
                path: super::c_path(&one.path)?,
                view: View::of(&one.view),
            })
        };
        Ok(Namespace {
            base: super::c_path(base)?,
            view: View::of(view),
            private_root: if base == Path::new("/") {
                Some(PrivateRoot::prepare()?)
            } else {
                None
            },
            others: also.iter().map(other).collect::<io::Result<_>>()?,
            maps: UserMaps::own(),
        })
    }

    pub(super) fn enter(&self, sealed: Option<Sealed<'_>>) -> Result<(), (Step, Errno)> {
        // The new namespace has copies of the mounts, and can bind only those. The
        // kernel moves a process's current directory to the copies, but no other directory
        // that the process has open.
        if let View::Directory(root) = &self.view {
            // SAFETY: the process that starts the command keeps the view's root open.
            let root = unsafe { BorrowedFd::borrow_raw(*root) };
            rustix::process::fchdir(root).map_err(|errno| (Step::Bind, errno))?;
        }
        let mut more = UnshareFlags::empty();
        more.set(
            UnshareFlags::NEWPID,
            sealed.is_some_and(|one| one.processes),
        );
        let is_cut_off = sealed.is_some_and(|one| !one.seal.has_network());
        more.set(UnshareFlags::NEWNET, is_cut_off);
        self.maps.unshare(more)?;
        let Some(Sealed { seal, processes }) = sealed else {
            hold_mounts(MountPropagationFlags::DOWNSTREAM)?;
            return self.bind().map_err(|errno| (Step::Bind, errno));
        };
        if is_cut_off {
            seal::start_loopback().map_err(|errno| (Step::Network, errno))?;
        }
        // A mount that somebody makes outside may show the store.
        hold_mounts(MountPropagationFlags::PRIVATE)?;
        seal.confine()?;
        self.bind().map_err(|errno| (Step::Bind, errno))?;
        seal.cover(&self.base)?;
        match processes {
            // The command gets a `/proc` of its own.
            true => Ok(()),
            false => seal::protect_proc().map_err(|errno| (Step::Cover, errno)),
        }
    }

    fn bind(&self) -> Result<(), Errno> {
        if !self.others.is_empty() {
            // It is in the new namespace, and stays the current directory.
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let here = rustix::fs::open(c".", flags, Mode::empty())?;
            self.others.iter().try_for_each(Other::bind)?;
            rustix::process::fchdir(&here)?;
        }
        if let Some(private_root) = &self.private_root {
            return match &self.view {
                View::Directory(_) => private_root.enter_directory(),
                // SAFETY: as above, for the overlay.
                View::Mount(mount) => private_root.enter(unsafe { BorrowedFd::borrow_raw(*mount) }),
            };
        }
        match &self.view {
            View::Directory(_) => mount_bind(c".", &*self.base),
            View::Mount(mount) => attach(*mount, &self.base),
        }
    }
}

/// Attaches a detached mount.
fn attach(mount: RawFd, base: &CStr) -> Result<(), Errno> {
    // SAFETY: the process that starts the command keeps the overlay's mount open.
    let mount = unsafe { BorrowedFd::borrow_raw(mount) };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(mount, c"", CWD, base, flags)
}

impl Other {
    /// The descriptor of an exact view's root is of the old namespace, so the view is found by its path in the
    /// new one, and must be the same.
    fn bind(&self) -> Result<(), Errno> {
        let root = match &self.view {
            View::Mount(mount) => return attach(*mount, &self.base),
            View::Directory(root) => *root,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::open(&*self.path, flags, Mode::empty())?;
        // SAFETY: the process that starts the command keeps the view's root open.
        let root = unsafe { BorrowedFd::borrow_raw(root) };
        let (found_stat, root_stat) = (rustix::fs::fstat(&found)?, rustix::fs::fstat(root)?);
        let place = |stat: &rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        if place(&found_stat) != place(&root_stat) {
            return Err(Errno::STALE);
        }
        rustix::process::fchdir(&found)?;
        mount_bind(c".", &*self.base)
    }
}

/// Whether [`hold_mounts`] will work. It fails after a plain chroot(2), whose root is no mount.
pub(super) fn check_root() -> Result<(), Errno> {
    let flags = AtFlags::NO_AUTOMOUNT;
    let root = statx(CWD, c"/", flags, StatxFlags::empty())?;
    match root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        true => Ok(()),
        false => Err(Errno::INVAL),
    }
}

/// Keeps our mounts from spreading outside. With `DOWNSTREAM` mounts made outside still
/// arrive here; with `PRIVATE` they do not.
fn hold_mounts(how: MountPropagationFlags) -> Result<(), (Step, Errno)> {
    mount_change(c"/", how | MountPropagationFlags::REC).map_err(|errno| (Step::HoldMounts, errno))
}

impl UserMaps {
    fn own() -> UserMaps {
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        UserMaps {
            user: format!("{user} {user} 1").into_bytes(),
            group: format!("{group} {group} 1").into_bytes(),
        }
    }

    /// Makes a mount namespace, with a user namespace only if necessary.
    fn unshare(&self, more: UnshareFlags) -> Result<(), (Step, Errno)> {
        let flags = UnshareFlags::NEWNS | more;
        // SAFETY: no flag unshares the descriptors other code may rely on.
        match unsafe { rustix::thread::unshare_unsafe(flags) } {
            Ok(()) => return Ok(()),
            Err(Errno::PERM) => {}
            Err(errno) => return Err((Step::Unshare, errno)),
        }
        let with_user = UnshareFlags::NEWUSER | flags;
        // SAFETY: as above; with more than one thread the kernel refuses it.
        unsafe { rustix::thread::unshare_unsafe(with_user) }
            .map_err(|errno| (Step::Unshare, errno))?;
        // The kernel accepts a group map from an ordinary user only after setgroups(2) is denied.
        write(c"/proc/self/setgroups", b"deny")
            .and_then(|()| write(c"/proc/self/uid_map", &self.user))
            .and_then(|()| write(c"/proc/self/gid_map", &self.group))
            .map_err(|errno| (Step::MapUser, errno))
    }
}

/// The kernel accepts each of these files in one write or not at all.
fn write(path: &CStr, data: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, data).map(|_| ())
}
